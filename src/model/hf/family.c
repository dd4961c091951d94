/* SPDX-License-Identifier: MIT */
/* The families by model_type: what their layers consist of, and what their config.json may leave
 * out. A config.json that says otherwise than a default is right. */
#include <string.h>

#include "config.h"

/* clang-format off */
#define D(field, number) {MT_HF_##field, number},
#define X(family, ...)                                                                             \
    static const struct mt_hf_default family##_defaults[] = {__VA_ARGS__ {MT_HF_FIELDS, 0}};
#include "defaults.def"
#undef X
#undef D
/* clang-format on */

static const struct mt_hf_family families[] = {
#define HF(id, model_type, norms, period, traits, defaults)                                        \
    {model_type, MT_ARCH_##id, norms, period, traits, defaults},
#include "model/families.def"
};

const struct mt_hf_family *mt_hf_family_llama(void)
{
    const struct mt_hf_family *family = families;
    while (family->arch != MT_ARCH_LLAMA)
        family++;
    return family;
}

const struct mt_hf_family *mt_hf_family_find(const char *model_type, size_t length)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].model_type) == length &&
            memcmp(families[i].model_type, model_type, length) == 0)
            return &families[i];
    }
    return NULL;
}
