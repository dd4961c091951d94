/* SPDX-License-Identifier: MIT */
/* Levels of pressure, which do not flicker where a place stays near a threshold. */
#include "guard/pressure.h"

const char *mt_pressure_name(enum mt_pressure pressure)
{
    static const char *const names[] = {
        [MT_PRESSURE_LOW] = "low",
        [MT_PRESSURE_MODERATE] = "moderate",
        [MT_PRESSURE_HIGH] = "high",
        [MT_PRESSURE_CRITICAL] = "critical",
    };
    return (unsigned)pressure < MT_N_PRESSURES ? names[pressure] : "?";
}

static unsigned level_at(const double *ratios, double shift, double utilisation_ratio)
{
    unsigned level = 0;
    while (level < MT_N_PRESSURES - 1 && utilisation_ratio >= ratios[level] - shift)
        level++;
    return level;
}

enum mt_pressure mt_pressure_after(const double level_ratios[MT_N_PRESSURES - 1],
                                   double hysteresis_ratio, enum mt_pressure before,
                                   double utilisation_ratio)
{
    unsigned begun = level_at(level_ratios, 0, utilisation_ratio);
    unsigned held = level_at(level_ratios, hysteresis_ratio, utilisation_ratio);
    unsigned kept = held < before ? held : before;
    return (enum mt_pressure)(begun > kept ? begun : kept);
}
