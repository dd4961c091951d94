/* SPDX-License-Identifier: MIT */
/* Where a pretended device sits: what the driver and NVML both tell of it. A place is a device's
 * number in the account, before CUDA_VISIBLE_DEVICES. */
#ifndef MT_CUDA_PLACE_H
#define MT_CUDA_PLACE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PRETEND_UUID_TEXT 41 /* "GPU-" and 36 characters, with the end */
#define PRETEND_BUS_TEXT  13 /* "0000:01:00.0", with the end */

/* The PCI bus of a place; domain, device and function are 0. */
static inline uint32_t pretend_place_bus(uint32_t place)
{
    return place + 1;
}

static inline void pretend_place_bus_text(uint32_t place, char text[static PRETEND_BUS_TEXT])
{
    snprintf(text, PRETEND_BUS_TEXT, "0000:%02X:00.0", pretend_place_bus(place) & 0xffu);
}

static inline void pretend_place_uuid(uint32_t place, unsigned char uuid[static 16])
{
    memcpy(uuid, "memtally\x40pre\x80ten", 16);
    uuid[15] = (unsigned char)place;
}

/* As nvidia-smi says it. */
static inline void pretend_place_uuid_text(uint32_t place, char text[static PRETEND_UUID_TEXT])
{
    unsigned char uuid[16];
    char *end = text + snprintf(text, 5, "GPU-");
    pretend_place_uuid(place, uuid);
    for (int i = 0; i < 16; i++)
        end += snprintf(end, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

#endif
