/* SPDX-License-Identifier: MIT */
#include "gguf_reader.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const uint8_t *past(const struct read_file *file, const uint8_t *at, uint64_t n)
{
    uint64_t left = (uint64_t)(file->bytes + file->data_at - at);
    assert_true(n <= left);
    return at + n;
}

static uint64_t number(const struct read_file *file, const uint8_t **at, size_t width)
{
    uint64_t value = 0;
    const uint8_t *end = past(file, *at, width);
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)(*at)[i] << (8 * i);
    *at = end;
    return value;
}

const uint8_t *gguf_string(const struct read_file *file, const uint8_t *at, char text[256])
{
    uint64_t length = number(file, &at, 8);
    const uint8_t *end = past(file, at, length);
    assert_true(length < 256);
    memcpy(text, at, length);
    text[length] = '\0';
    return end;
}

/* The widths of values: u8 i8 u16 i16 u32 i32 f32 bool, string, array, u64 i64 f64. */
static const uint8_t *skip_value(const struct read_file *file, const uint8_t *at, uint32_t type)
{
    static const uint8_t width[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char text[256];
    assert_true(type < sizeof width);
    return type == 8 ? gguf_string(file, at, text) : past(file, at, width[type]);
}

static const uint8_t *read_pair(struct read_file *file, const uint8_t *at)
{
    struct read_pair *pair = &file->pairs[file->n_pairs++];
    char key[256];
    at = gguf_string(file, at, key);
    assert_true(strlen(key) < sizeof pair->key);
    strcpy(pair->key, key);
    pair->type = (uint32_t)number(file, &at, 4);
    if (pair->type == 9) {
        pair->item_type = (uint32_t)number(file, &at, 4);
        pair->n_items = number(file, &at, 8);
    }
    pair->value = at;
    uint64_t n = pair->type == 9 ? pair->n_items : 1;
    for (uint64_t i = 0; i < n; i++)
        at = skip_value(file, at, pair->type == 9 ? pair->item_type : pair->type);
    return at;
}

/* Elements and bytes of a block, from the description of each type. */
static uint64_t bytes_of(uint32_t type, uint64_t elements, uint64_t row)
{
    static const struct {
        uint32_t type, elements, bytes;
    } blocks[] = {
        {0, 1, 4},               /* f32 */
        {1, 1, 2},               /* f16 */
        {30, 1, 2},              /* bf16 */
        {2, 32, 2 + 16},         /* q4_0: scale, 32 nibbles */
        {6, 32, 2 + 4 + 16},     /* q5_0: scale, 32 high bits, 32 nibbles */
        {8, 32, 2 + 32},         /* q8_0: scale, 32 bytes */
        {12, 256, 4 + 12 + 128}, /* q4_k: two scales, 16 scales of 6 bits, 256 nibbles */
        {14, 256, 2 + 16 + 192}, /* q6_k: scale, 16 scales, 256 times 6 bits */
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i].type != type)
            continue;
        assert_int_equal(row % blocks[i].elements, 0);
        return elements / blocks[i].elements * blocks[i].bytes;
    }
    fail_msg("unexpected tensor type %u", type);
    return 0;
}

static const uint8_t *read_tensor(struct read_file *file, const uint8_t *at)
{
    struct read_tensor *tensor = &file->tensors[file->n_tensors++];
    char name[256];
    at = gguf_string(file, at, name);
    assert_true(strlen(name) < 64);
    strcpy(tensor->name, name);
    tensor->n_dims = (uint32_t)number(file, &at, 4);
    assert_in_range(tensor->n_dims, 1, 4);
    tensor->elements = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        tensor->dims[i] = number(file, &at, 8);
        tensor->elements *= tensor->dims[i];
    }
    tensor->type = (uint32_t)number(file, &at, 4);
    tensor->offset = number(file, &at, 8);
    tensor->bytes = bytes_of(tensor->type, tensor->elements, tensor->dims[0]);
    return at;
}

void gguf_open(struct read_file *file, const char *path, uint64_t header_bytes)
{
    struct stat status;
    *file = (struct read_file){.data_at = header_bytes, .bytes = malloc(header_bytes)};
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fread(file->bytes, 1, header_bytes, stream), header_bytes);
    assert_int_equal(fstat(fileno(stream), &status), 0);
    fclose(stream);
    file->file_bytes = (uint64_t)status.st_size;

    const uint8_t *at = file->bytes + 4;
    assert_memory_equal(file->bytes, "GGUF", 4);
    assert_int_equal(number(file, &at, 4), 3);
    uint64_t n_tensors = number(file, &at, 8), n_pairs = number(file, &at, 8);
    assert_true(n_pairs <= sizeof file->pairs / sizeof *file->pairs);
    while (file->n_pairs < n_pairs)
        at = read_pair(file, at);
    file->tensors = calloc(n_tensors, sizeof *file->tensors);
    while (file->n_tensors < n_tensors)
        at = read_tensor(file, at);
    uint64_t used = (uint64_t)(at - file->bytes);
    assert_int_equal((used + 31) / 32 * 32, header_bytes);
}

void gguf_close(struct read_file *file)
{
    free(file->bytes);
    free(file->tensors);
}

const struct read_pair *gguf_pair(const struct read_file *file, const char *key)
{
    for (size_t i = 0; i < file->n_pairs; i++)
        if (strcmp(file->pairs[i].key, key) == 0)
            return &file->pairs[i];
    fail_msg("no pair %s", key);
    return NULL;
}

uint32_t gguf_u32(const struct read_file *file, const char *key)
{
    const struct read_pair *pair = gguf_pair(file, key);
    const uint8_t *at = pair->value;
    assert_int_equal(pair->type, 4);
    return (uint32_t)number(file, &at, 4);
}

float gguf_f32(const struct read_file *file, const char *key)
{
    const struct read_pair *pair = gguf_pair(file, key);
    float value;
    assert_int_equal(pair->type, 6);
    memcpy(&value, pair->value, sizeof value);
    return value;
}

const struct read_tensor *gguf_tensor(const struct read_file *file, const char *name)
{
    for (size_t i = 0; i < file->n_tensors; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}
