/* SPDX-License-Identifier: MIT */
/* Reads a GGUF file for tests, written from the format's description and from nothing else of this
 * tree. Anything against the grammar fails the running test. */
#ifndef MT_TESTS_GGUF_READER_H
#define MT_TESTS_GGUF_READER_H

#include <stddef.h>
#include <stdint.h>

struct read_tensor {
    char name[65];
    uint32_t n_dims;
    uint64_t dims[4];
    uint32_t type;
    uint64_t offset; /* from the start of the data */
    uint64_t elements;
    uint64_t bytes;
};

struct read_pair {
    char key[65];
    uint32_t type;
    uint32_t item_type;   /* of an array */
    uint64_t n_items;     /* of an array */
    const uint8_t *value; /* of an array: its first item */
};

struct read_file {
    uint8_t *bytes; /* the header, the data are left in the file */
    uint64_t file_bytes;
    uint64_t data_at;
    size_t n_pairs, n_tensors;
    struct read_pair pairs[80];
    struct read_tensor *tensors;
};

void gguf_open(struct read_file *file, const char *path, uint64_t header_bytes);
void gguf_close(struct read_file *file);

const struct read_pair *gguf_pair(const struct read_file *file, const char *key);
uint32_t gguf_u32(const struct read_file *file, const char *key);
float gguf_f32(const struct read_file *file, const char *key);
const struct read_tensor *gguf_tensor(const struct read_file *file, const char *name);

/* Copies the string at `at` into text[256] and returns the byte past it. */
const uint8_t *gguf_string(const struct read_file *file, const uint8_t *at, char text[256]);

#endif
