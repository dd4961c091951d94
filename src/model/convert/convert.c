/* SPDX-License-Identifier: MIT */
/* Making the header of a GGUF file from a config.json: the family, its tensors in the order of
 * llama.cpp's quantiser, their types and places, the keys. Knows the tables' grammar, no family. */
#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "model/gguf/vocabulary.h"

#define LAYERS_MAX     512 /* that llama.cpp takes */
#define EXPERTS_MAX    1024
#define VOCABULARY_MAX (UINT64_C(1) << 20) /* four times the largest published */

static int fail(const struct mt_convert *convert, int code, const char *what)
{
    return mt_fail(convert->error, code, MT_NO_OFFSET, "%s: %s", convert->description->path, what);
}

/* An expression of the tables. The tables are right, so that it is the model's numbers that make no
 * sense where it fails. */
static int evaluate(const struct mt_convert *convert, const char *text, uint64_t *result,
                    const char **end)
{
    int code = mt_convert_evaluate(text, convert->values, result, end);
    if (!code)
        return 0;
    return mt_fail(convert->error, code, MT_NO_OFFSET,
                   "%s: its numbers make no model of the family %s: '%s'",
                   convert->description->path, mt_arch_name(convert->family->arch), text);
}

static int holds(const struct mt_convert *convert, const char *when)
{
    uint64_t result = 0;
    return mt_convert_evaluate(when, convert->values, &result, NULL) == 0 && result;
}

/* The numbers of the model do not depend on the row that is chosen, but for the share that turns.
 */
static int find_family(struct mt_convert *convert)
{
    const char *name = convert->description->architecture;
    enum mt_arch arch = mt_arch_of(name);
    for (const struct mt_convert_family *at = mt_convert_families;
         at->described_as != MT_ARCH_UNKNOWN; at++) {
        if (at->described_as != arch || !convert->description->family_known)
            continue;
        convert->family = at;
        mt_convert_set_model(convert);
        if (holds(convert, at->when))
            return 0;
    }
    return mt_fail(convert->error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "%s: models of the family \"%.60s\" are not converted; take a GGUF file of the "
                   "model, of which the header is enough (--remote)",
                   convert->description->path, name ? name : "?");
}

static int check_limits(const struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    if (d->n_layers > LAYERS_MAX)
        return fail(convert, MT_ELIMIT, "it has more layers than llama.cpp takes, which is 512");
    if (d->experts > EXPERTS_MAX)
        return fail(convert, MT_ELIMIT, "it has more experts than llama.cpp takes, which is 1024");
    if (d->vocabulary == 0 || d->vocabulary > VOCABULARY_MAX)
        return fail(convert, d->vocabulary ? MT_ELIMIT : MT_EFORMAT,
                    "its vocabulary should have 1 to 2^20 tokens");
    return 0;
}

/* Draft layers come last, so that a family that has no use for them simply has fewer. */
static uint64_t n_layers(const struct mt_convert *convert)
{
    const struct mt_model_description *d = convert->description;
    return convert->family->keeps_drafts ? d->n_layers : d->n_layers - d->n_draft_layers;
}

static int reserve_one(struct mt_convert *convert)
{
    if (mt_array_reserve(convert->tensors, convert->n_tensors, convert->capacity, 256) < 0)
        return fail(convert, MT_ENOMEM, "out of memory for its tensors");
    return 0;
}

static int read_dims(const struct mt_convert *convert, const char *text, struct mt_tensor *tensor)
{
    const char *at = text;
    for (;;) {
        int code = evaluate(convert, at, &tensor->dims[tensor->n_dims++], &at);
        if (code || *at != ',')
            return code;
        at++;
    }
}

/* The name within its layer; the layer is put before it when all are in order. */
static int add_tensor(struct mt_convert *convert, const struct mt_convert_tensor *row,
                      uint64_t layer)
{
    struct mt_tensor tensor = {.layer = row->name[0] == '.' ? layer + 1 : 0};
    uint64_t wanted = 0;
    int code = evaluate(convert, row->when, &wanted, NULL);
    if (code || !wanted)
        return code;
    code = read_dims(convert, row->dims, &tensor);
    if (!code)
        code = reserve_one(convert);
    if (code)
        return code;
    if (tensor.layer)
        snprintf(tensor.name, sizeof tensor.name, "blk.%llu%s", (unsigned long long)layer,
                 row->name);
    else
        snprintf(tensor.name, sizeof tensor.name, "%s", row->name);
    convert->tensors[convert->n_tensors++] = tensor;
    return 0;
}

/* Whether `word` is one of the words of a list with blanks between. */
static int has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return 1;
    return 0;
}

/* The rows of the family that are of layers, or those that are not. */
static int add_rows(struct mt_convert *convert, int of_layers, uint64_t layer)
{
    int code = 0;
    for (const struct mt_convert_tensor *row = mt_convert_tensors; row->block && !code; row++)
        if ((row->name[0] == '.') == of_layers && has_word(convert->family->tensors, row->block))
            code = add_tensor(convert, row, layer);
    return code;
}

static int add_all(struct mt_convert *convert)
{
    mt_convert_set_layer(convert, 0);
    int code = add_rows(convert, 0, 0);
    for (uint64_t i = 0; i < n_layers(convert) && !code; i++) {
        mt_convert_set_layer(convert, i);
        code = add_rows(convert, 1, i);
    }
    return code;
}

