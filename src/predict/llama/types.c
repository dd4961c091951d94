/* SPDX-License-Identifier: MIT */
/* Sizes of tensors as llama.cpp's backends allocate them, and words that resemble each other.
 * Knows nothing of models. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "internal.h"
#include "model/ggml_type.h"

#define DEVICE_ALIGNMENT 128
#define HOST_ALIGNMENT   32
/* CUDA's kernels read rows of quantised tensors in steps of this many elements. */
#define ROW_STEP 512

#define WORD_MAX 32

uint64_t mt_llama_type_bytes(const char *type, uint64_t n)
{
    const struct mt_ggml_type *found = mt_ggml_type_by_name(type);
    if (!found)
        return 0;
    uint64_t blocks = n / found->block_elements + (n % found->block_elements != 0);
    return mt_llama_times(blocks, found->block_bytes);
}

int mt_llama_is_quantised(const char *type)
{
    const struct mt_ggml_type *found = mt_ggml_type_by_name(type);
    return found && found->block_elements > 1;
}

uint64_t mt_llama_device_bytes(const char *type, uint64_t row_elements, uint64_t bytes)
{
    uint64_t rest = row_elements % ROW_STEP;
    if (rest && mt_llama_is_quantised(type))
        bytes = mt_llama_add(bytes, mt_llama_type_bytes(type, ROW_STEP - rest));
    return mt_llama_padded(bytes, DEVICE_ALIGNMENT);
}

uint64_t mt_llama_host_bytes(uint64_t bytes)
{
    return mt_llama_padded(bytes, HOST_ALIGNMENT);
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edits that turn one word into the other, of words below WORD_MAX characters. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t above = row[j + 1];
            row[j + 1] = smallest(row[j] + 1, above + 1, diagonal + (size_t)(a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[b_length];
}

/* How little two words resemble each other; the same beginning counts for much. */
static size_t unlikeness(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t same = 0;
    while (same < a_length && same < b_length && a[same] == b[same])
        same++;
    return 4 * distance(a, a_length, b, b_length) + 3 * (WORD_MAX - same);
}

void mt_llama_nearest(const struct mt_engine *engine, const char *key, const char *word,
                      char *nearest, size_t size)
{
    struct mt_engine_value value;
    size_t least = SIZE_MAX;
    size_t word_length = strnlen(word, WORD_MAX);
    *nearest = 0;
    if (mt_engine_value(engine, key, &value) < 0)
        return;
    const char *end = value.text + value.length;
    for (const char *at = value.text; at < end;) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        size_t length = (size_t)((blank ? blank : end) - at);
        size_t unlike =
            length && length < WORD_MAX ? unlikeness(word, word_length, at, length) : SIZE_MAX;
        if (unlike < least) {
            least = unlike;
            snprintf(nearest, size, "%.*s", (int)length, at);
        }
        at += length + 1;
    }
}
