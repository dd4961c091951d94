/* SPDX-License-Identifier: MIT */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

void image_init(struct image *image)
{
    memset(image, 0, sizeof *image);
    image->version = 3;
    image->alignment = 32;
    mt_strbuf_init(&image->pairs);
    mt_strbuf_init(&image->tensors);
    mt_strbuf_init(&image->file);
}

void image_finish(struct image *image)
{
    mt_strbuf_finish(&image->pairs);
    mt_strbuf_finish(&image->tensors);
    mt_strbuf_finish(&image->file);
}

void image_number(struct image *image, struct mt_strbuf *to, uint64_t value, size_t width)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[image->big_endian ? width - 1 - i : i] = (uint8_t)(value >> (8 * i));
    mt_strbuf_append(to, bytes, width);
}

void image_text(struct image *image, struct mt_strbuf *to, const char *text)
{
    image_number(image, to, strlen(text), 8);
    mt_strbuf_puts(to, text);
}

void image_key(struct image *image, const char *key, uint32_t type)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", *key == '.' ? image->architecture : "", key);
    image_text(image, &image->pairs, full);
    image_number(image, &image->pairs, type, 4);
    image->n_pairs++;
}

void image_u32(struct image *image, const char *key, uint32_t value)
{
    image_key(image, key, IMAGE_U32);
    image_number(image, &image->pairs, value, 4);
}

void image_u16(struct image *image, const char *key, uint16_t value)
{
    image_key(image, key, IMAGE_U16);
    image_number(image, &image->pairs, value, 2);
}

void image_i32(struct image *image, const char *key, int32_t value)
{
    image_key(image, key, IMAGE_I32);
    image_number(image, &image->pairs, (uint32_t)value, 4);
}

void image_string(struct image *image, const char *key, const char *value)
{
    image_key(image, key, IMAGE_STRING);
    image_text(image, &image->pairs, value);
}

static void array(struct image *image, const char *key, uint32_t type, size_t n)
{
    image_key(image, key, IMAGE_ARRAY);
    image_number(image, &image->pairs, type, 4);
    image_number(image, &image->pairs, n, 8);
}

void image_u32_array(struct image *image, const char *key, size_t n, const uint32_t *values)
{
    array(image, key, IMAGE_U32, n);
    for (size_t i = 0; i < n; i++)
        image_number(image, &image->pairs, values[i], 4);
}

void image_bool_array(struct image *image, const char *key, size_t n, const uint8_t *values)
{
    array(image, key, IMAGE_BOOL, n);
    mt_strbuf_append(&image->pairs, values, n);
}

void image_architecture(struct image *image, const char *name)
{
    image->architecture = name;
    image_string(image, "general.architecture", name);
}

void image_tensor_at(struct image *image, const char *name, uint32_t type, uint64_t offset,
                     uint32_t n_dims, const uint64_t *dims)
{
    image_text(image, &image->tensors, name);
    image_number(image, &image->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        image_number(image, &image->tensors, dims[i], 8);
    image_number(image, &image->tensors, type, 4);
    image_number(image, &image->tensors, offset, 8);
    image->n_tensors++;
}

void image_tensor(struct image *image, const char *name, uint32_t type, uint64_t bytes,
                  const uint64_t dims[4])
{
    uint32_t n_dims = 0;
    while (n_dims < 4 && dims[n_dims] != 0)
        n_dims++;
    image_tensor_at(image, name, type, image->next_offset, n_dims, dims);
    image->next_offset += (bytes + image->alignment - 1) / image->alignment * image->alignment;
}

void image_f16(struct image *image, const char *name, uint64_t row, uint64_t rows)
{
    image_tensor(image, name, 1, 2 * row * rows, (const uint64_t[4]){row, rows});
}

void image_seal(struct image *image)
{
    mt_strbuf_finish(&image->file);
    mt_strbuf_init(&image->file);
    mt_strbuf_puts(&image->file, "GGUF");
    image_number(image, &image->file, image->version, 4);
    image_number(image, &image->file, image->n_tensors, 8);
    image_number(image, &image->file, image->n_pairs, 8);
    mt_strbuf_append(&image->file, image->pairs.data, image->pairs.length);
    mt_strbuf_append(&image->file, image->tensors.data, image->tensors.length);
    while (image->file.length % image->alignment != 0)
        mt_strbuf_append(&image->file, "", 1);
    assert_false(mt_strbuf_failed(&image->file));
}

struct memory_file image_file(const struct image *image, const char *path)
{
    return (struct memory_file){.path = path,
                                .bytes = (const uint8_t *)image->file.data,
                                .length = image->file.length,
                                .size_bytes = image->file.length + image->next_offset};
}

int image_open(const struct image *image, struct mt_model **model, struct mt_error *error)
{
    const struct memory_file files[] = {image_file(image, "model.gguf"), {0}};
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    memory_files_table(&memory, &table);
    int code = mt_model_open("model.gguf", &table, model, error);
    assert_int_equal(memory.open_sources, 0);
    return code;
}
