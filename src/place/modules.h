/* SPDX-License-Identifier: MIT */
/* A device for each module of a model in Python. */
#ifndef MT_PLACE_MODULES_H
#define MT_PLACE_MODULES_H

#include "units.h"

struct mt_place_modules {
    size_t n;
    struct mt_place_module *all;
    char *names; /* that they borrow */
};

/* Limits for accelerate (max_memory); room for all devices and the host. Returns how many there
 * are.
 */
size_t mt_place_memory_of(const struct mt_place_problem *problem,
                          const struct mt_placement *placement, struct mt_place_memory *memory);

/* Errors: MT_ENOMEM. mt_place_modules_finish() frees them also after one. */
int mt_place_modules_of(const struct mt_model *model, const struct mt_place_units *units,
                        const struct mt_placement *placement, struct mt_place_modules *modules,
                        struct mt_error *error);
void mt_place_modules_finish(struct mt_place_modules *modules);

#endif
