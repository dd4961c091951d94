/* SPDX-License-Identifier: MIT */
/* GGUF files for tests, built from the format's description and not from the code that reads them:
 * in either byte order, of any version, valid or not. */
#ifndef MT_TESTS_GGUF_IMAGE_H
#define MT_TESTS_GGUF_IMAGE_H

#include "base/strbuf.h"
#include "tests/support/memory_files.h"

struct image {
    uint32_t version;
    int big_endian;
    uint64_t n_pairs;
    uint64_t n_tensors;
    struct mt_strbuf pairs;
    struct mt_strbuf tensors;
    struct mt_strbuf file; /* after image_seal() */
    uint64_t next_offset;  /* of the next tensor in the data */
    uint64_t alignment;
    const char *architecture; /* stands before keys that begin with a dot */
};

/* Numbers as they stand in a file of version 3. */
enum {
    IMAGE_U8,
    IMAGE_I8,
    IMAGE_U16,
    IMAGE_I16,
    IMAGE_U32,
    IMAGE_I32,
    IMAGE_F32,
    IMAGE_BOOL,
    IMAGE_STRING,
    IMAGE_ARRAY,
    IMAGE_U64
};

void image_init(struct image *image);
void image_finish(struct image *image);

/* Raw pieces, into the pairs. */
void image_number(struct image *image, struct mt_strbuf *to, uint64_t value, size_t width);
void image_text(struct image *image, struct mt_strbuf *to, const char *text);
/* The key and type of a pair, which is counted. */
void image_key(struct image *image, const char *key, uint32_t type);

void image_u32(struct image *image, const char *key, uint32_t value);
void image_u16(struct image *image, const char *key, uint16_t value);
void image_i32(struct image *image, const char *key, int32_t value);
void image_string(struct image *image, const char *key, const char *value);
void image_u32_array(struct image *image, const char *key, size_t n, const uint32_t *values);
void image_bool_array(struct image *image, const char *key, size_t n, const uint8_t *values);
/* general.architecture, and the name for keys that begin with a dot. */
void image_architecture(struct image *image, const char *name);

/* A tensor of up to four dimensions, 0 where there is none, of `bytes` in the data. */
void image_tensor(struct image *image, const char *name, uint32_t type, uint64_t bytes,
                  const uint64_t dims[4]);
void image_tensor_at(struct image *image, const char *name, uint32_t type, uint64_t offset,
                     uint32_t n_dims, const uint64_t *dims);
/* An f16 tensor of two dimensions. */
void image_f16(struct image *image, const char *name, uint64_t row, uint64_t rows);

/* Puts the header together, padded to the alignment. */
void image_seal(struct image *image);
/* The file in memory, with a hole for the data. `image` must be sealed and live as long. */
struct memory_file image_file(const struct image *image, const char *path);
/* Opens that file. */
int image_open(const struct image *image, struct mt_model **model, struct mt_error *error);

#endif
