/* SPDX-License-Identifier: MIT */
/* Key and value pairs and tensor descriptions as bytes. Knows the grammar, not what models are. */
#include "write.h"

#include <memtally/error_code.h>
#include <string.h>

#define VERSION   3
#define COUNTS_AT 8 /* where n_tensors and n_pairs stand */

static void raw(struct mt_gguf_header *header, const void *bytes, size_t length)
{
    mt_strbuf_append(&header->bytes, bytes, length);
}

/* Little-endian whatever the machine. */
static void number(struct mt_gguf_header *header, uint64_t value, size_t width)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    raw(header, bytes, width);
}

static void pair(struct mt_gguf_header *header, const char *key, enum mt_gguf_type type)
{
    mt_gguf_string_value(header, key);
    number(header, type, 4);
    header->n_pairs++;
}

void mt_gguf_init(struct mt_gguf_header *header)
{
    *header = (struct mt_gguf_header){0};
    mt_strbuf_init(&header->bytes);
    raw(header, "GGUF", 4);
    number(header, VERSION, 4);
    number(header, 0, 8);
    number(header, 0, 8);
}

void mt_gguf_finish(struct mt_gguf_header *header)
{
    mt_strbuf_finish(&header->bytes);
}

void mt_gguf_u32(struct mt_gguf_header *header, const char *key, uint64_t value)
{
    pair(header, key, MT_GGUF_U32);
    number(header, value, 4);
}

void mt_gguf_f32(struct mt_gguf_header *header, const char *key, double value)
{
    pair(header, key, MT_GGUF_F32);
    mt_gguf_f32_value(header, (float)value);
}

void mt_gguf_bool(struct mt_gguf_header *header, const char *key, int value)
{
    pair(header, key, MT_GGUF_BOOL);
    number(header, value != 0, 1);
}

void mt_gguf_string(struct mt_gguf_header *header, const char *key, const char *value)
{
    pair(header, key, MT_GGUF_STRING);
    mt_gguf_string_value(header, value);
}

void mt_gguf_array(struct mt_gguf_header *header, const char *key, enum mt_gguf_type type,
                   uint64_t n)
{
    pair(header, key, MT_GGUF_ARRAY);
    number(header, type, 4);
    number(header, n, 8);
}

void mt_gguf_string_value(struct mt_gguf_header *header, const char *value)
{
    size_t length = strlen(value);
    number(header, length, 8);
    raw(header, value, length);
}

void mt_gguf_i32_value(struct mt_gguf_header *header, int32_t value)
{
    number(header, (uint32_t)value, 4);
}

void mt_gguf_bool_value(struct mt_gguf_header *header, int value)
{
    number(header, value != 0, 1);
}

void mt_gguf_f32_value(struct mt_gguf_header *header, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    number(header, bits, 4);
}

void mt_gguf_tensor(struct mt_gguf_header *header, const struct mt_tensor *tensor)
{
    mt_gguf_string_value(header, tensor->name);
    number(header, tensor->n_dims, 4);
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        number(header, tensor->dims[i], 8);
    number(header, tensor->type->number, 4);
    number(header, tensor->offset, 8);
    header->n_tensors++;
}

static void poke(char *at, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        at[i] = (char)(uint8_t)(value >> (8 * i));
}

int mt_gguf_seal(struct mt_gguf_header *header)
{
    static const char zeros[MT_TENSOR_ALIGNMENT];
    size_t over = header->bytes.length % MT_TENSOR_ALIGNMENT;
    if (over)
        raw(header, zeros, MT_TENSOR_ALIGNMENT - over);
    if (mt_strbuf_failed(&header->bytes))
        return MT_ENOMEM;
    poke(header->bytes.data + COUNTS_AT, header->n_tensors);
    poke(header->bytes.data + COUNTS_AT + 8, header->n_pairs);
    return 0;
}
