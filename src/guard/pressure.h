/* SPDX-License-Identifier: MIT */
/* Levels of pressure. Pure. */
#ifndef MT_GUARD_PRESSURE_H
#define MT_GUARD_PRESSURE_H

#include <memtally/monitor.h>

/* The level at a utilisation, after the level `before`. A level begins at its ratio, and ends
 * `hysteresis_ratio` below it. */
enum mt_pressure mt_pressure_after(const double level_ratios[MT_N_PRESSURES - 1],
                                   double hysteresis_ratio, enum mt_pressure before,
                                   double utilisation_ratio);

#endif
