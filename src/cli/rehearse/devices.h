/* SPDX-License-Identifier: MIT */
/* Pretended devices out of what was typed of them. */
#ifndef CLI_REHEARSE_DEVICES_H
#define CLI_REHEARSE_DEVICES_H

#include "cli/model/model.h"

struct mt_rehearsal_device; /* <memtally/rehearsal.h> */

/* Fills in a device for each that `request` has. Of a program of ggml (`is_cuda` is 0) the driver's
 * context is held back, with `reserved_bytes` 0 what it takes as a rule; a CUDA program takes it
 * itself. `names` may be NULL, as may each of them. Texts are borrowed from both. Errors: MT_EARG
 * (nothing is left of a device). */
int rehearse_fill_devices(struct estimate_request *request, int is_cuda, uint64_t reserved_bytes,
                          const char *const *names, struct mt_rehearsal_device *devices,
                          struct mt_error *error);

#endif
