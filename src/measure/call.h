/* SPDX-License-Identifier: MIT */
/* mt_measure_call() and mt_measure_begin() with their outside world handed in. For the library and
 * its tests. */
#ifndef MT_MEASURE_CALL_H
#define MT_MEASURE_CALL_H

#include <memtally/measure.h>

#include "measure/os.h"
#include "measure/registry.h"

/* Whether each growth is the peak less the baseline, where both are known. */
int mt_measure_result_is_valid(const struct mt_measure_result *result);

int mt_measure_call_in(const struct mt_measure_os *os, struct mt_measure_registry *registry,
                       void *(*function)(void *argument), void *argument,
                       const struct mt_measure_options *options, struct mt_measure_result *result,
                       struct mt_error *error);

int mt_measure_begin_in(const struct mt_measure_os *os, struct mt_measure_registry *registry,
                        const struct mt_measure_options *options, struct mt_measure **measure,
                        struct mt_error *error);

#endif
