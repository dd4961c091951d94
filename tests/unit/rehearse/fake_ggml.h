/* SPDX-License-Identifier: MIT */
/* A stand-in for a ggml: as much of one as pretended devices ask of it. Built twice, for two API
 * versions; its operations have other numbers in each. */
#ifndef TESTS_UNIT_REHEARSE_FAKE_GGML_H
#define TESTS_UNIT_REHEARSE_FAKE_GGML_H

#include "pretend/ggml/abi.h"

enum fake_type { FAKE_F32, FAKE_F16, FAKE_Q8_0, FAKE_Q4_0, FAKE_Q6_K, FAKE_BF16, FAKE_I32 };

struct fake_kept {
    size_t count;
    struct {
        const struct ggml_tensor *tensor, *until;
    } each[32];
};

struct fake {
    /* Loads the object at `path` as ggml_backend_load() would; NULL where it gave no registry. */
    struct ggml_registry *(*load)(const char *path);
    int (*op)(const char *name);
    void (*set_version)(int version);
    /* What a scheduler gives to graph_optimize; the tensors that were kept, in order. */
    const struct ggml_optimize *optimize;
    struct fake_kept *kept;
};

/* A tensor of three dimensions, whole. */
static inline struct ggml_tensor tensor_of(enum fake_type type, int64_t ne0, int64_t ne1,
                                           int64_t ne2)
{
    static const size_t block[] = {1, 1, 32, 32, 256, 1, 1}, bytes[] = {4, 2, 34, 18, 210, 2, 4};
    size_t row = (size_t)ne0 / block[type] * bytes[type];
    return (struct ggml_tensor){
        .type = (int)type,
        .ne = {ne0, ne1, ne2, 1},
        .nb = {bytes[type], row, row * (size_t)ne1, row * (size_t)(ne1 * ne2)}};
}

/* The one exported name beside those of ggml. */
const struct fake *fake_ggml(void);

#endif
