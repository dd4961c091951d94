/* SPDX-License-Identifier: MIT */
/* Model files in memory, for tests that want to say exactly what is in them. */
#ifndef MT_TESTS_MEMORY_FILES_H
#define MT_TESTS_MEMORY_FILES_H

#include <memtally/model_file.h>

/* A file of `size_bytes`, the first `length` of them given and the rest zeros, as of a hole. A list
 * of them ends in one without a path. */
struct memory_file {
    const char *path;
    const uint8_t *bytes;
    size_t length;
    uint64_t size_bytes;
};

struct memory_files {
    const struct memory_file *files;
    uint64_t step_bytes;      /* of the sources */
    unsigned reads;           /* so far */
    unsigned failing_read;    /* the n-th read fails with MT_EIO; 0: none does */
    uint64_t read_bytes;      /* so far */
    uint64_t most_read_bytes; /* a read beyond that fails with MT_ELIMIT; 0: none does */
    int open_sources;
};

/* Fills *table so that it opens the files of `memory`, which must live as long. */
void memory_files_table(struct memory_files *memory, struct mt_model_files *table);

#endif
