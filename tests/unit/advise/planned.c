/* SPDX-License-Identifier: MIT */
/* Stands for llama-cli: what it takes of the first device, or without one of the host, follows from
 * its flags by the formulas below. It ends at what it is refused; with --copes it goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rehearse/account_write.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)
#define LAYERS 33 /* the output is one of them */

static const char *value_of(char **argv, const char *flag)
{
    for (; argv[0] && argv[1]; argv++)
        if (strcmp(argv[0], flag) == 0)
            return argv[1];
    return NULL;
}

static uint64_t number_of(char **argv, const char *flag, uint64_t otherwise)
{
    const char *value = value_of(argv, flag);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* What the keys of a token take in all layers, or its values. */
static uint64_t half_of_token(char **argv, const char *flag)
{
    const char *type = value_of(argv, flag);
    return type && strcmp(type, "q8_0") == 0 ? 16 * KIB : 32 * KIB;
}

static int take(uint32_t place, uint64_t bytes, enum mt_category category, const char *name)
{
    static char objects[8];
    static size_t n;
    uint64_t free_bytes = 0;
    if (!pretend_take(place, bytes, &free_bytes)) {
        pretend_note_refuse(place, category, bytes, free_bytes, name, NULL);
        return 0;
    }
    pretend_note_alloc(place, category, 0, &objects[n++], bytes, name, NULL);
    return 1;
}

int main(int argc, char **argv)
{
    struct mt_account *account = pretend_account();
    if (!account || argc < 1)
        return 99;
    uint32_t place = account->n_devices ? 0 : MT_ACCOUNT_HOST;
    uint64_t there = place ? LAYERS : number_of(argv, "-ngl", LAYERS);
    uint64_t token = half_of_token(argv, "-ctk") + half_of_token(argv, "-ctv");
    uint64_t weights = number_of(argv, "--weights", 200) * MIB;
    __atomic_fetch_add(&account->n_attached, 1, __ATOMIC_RELAXED);
    int fits =
        take(place, weights * there / LAYERS, MT_CATEGORY_WEIGHTS, "weights") &&
        take(place, token * number_of(argv, "-c", 4096) * there / LAYERS, MT_CATEGORY_KV_CACHE,
             "cache") &&
        take(place, 128 * KIB * number_of(argv, "-ub", 512), MT_CATEGORY_ACTIVATIONS, "compute");
    return !fits && strcmp(argv[argc - 1], "--copes") != 0;
}
