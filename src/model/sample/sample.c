/* SPDX-License-Identifier: MIT */
/* Sample models: from a shape to a GGUF file. First everything is laid out and the header made in
 * memory, then the file is written front to back through one buffer. */
#include "sample.h"

#include "base/error.h"
#include "model/convert/convert.h"
#include "model/gguf/metadata.h"
#include "model/gguf/vocabulary.h"
#include "random_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BUFFER_BYTES (1024 * 1024)

struct layout {
    struct mt_model_shape shape;
    struct mt_tensor_list tensors;
    struct mt_gguf_header header;
    struct mt_sample_facts facts;
};

static void layout_finish(struct layout *layout)
{
    mt_tensor_list_finish(&layout->tensors);
    mt_gguf_finish(&layout->header);
}

#define LAYOUT __attribute__((cleanup(layout_finish))) struct layout

const char *mt_weight_type_name(enum mt_weight_type type)
{
    switch (type) {
#define CASE(NAME, number, name)                                                                   \
    case MT_WEIGHT_##NAME:                                                                         \
        return name;
        MT_WEIGHT_TYPE_LIST(CASE)
#undef CASE
    }
    return "?";
}

int mt_weight_type_by_name(const char *name, enum mt_weight_type *type)
{
    static const enum mt_weight_type known[] = {
#define ROW(NAME, number, name) MT_WEIGHT_##NAME,
        MT_WEIGHT_TYPE_LIST(ROW)
#undef ROW
    };
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++) {
        if (strcasecmp(mt_weight_type_name(known[i]), name) == 0) {
            *type = known[i];
            return 0;
        }
    }
    return MT_ENOTFOUND;
}

static int check_options(const struct mt_sample_options *options, struct mt_error *error)
{
    if (strcmp(mt_weight_type_name(options->type), "?") == 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no weight type has the number %d",
                       (int)options->type);
    if (options->mode != MT_SAMPLE_RANDOM && options->mode != MT_SAMPLE_SPARSE)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no sample mode has the number %d",
                       (int)options->mode);
    return 0;
}

/* Those whose tensors can be filled at random, too. */
static int find_mixture(const char *name, enum mt_file_type *type, struct mt_error *error)
{
    if (mt_file_type_by_name(name, type) == 0 &&
        (*type == MT_FILE_Q4_K_S || *type == MT_FILE_Q4_K_M || *type == MT_FILE_Q5_K_M))
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "%.40s is no mixture that a sample can have; q4_k_s, q4_k_m and q5_k_m are",
                   name);
}

static int make_header(struct layout *layout, const struct mt_architecture *architecture,
                       uint64_t type, struct mt_error *error)
{
    mt_gguf_init(&layout->header);
    mt_metadata_put(&layout->header, &layout->shape, architecture, type);
    mt_vocabulary_put(&layout->header, layout->shape.vocabulary);
    for (size_t i = 0; i < layout->tensors.n; i++)
        mt_gguf_tensor(&layout->header, &layout->tensors.items[i]);
    if (mt_gguf_seal(&layout->header))
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for the header of the model");
    return 0;
}