/* As llama.cpp's quantiser sorts them: by layer, then by name. */
static int in_order(const void *left, const void *right)
{
    const struct mt_tensor *a = left;
    const struct mt_tensor *b = right;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int place_all(struct mt_convert *convert, struct mt_tensor_list *list)
{
    for (size_t i = 0; i < convert->n_tensors; i++) {
        int code = mt_tensor_list_add(list, &convert->tensors[i]);
        if (code == MT_EARG)
            return mt_fail(convert->error, MT_EFORMAT, MT_NO_OFFSET,
                           "%s: its numbers give the tensor %s no size", convert->description->path,
                           convert->tensors[i].name);
        if (code)
            return fail(convert, code,
                        code == MT_ENOMEM ? "out of memory for its tensors"
                                          : "its tensors are larger than a file can be");
    }
    return 0;
}

/* llama.cpp knows the makers' vocabulary of Phi-3 by the model's name, and asks for its tokens. */
static int may_be_named(const struct mt_convert *convert)
{
    return !mt_is_of_lineage(mt_arch_name(convert->family->arch), MT_LINEAGE_PHI);
}

static void put_general(const struct mt_convert *convert, struct mt_gguf_header *header)
{
    const char *name = convert->description->name;
    mt_gguf_string(header, "general.architecture", mt_arch_name(convert->family->arch));
    mt_gguf_string(header, "general.type", "model");
    if (may_be_named(convert))
        mt_gguf_string(header, "general.name", name ? name : convert->description->architecture);
    mt_gguf_u32(header, "general.file_type", mt_convert_file_type(convert->type));
    mt_gguf_u32(header, "general.quantization_version", 2);
    mt_gguf_u32(header, "general.alignment", MT_TENSOR_ALIGNMENT);
}

static void put_vocabulary(const struct mt_convert *convert, struct mt_gguf_header *header)
{
    uint64_t types = convert->values[MT_V_types];
    if (convert->description->is_embedder)
        mt_gguf_u32(header, "tokenizer.ggml.token_type_count", types ? types : 1);
    if (convert->drop_vocabulary || convert->description->vocabulary < MT_MODEL_VOCABULARY_MIN)
        mt_gguf_string(header, "tokenizer.ggml.model", "no_vocab");
    else
        mt_vocabulary_put(header, convert->description->vocabulary);
}

static int make_header(struct mt_convert *convert, const struct mt_tensor_list *list,
                       struct mt_gguf_header *header)
{
    put_general(convert, header);
    int code = mt_convert_put_keys(convert, header);
    if (code)
        return code;
    put_vocabulary(convert, header);
    for (size_t i = 0; i < list->n; i++)
        mt_gguf_tensor(header, &list->items[i]);
    if (mt_gguf_seal(header))
        return fail(convert, MT_ENOMEM, "out of memory for its header");
    return 0;
}

static int write_header(const struct mt_convert *convert, const struct mt_gguf_header *header,
                        uint64_t data_bytes, struct mt_out_file *file)
{
    uint64_t bytes;
    if (__builtin_add_overflow(header->bytes.length, data_bytes, &bytes) || bytes > INT64_MAX)
        return fail(convert, MT_ELIMIT, "it is larger than a file can be");
    int code = mt_out_file_check_room(file, header->bytes.length, convert->error);
    if (!code)
        code = mt_out_file_write(file, header->bytes.data, header->bytes.length, convert->error);
    return code ? code : mt_out_file_extend(file, bytes, convert->error);
}

static int make_and_write(struct mt_convert *convert, struct mt_out_file *file)
{
    struct mt_tensor_list list = {0};
    struct mt_gguf_header header;
    mt_gguf_init(&header);
    int code = add_all(convert);
    if (!code && convert->n_tensors)
        qsort(convert->tensors, convert->n_tensors, sizeof *convert->tensors, in_order);
    if (!code)
        mt_convert_choose_types(convert);
    if (!code)
        code = place_all(convert, &list);
    if (!code)
        code = make_header(convert, &list, &header);
    if (!code)
        code = write_header(convert, &header, list.data_bytes, file);
    mt_gguf_finish(&header);
    mt_tensor_list_finish(&list);
    return code;
}

int mt_convert_sparse(const struct mt_model *model, const struct mt_sparse_options *options,
                      struct mt_out_file *file, struct mt_error *error)
{
    struct mt_convert *convert = calloc(1, sizeof *convert);
    if (!convert)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory to convert a model");
    *convert = (struct mt_convert){.description = &model->description,
                                   .config = model->config,
                                   .type = options->type,
                                   .drop_vocabulary = options->drop_vocabulary,
                                   .error = error};
    int code = model->config ? 0
                             : fail(convert, MT_EUNSUPPORTED,
                                    "there is no config.json beside it, which a conversion needs");
    if (!code)
        code = find_family(convert);
    if (!code)
        code = check_limits(convert);
    if (!code) {
        convert->values[MT_V_layers] = n_layers(convert);
        convert->values[MT_V_drafts] =
            n_layers(convert) - (model->description.n_layers - model->description.n_draft_layers);
        code = make_and_write(convert, file);
    }
    free(convert->tensors);
    free(convert);
    return code;
}
