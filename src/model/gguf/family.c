/* SPDX-License-Identifier: MIT */
/* What llama.cpp's loader sets for families. */
#include "family.h"

#define WINDOW(rule, layers, tokens)                                                               \
    .window = MT_WINDOW_##rule, .period = (layers), .default_window = (tokens)
#define RECURS(rule, kind) .recurs = MT_RECURS_##rule, .recurrence = MT_RECURRENCE_##kind
#define TRAITS(bits)       .traits = (bits)

#define LATENT    MT_FAMILY_LATENT
#define SECTIONS  MT_FAMILY_SECTIONS
#define ENCODES   (MT_FAMILY_NO_CACHE | MT_FAMILY_EMBEDDER)
#define DIFFUSION MT_FAMILY_NO_CACHE

static const struct mt_family families[MT_ARCH_UNKNOWN] = {
#define GGUF(id, ...) [MT_ARCH_##id] = {.is_known = 1, .arch = MT_ARCH_##id, __VA_ARGS__},
#include "model/families.def"
};

const struct mt_family *mt_family_of_gguf(const char *architecture)
{
    enum mt_arch arch = mt_arch_of(architecture);
    return arch != MT_ARCH_UNKNOWN && families[arch].is_known ? &families[arch] : NULL;
}
