/* SPDX-License-Identifier: MIT */
/* Figures of a cgroup found by mt_cgroup_find() (device/host.h). */
#ifndef MT_DEVICE_CGROUP_H
#define MT_DEVICE_CGROUP_H

#include "device/host.h"

/* Sets the cgroup members of *sample; what cannot be read is left alone. */
void mt_cgroup_read(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                    struct mt_host_sample *sample);

#endif
