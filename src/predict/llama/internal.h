/* SPDX-License-Identifier: MIT */
/* What the files of the llama.cpp predictor share among themselves; others need llama.h only. */
#ifndef MT_PREDICT_LLAMA_PARTS_H
#define MT_PREDICT_LLAMA_PARTS_H

#include <regex.h>

#include "llama.h"
#include "predict/graph/graph.h"

/* Larger sizes than this are a mistake; sums of them stay far from overflowing. */
#define MT_LLAMA_SANE_BYTES (UINT64_C(1) << 55)

/* Arithmetic that stays at UINT64_MAX instead of overflowing. */
static inline uint64_t mt_llama_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t mt_llama_times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* The next multiple of `step`, a power of two. */
static inline uint64_t mt_llama_padded(uint64_t n, uint64_t step)
{
    return n > UINT64_MAX - step ? UINT64_MAX : (n + step - 1) & ~(step - 1);
}

/* Whether a type of GGUF is a quantised one. */
int mt_llama_is_quantised(const char *type);

/* What the backend of a device allocates for a tensor of rows of `row_elements`: CUDA appends to a
 * quantised one what fills its last row up to 512 elements; then the start of the next tensor is
 * aligned. `bytes` is the tensor itself. */
uint64_t mt_llama_device_bytes(const char *type, uint64_t row_elements, uint64_t bytes);
uint64_t mt_llama_host_bytes(uint64_t bytes);

/* Whether flash attention runs on devices with the heads of every layer (settings.c). */
int mt_llama_flash_runs(const struct mt_engine *engine, const struct mt_model_description *d);

/* Copies into `nearest` the word of a key's value that is most like `word`; "" where the table has
 * none. */
void mt_llama_nearest(const struct mt_engine *engine, const char *key, const char *word,
                      char *nearest, size_t size);

/* Whether a key of the engine's table names the model's family. */
int mt_llama_family_in(const struct mt_predict_input *in, const char *key);

/* Whether the version computes sparse attention by keys of its own, as the model was made for. */
int mt_llama_indexes(const struct mt_predict_input *in);

/* Fills open settings and refuses what contradicts; see struct mt_predictor. */
int mt_llama_complete(const struct mt_model *model, const struct mt_engine *engine,
                      struct mt_predict_settings *settings, struct mt_error *error);

/* Whether the numbers of a model are such that its graph can be built. */
int mt_llama_is_regular(const struct mt_model_description *description);

/* Makes the plan. On success the caller calls mt_llama_plan_finish(). */
int mt_llama_plan_init(struct mt_llama_plan *plan, const struct mt_predict_input *in,
                       struct mt_error *error);
void mt_llama_plan_finish(struct mt_llama_plan *plan);

/* The command line of the engine, in the spelling of its version. */
void mt_llama_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet);

/* Whether a layer's attention is latent, in whichever form the file has it (latent.c). */
int mt_llama_is_latent(const struct mt_model_description *d, const struct mt_model_layer *layer);

/* The terms of weights that are made of a file's when it is loaded, for latent attention. */
int mt_llama_latent_weights(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                            struct mt_error *error);

/* The terms of recurrent layers' state, a part of mt_llama_cache(). */
int mt_llama_state(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                   struct mt_error *error);

/* What the devices keep for operations that they fuse, MT_KEEP_…; and what they may keep beside
 * that, where the table does not know of the version. */
unsigned mt_llama_keeps(const struct mt_llama_plan *plan, unsigned *perhaps);

/* Parts of the graph that changed at some build: as later builds have them. */
enum {
    MT_NEWER_INPUTS = 1, /* inputs that no operation reads are copied too */
    MT_NEWER_STATES = 2, /* the states of all sequences are gathered at once */
    MT_NEWER_MAMBA = 4,  /* Mamba-2's rows are projected before they are split by sequences */
    MT_NEWER_GATE = 8,   /* the gate of attention keeps its shape */
    MT_NEWER_MASK =
        16, /* flash attention's mask comes as 16 bits, before as 32 and was converted */
    MT_NEWER_PADDED = 64,     /* encoders pad keys and values to whole steps of the kernels */
    MT_NEWER_EMBEDDINGS = 32, /* rows are looked up first, and what is made of them comes after */
};

/* Those that a key of the engine's table names. */
unsigned mt_llama_newer(const struct mt_engine *engine, const char *key);

/* The backends of a plan, as the engine's version has them. */
struct mt_graph_machine mt_llama_machine(const struct mt_llama_plan *plan);

/* Which graph of a template is wanted, and how sure it is. */
struct mt_llama_template_use {
    const char *file; /* a text of templates in place of the library's own, or NULL */
    size_t file_length;
    int single_tokens;      /* one token of each sequence */
    unsigned doubt_percent; /* out: 0 where the buffers are exact */
};

/* What the template of the family's graph says that each buffer takes: devices, then the host.
 * Errors: MT_ENOTFOUND where the build has no template of the family, or none for such a model;
 * MT_ELIMIT, MT_ENOMEM. */
int mt_llama_template_reserve(const struct mt_llama_plan *plan, struct mt_llama_template_use *use,
                              struct mt_graph_buffer *buffers, struct mt_error *error);

/* Where the tensors of a plan lie. Start with init, end with finish. */
struct mt_llama_placement {
    const struct mt_llama_plan *plan;
    size_t n_patterns;
    regex_t *patterns;
    int *places;
};
int mt_llama_placement_init(struct mt_llama_placement *placement, const struct mt_llama_plan *plan,
                            struct mt_error *error);
void mt_llama_placement_finish(struct mt_llama_placement *placement);

/* The place of a tensor as far as its own layer and the overrides say; frequencies of the rotary
 * embedding, which are copied to each device, and the second copy of a tied output apart. */
int mt_llama_place_of(const struct mt_llama_placement *placement,
                      const struct mt_model_tensor *tensor);

/* Whether `tensor` is a routed expert as --cpu-moe understands it. */
int mt_llama_is_expert(const struct mt_model_tensor *tensor);

/* The place that an override names ("CPU", "CUDA1", "1"); MT_EARG where it names none. */
int mt_llama_buffer_place(const char *buffer, size_t n_devices, int *place);

#endif
