/* SPDX-License-Identifier: MIT */
/* Tables that python/memtally/watch leaves in a recording, KIND-PID.tsv: what layers of models hold
 * and what operators of PyTorch take. docs/FORMATS.md has the columns. */
#ifndef MT_PYTORCH_TORCH_TABLE_H
#define MT_PYTORCH_TORCH_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

#define MT_TORCH_TABLE_COLUMNS 14u

enum mt_torch_table_kind { MT_TORCH_TABLE_LAYERS, MT_TORCH_TABLE_OPERATIONS };

/* In the order of a file's fields. */
enum mt_torch_table_layer {
    MT_LAYER_ROOT,
    MT_LAYER_MODULE,
    MT_LAYER_CLASS,
    MT_LAYER_KIND,
    MT_LAYER_DEPTH,
    MT_LAYER_CALLS,
    MT_LAYER_WEIGHTS_HOST,
    MT_LAYER_WEIGHTS_DEVICE,
    MT_LAYER_CACHE_HOST,
    MT_LAYER_CACHE_DEVICE,
    MT_LAYER_FORWARD_HOST,
    MT_LAYER_FORWARD_DEVICE,
    MT_LAYER_BACKWARD_HOST,
    MT_LAYER_BACKWARD_DEVICE
};

enum mt_torch_table_operation {
    MT_OPERATION_NAME,
    MT_OPERATION_SHAPES,
    MT_OPERATION_COUNT,
    MT_OPERATION_OWN_HOST,
    MT_OPERATION_TOTAL_HOST,
    MT_OPERATION_OWN_DEVICE,
    MT_OPERATION_TOTAL_DEVICE
};

struct mt_torch_table_column {
    const char *key; /* "weights_host_bytes" */
    enum { MT_TORCH_TABLE_TEXT, MT_TORCH_TABLE_COUNT, MT_TORCH_TABLE_SIGNED } type;
};

struct mt_torch_table_row {
    uint32_t pid;
    const char *text[MT_TORCH_TABLE_COLUMNS]; /* borrowed from the table */
};

struct mt_torch_table {
    const struct mt_torch_table_column *columns;
    size_t n_columns;
    struct mt_torch_table_row
        *rows; /* by process; layers as they lie in the model, operations by bytes */
    size_t n_rows;
    size_t capacity;
    uint64_t n_skipped; /* lines and files that make no sense */
    char **files;
    size_t n_files;
};

/* Reads those of a recording's folder; a table without rows where there are none. Free it with
 * mt_torch_table_finish(). Errors: MT_ENOMEM. */
int mt_torch_table_read(const char *directory, enum mt_torch_table_kind kind,
                        struct mt_torch_table *told, struct mt_error *error);
void mt_torch_table_finish(struct mt_torch_table *told);

/* A cell's number; 0 where it is none or not known ("-"). */
int mt_torch_table_number(const struct mt_torch_table_row *row, size_t column, int64_t *number);

#endif
