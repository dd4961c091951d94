/* SPDX-License-Identifier: MIT */
/* Containers of device code. The first byte is the capability of the device, in tens and ones. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/driver/module/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static int take_name(void *context, const char *name)
{
    *(size_t *)context += strlen(name);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct pretend_image chosen = {0};
    if (length < 1)
        return 0;
    uint32_t capability = data[0];
    unsigned char *image = malloc(length);
    if (image == NULL)
        return 0;
    memcpy(image, data + 1, length - 1);
    enum pretend_image_result result =
        pretend_cuda_image_choose(image, length - 1, capability, &chosen);
    size_t letters = 0;
    if (pretend_cuda_image_kernels(image, length - 1, take_name, &letters) > 0)
        abort();
    free(image);
    /* What is chosen runs on the device; what is not chosen is left alone. */
    if (result != PRETEND_IMAGE_CHOSEN && (chosen.binary || chosen.ptx))
        abort();
    if (result == PRETEND_IMAGE_CHOSEN && (chosen.ptx > capability || chosen.binary > capability ||
                                           !chosen.ptx || chosen.binary / 10 != capability / 10))
        abort();
    return 0;
}
