/* SPDX-License-Identifier: MIT */
/* What is known of a machine's devices beside their sizes: links, and how fast memory is read. */
#ifndef MT_PLACE_MACHINE_H
#define MT_PLACE_MACHINE_H

#include <memtally/model_file.h>
#include <memtally/settings.h>

struct mt_place_device; /* all of <memtally/place.h> */
struct mt_place_options;
struct mt_place_problem;

/* Sets what each crossing of the problem takes. *seconds, if it is set, is what the problem refers
 * to, for the caller to free. Errors: MT_EARG, MT_ENOMEM. */
int mt_place_links(const struct mt_model_description *d, const struct mt_place_options *options,
                   struct mt_place_problem *problem, double **seconds, struct mt_error *error);

/* Memory of a card that is known reads as many bytes in a second as the driver's clock and bus
 * tell, twice in each cycle (CUDA's deviceQuery). */
void mt_place_speeds(const struct mt_predict_settings *settings, struct mt_place_device *devices);

#endif
