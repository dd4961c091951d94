/* SPDX-License-Identifier: MIT */
/* A list of tensors that grows. Knows no file. */
#include "list.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

static const struct {
    const char *in_file;
    size_t in_file_length;
    const char *name;
    unsigned bits;
} types[] = {
#define X(NAME, in_file, name, bits) {in_file, sizeof in_file - 1, name, bits},
    MT_ST_TYPE_LIST(X)
#undef X
};

enum mt_st_type mt_st_type_find(const char *name, size_t length)
{
    size_t i = 0;
    while (i < MT_ST_TYPES &&
           (types[i].in_file_length != length || memcmp(types[i].in_file, name, length) != 0))
        i++;
    return (enum mt_st_type)i;
}

const char *mt_st_type_name(enum mt_st_type type)
{
    return types[type].name;
}

int mt_st_type_bytes(enum mt_st_type type, uint64_t elements, uint64_t *bytes)
{
    uint64_t bits;
    if (__builtin_mul_overflow(elements, types[type].bits, &bits) || bits > UINT64_MAX - 7)
        return MT_ELIMIT;
    *bytes = (bits + 7) / 8;
    return 0;
}

int mt_st_elements(const uint64_t *dims, size_t n_dims, uint64_t *elements)
{
    uint64_t product = 1;
    for (size_t i = 0; i < n_dims; i++) {
        if (__builtin_mul_overflow(product, dims[i], &product))
            return MT_ELIMIT;
    }
    *elements = product;
    return 0;
}

int mt_st_list_add(struct mt_st_list *list, const struct mt_st_tensor *tensor)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity + list->capacity / 2 : 256;
        struct mt_st_tensor *tensors = reallocarray(list->tensors, capacity, sizeof *list->tensors);
        if (!tensors)
            return MT_ENOMEM;
        list->tensors = tensors;
        list->capacity = capacity;
    }
    struct mt_model_tensor place;
    mt_tensor_role_of_hf(tensor->name, tensor->name_length, &place);
    list->tensors[list->n] = *tensor;
    list->tensors[list->n].layer = place.layer;
    list->tensors[list->n++].role = (uint8_t)place.role;
    return 0;
}

int mt_st_list_keep(struct mt_st_list *list, char *text)
{
    char **texts = reallocarray(list->texts, list->n_texts + 1, sizeof *texts);
    if (!texts) {
        free(text);
        return MT_ENOMEM;
    }
    list->texts = texts;
    texts[list->n_texts++] = text;
    return 0;
}

void mt_st_list_free(struct mt_st_list *list)
{
    if (!list)
        return;
    free(list->tensors);
    for (size_t i = 0; i < list->n_texts; i++)
        free(list->texts[i]);
    free(list->texts);
    mt_arena_finish(&list->arena);
    free(list);
}

static void finish(struct mt_model *model)
{
    mt_st_list_free(model->tensors);
    model->tensors = NULL;
}

static int tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    const struct mt_st_list *list = model->tensors;
    const struct mt_st_tensor *record = &list->tensors[index];
    memset(tensor, 0, sizeof *tensor);
    tensor->name = record->name;
    tensor->name_length = record->name_length;
    tensor->type_known = record->type < MT_ST_TYPES;
    tensor->type =
        tensor->type_known ? types[record->type].name : list->unknown[record->type - MT_ST_TYPES];
    tensor->n_dims = record->n_dims;
    for (unsigned i = 0; i < record->n_dims; i++)
        tensor->dims[i] = record->dims[record->n_dims - 1 - i];
    mt_st_elements(record->dims, record->n_dims, &tensor->elements);
    tensor->bytes = record->bytes;
    tensor->offset = record->offset;
    tensor->file = record->file;
    tensor->layer = record->layer;
    tensor->role = record->role;
    return 0;
}

void mt_st_list_give(struct mt_st_list *list, struct mt_model *model)
{
    model->tensors = list;
    model->tensor_at = tensor_at;
    model->finish = finish;
    model->description.n_tensors = list->n;
}