static int fill_facts(struct layout *layout, struct mt_error *error)
{
    uint64_t header_bytes = layout->header.bytes.length, file_bytes;
    if (__builtin_add_overflow(header_bytes, layout->tensors.data_bytes, &file_bytes) ||
        file_bytes > INT64_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the model is larger than a file can be");
    layout->facts = (struct mt_sample_facts){.parameters = layout->tensors.elements,
                                             .n_tensors = layout->tensors.n,
                                             .tensor_bytes = layout->tensors.bytes,
                                             .header_bytes = header_bytes,
                                             .file_bytes = file_bytes};
    return 0;
}

/* Fills a zeroed layout; the caller finishes it whatever the result. */
static int lay_out(struct layout *layout, const struct mt_model_shape *shape,
                   const struct mt_sample_options *options, struct mt_error *error)
{
    const struct mt_architecture *architecture;
    int code = check_options(options, error);
    if (!code)
        code = mt_model_shape_complete(shape, &layout->shape, &architecture, error);
    if (!code)
        code = mt_model_tensors(&layout->shape, architecture,
                                mt_ggml_type_by_number((uint32_t)options->type), &layout->tensors,
                                error);
    enum mt_file_type mixture = MT_FILE_F16;
    if (!code && options->mixture)
        code = find_mixture(options->mixture, &mixture, error);
    if (!code && options->mixture)
        code = mt_sample_mix(&layout->shape, architecture, mixture, &layout->tensors, error);
    if (!code)
        code = make_header(layout, architecture,
                           options->mixture ? mt_convert_file_type(mixture)
                                            : mt_metadata_file_type(options->type),
                           error);
    if (!code)
        code = fill_facts(layout, error);
    return code;
}

int mt_sample_model_plan(const struct mt_model_shape *shape,
                         const struct mt_sample_options *options, struct mt_sample_facts *facts,
                         struct mt_error *error)
{
    LAYOUT layout = {0};
    int code = lay_out(&layout, shape, options, error);
    if (!code)
        *facts = layout.facts;
    return code;
}

/* What is at work while weights are written. */
struct weights {
    struct mt_out_file *file;
    const struct layout *layout;
    const struct mt_sample_options *options;
    uint8_t *buffer; /* BUFFER_BYTES */
    struct mt_random_blocks blocks;
    uint64_t done_bytes;
};

static int report(const struct mt_sample_options *options, double share, struct mt_error *error)
{
    if (options->progress && options->progress(options->progress_argument, share) != 0)
        return mt_fail(error, MT_ECANCELLED, MT_NO_OFFSET, "the model was not finished");
    return 0;
}

static int put(struct weights *weights, size_t length, struct mt_error *error)
{
    int code = mt_out_file_write(weights->file, weights->buffer, length, error);
    if (code)
        return code;
    weights->done_bytes += length;
    double share = (double)weights->done_bytes / (double)weights->layout->tensors.data_bytes;
    return report(weights->options, share < 1 ? share : 1, error);
}

static int put_padding(struct weights *weights, const struct mt_tensor *tensor,
                       struct mt_error *error)
{
    uint64_t over = tensor->bytes % MT_TENSOR_ALIGNMENT;
    if (over == 0)
        return 0;
    memset(weights->buffer, 0, MT_TENSOR_ALIGNMENT);
    return put(weights, (size_t)(MT_TENSOR_ALIGNMENT - over), error);
}

/* Llama 3.1 divides frequencies whose wave is longer than the old context by the factor, leaves
 * those of a quarter of it and shorter alone, and goes smoothly between. */
static float rope_divisor(const struct mt_model_shape *shape, uint64_t i)
{
    const double old_context = 8192, low = 1, high = 4;
    double exponent = 2.0 * (double)i / (double)shape->head_size;
    double wave = 2 * M_PI * pow(shape->rope_freq_base, exponent);
    double smooth = (old_context / wave - low) / (high - low);
    if (smooth >= 1)
        return 1;
    if (smooth <= 0)
        return (float)shape->rope_llama3_factor;
    return (float)(1 / ((1 - smooth) / shape->rope_llama3_factor + smooth));
}

static int put_rope_divisors(struct weights *weights, const struct mt_tensor *tensor,
                             struct mt_error *error)
{
    for (uint64_t i = 0; i < tensor->dims[0]; i++) {
        float divisor = rope_divisor(&weights->layout->shape, i);
        memcpy(weights->buffer + i * sizeof divisor, &divisor, sizeof divisor);
    }
    return put(weights, (size_t)tensor->bytes, error);
}

static int prepare_blocks(struct weights *weights, const struct mt_tensor *tensor, size_t index)
{
    if (tensor->fill == MT_FILL_RANDOM)
        return mt_random_blocks_init(&weights->blocks, tensor->type,
                                     1 / sqrt((double)tensor->dims[0]), weights->options->seed,
                                     index);
    mt_random_blocks_init_constant(&weights->blocks, tensor->fill == MT_FILL_ONES ? 1 : 0);
    return 0;
}

static int put_blocks(struct weights *weights, const struct mt_tensor *tensor, size_t index,
                      struct mt_error *error)
{
    uint64_t block_bytes = tensor->type->block_bytes;
    uint64_t at_once = BUFFER_BYTES / block_bytes / 4 * 4;
    uint64_t left = tensor->bytes / block_bytes;
    int code = prepare_blocks(weights, tensor, index);
    if (code)
        return mt_fail(error, code, MT_NO_OFFSET, "no random weights of type %s",
                       tensor->type->name);
    while (left > 0 && !code) {
        uint64_t n = left < at_once ? left : at_once;
        mt_random_blocks_fill(&weights->blocks, weights->buffer, (size_t)n);
        code = put(weights, (size_t)(n * block_bytes), error);
        left -= n;
    }
    return code;
}

static int put_tensors(struct weights *weights, struct mt_error *error)
{
    const struct mt_tensor_list *tensors = &weights->layout->tensors;
    int code = 0;
    for (size_t i = 0; i < tensors->n && !code; i++) {
        const struct mt_tensor *tensor = &tensors->items[i];
        if (tensor->fill == MT_FILL_ROPE_FACTORS)
            code = put_rope_divisors(weights, tensor, error);
        else
            code = put_blocks(weights, tensor, i, error);
        if (!code)
            code = put_padding(weights, tensor, error);
    }
    return code;
}

static int put_random_weights(struct mt_out_file *file, const struct layout *layout,
                              const struct mt_sample_options *options, struct mt_error *error)
{
    struct weights *weights = calloc(1, sizeof *weights);
    uint8_t *buffer = malloc(BUFFER_BYTES);
    int code;
    if (weights && buffer) {
        *weights = (struct weights){file, layout, options, buffer};
        code = put_tensors(weights, error);
    } else {
        code = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for the write buffer");
    }
    free(buffer);
    free(weights);
    return code;
}

static int put_all(struct mt_out_file *file, const struct layout *layout,
                   const struct mt_sample_options *options, struct mt_error *error)
{
    const struct mt_strbuf *header = &layout->header.bytes;
    int sparse = options->mode == MT_SAMPLE_SPARSE;
    uint64_t needed = sparse ? header->length : layout->facts.file_bytes;
    int code = mt_out_file_check_room(file, needed, error);
    if (!code)
        code = mt_out_file_write(file, header->data, header->length, error);
    if (!code)
        code = report(options, 0, error);
    if (!code)
        code = sparse ? mt_out_file_extend(file, layout->facts.file_bytes, error)
                      : put_random_weights(file, layout, options, error);
    return code ? code : report(options, 1, error);
}

int mt_sample_model_write_with(const struct mt_out_file_os *os, const char *path,
                               const struct mt_model_shape *shape,
                               const struct mt_sample_options *options,
                               struct mt_sample_facts *facts, struct mt_error *error)
{
    LAYOUT layout = {0};
    struct mt_out_file file;
    int code = lay_out(&layout, shape, options, error);
    if (!code)
        code = mt_out_file_begin(&file, os, path, error);
    if (code)
        return code;
    code = put_all(&file, &layout, options, error);
    if (code) {
        mt_out_file_discard(&file);
        return code;
    }
    code = mt_out_file_commit(&file, error);
    if (!code && facts)
        *facts = layout.facts;
    return code;
}

int mt_sample_model_write(const char *path, const struct mt_model_shape *shape,
                          const struct mt_sample_options *options, struct mt_sample_facts *facts,
                          struct mt_error *error)
{
    return mt_sample_model_write_with(&mt_out_file_os, path, shape, options, facts, error);
}
