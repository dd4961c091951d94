/* SPDX-License-Identifier: MIT */
/* What CUDA's driver takes of a device for a process: its context, and kernels and libraries once
 * the engine has worked. By the card that the settings name, or may mean by a size. */
#ifndef MT_PREDICT_DRIVER_H
#define MT_PREDICT_DRIVER_H

#include <memtally/provenance.h>
#include <memtally/settings.h>

#include "gpu/law.h"
#include "predict/input.h"

struct mt_driver {
    struct mt_gpu_band band;
    enum mt_provenance provenance;
    char formula[192];
};

/* What the driver takes of device number `device`. `kernels` is the engine's key for MiB that
 * kernels take for each multiprocessor, with KEY.low, KEY.high, and KEY.more of MiB that the high
 * end has beside; NULL where none run there. */
void mt_driver_of(const struct mt_engine *engine, const struct mt_predict_settings *settings,
                  size_t device, const char *kernels, struct mt_driver *driver);

/* The same for engines on PyTorch, with their key "kernels" or without; on devices that CUDA does
 * not drive by the keys "context", "context.low" and "context.high" of their table. */
void mt_driver_of_torch(const struct mt_predict_input *in, size_t device, int has_worked,
                        struct mt_driver *driver);

/* Writes it as a term of a device. */
void mt_driver_write_torch(const struct mt_predict_input *in, int device, struct mt_sheet *sheet);

/* Puts names of the table into `known`, which has one for each device, and says on the sheet which
 * card is taken where that was left open. The settings refer to `known` then. */
void mt_driver_name_cards(struct mt_predict_settings *settings, struct mt_device_known *known,
                          struct mt_sheet *sheet);

/* The key of the rule that these are by, for a sheet. */
#define MT_DRIVER_RULE   "context.cuda"
#define MT_DRIVER_SOURCE "tests/conformance/device_context.csv"

#endif
