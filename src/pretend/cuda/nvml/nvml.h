/* SPDX-License-Identifier: MIT */
/* What the files of the pretended NVML share. Types and values are those of NVML's documentation,
 * versions 11 to 13. */
#ifndef MT_CUDA_NVML_NVML_H
#define MT_CUDA_NVML_NVML_H

#include <stddef.h>
#include <stdint.h>

#include "pretend/cuda/pretend_cuda.h"
#include "rehearse/account.h"

enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_ARGUMENT_VERSION_MISMATCH = 25
};

/* nvmlDevice_t: one of a table by place in the account. */
struct nvml_device {
    uint32_t unused;
};

/* Whether a call may be made, and if there is a `device` whether it is one; its place in *place. */
int nvml_enter(void);
int nvml_find(const struct nvml_device *device, uint32_t *place);
/* The same, and NVML_INVALID_ARGUMENT where there is no room for the answer. */
int nvml_ask(const struct nvml_device *device, const void *answer, uint32_t *place);
struct nvml_device *nvml_device(uint32_t place);
uint32_t nvml_device_count(void);
const struct mt_account_device *nvml_account_device(uint32_t place);

/* How many links of NVLink a device has, 0 for none. */
unsigned nvml_link_count(uint32_t place);

/* A text for a buffer of `room` bytes; NVML_INSUFFICIENT_SIZE. */
int nvml_text(char *buffer, unsigned room, const char *text);

#endif
