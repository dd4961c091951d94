/* SPDX-License-Identifier: MIT */
/* The description of a model from its GGUF metadata and its tensors. What the tensors show is taken
 * from them: metadata may be wrong about feed-forward lengths and experts, shapes are not. */
#include "gguf.h"

#include "base/error.h"
#include "family.h"
#include "model/ggml_type.h"

#include <stdio.h>
#include <string.h>

#define LAYERS_MAX MT_GGUF_ITEMS_MAX
#define TYPES_MAX  512
#define NUMBER_MAX UINT32_MAX

/* What llama.cpp takes for Gemma 3n whatever the file says, and where it says nothing. */
#define GEMMA3N_CACHES       20
#define GEMMA3N_ALTUP_INPUTS 4
#define GEMMA3N_PER_LAYER    256

/* EXAONE 4 has windows in its large model alone, which is told by its layers. */
#define EXAONE4_WINDOWED 64

/* What the functions below share. `code` is the first failure. */
struct describing {
    struct mt_model *model;
    struct mt_model_description *d;
    const struct mt_gguf *gguf;
    const struct mt_family *family; /* NULL where unknown */
    struct mt_model_layer *layers;
    uint64_t n_layers;
    uint64_t n_beyond; /* tensors of layers that block_count does not count */
    struct mt_error *error;
    int code;
};

/* A value for each layer: a number for all, or an array. */
struct series {
    const struct mt_gguf_pair *pair;
    uint64_t otherwise;
};

static void note(struct describing *g, const char *sentence)
{
    int code = mt_model_note(g->model, "%s", sentence);
    if (code && !g->code)
        g->code = mt_fail(g->error, code, MT_NO_OFFSET, "out of memory for a note");
}

static const struct mt_gguf_pair *find(const struct describing *g, const char *suffix)
{
    char key[192];
    snprintf(key, sizeof key, "%s.%s", g->d->architecture, suffix);
    return mt_gguf_find(&g->gguf->pairs, key);
}

static int fail_pair(struct describing *g, const struct mt_gguf_pair *pair, const char *what)
{
    if (!g->code)
        g->code = mt_fail(g->error, MT_EFORMAT, pair->at, "%s: '%.80s' at byte %llu %s",
                          g->gguf->pairs.path, pair->key, (unsigned long long)pair->at, what);
    return g->code;
}

/* The number under a key of the architecture, or `otherwise`. Engines keep them in 32 bits. */
static uint64_t number(struct describing *g, const char *suffix, uint64_t otherwise)
{
    char key[192];
    uint64_t value = otherwise;
    snprintf(key, sizeof key, "%s.%s", g->d->architecture, suffix);
    if (g->code)
        return otherwise;
    int found = mt_gguf_get(&g->gguf->pairs, key, &value, g->error);
    if (found < 0)
        g->code = found;
    if (found == 1 && value > NUMBER_MAX)
        fail_pair(g, find(g, suffix), "is 2^32 or more, expected a number of 32 bits");
    return found == 1 && !g->code ? value : otherwise;
}

/* The values under a key that gives one for all layers or one for each. */
static struct series find_series(struct describing *g, const char *suffix, uint64_t otherwise)
{
    struct series series = {find(g, suffix), otherwise};
    if (!series.pair)
        return series;
    if (series.pair->type != MT_GGUF_VALUE_ARRAY) {
        series.otherwise = number(g, suffix, otherwise);
        series.pair = NULL;
    } else if (!series.pair->items || series.pair->n_items < g->n_layers) {
        if (series.pair->n_items < g->n_layers)
            fail_pair(g, series.pair, "has fewer numbers than the model has layers");
        else if (g->n_layers != 0)
            fail_pair(g, series.pair, "is no list of a number for each layer");
        series.pair = NULL;
    }
    return series;
}

static uint64_t at_layer(struct describing *g, const struct series *series, uint64_t layer)
{
    if (!series->pair)
        return series->otherwise;
    int64_t value = series->pair->items[layer];
    if (value < 0)
        fail_pair(g, series->pair, "holds a negative number");
    else if ((uint64_t)value > NUMBER_MAX)
        fail_pair(g, series->pair, "holds 2^32 or more, expected numbers of 32 bits");
    return value < 0 ? 0 : (uint64_t)value;
}

static void read_general(struct describing *g)
{
    const struct mt_gguf_pair *pair = mt_gguf_find(&g->gguf->pairs, "general.architecture");
    struct mt_model_description *d = g->d;
    d->format = MT_MODEL_GGUF;
    d->n_files = g->gguf->n_parts;
    if (!pair || !pair->text || !*pair->text) {
        note(g, "The file does not name its architecture (general.architecture): memtally knows "
                "only its tensors.");
    } else {
        d->architecture = pair->text;
        g->family = mt_family_of_gguf(pair->text);
    }
    pair = mt_gguf_find(&g->gguf->pairs, "general.name");
    d->name = pair ? pair->text : NULL;
    d->family_known = g->family != NULL;
}

/* Whether this is something else than a language model. */
static void read_kind(struct describing *g)
{
    const struct mt_gguf_pair *pair = mt_gguf_find(&g->gguf->pairs, "general.type");
    const char *type = pair && pair->text ? pair->text : "";
    int is_clip = mt_arch_of(g->d->architecture) == MT_ARCH_CLIP;
    g->d->is_projector = is_clip || strcmp(type, "mmproj") == 0;
    if (g->d->is_projector)
        g->d->family_known = 1;
    if (strcmp(type, "adapter") == 0)
        note(g, "This is an adapter (LoRA) for another model.");
}

static void read_shape(struct describing *g)
{
    struct mt_model_description *d = g->d;
    d->context_length = number(g, "context_length", 0);
    d->embedding_length = number(g, "embedding_length", 0);
    if (d->is_projector && d->embedding_length == 0)
        d->embedding_length =
            number(g, "vision.embedding_length", number(g, "audio.embedding_length", 0));
    d->sliding_window = number(g, "attention.sliding_window", 0);
    d->q_lora_rank = number(g, "attention.q_lora_rank", 0);
    d->kv_lora_rank = number(g, "attention.kv_lora_rank", 0);
    d->indexer_heads = number(g, "attention.indexer.head_count", 0);
    d->indexer_head_size = number(g, "attention.indexer.key_length", 0);
    d->indexer_top_k = number(g, "attention.indexer.top_k", 0);
    d->conv_kernel = number(g, "ssm.conv_kernel", 0);
    d->inner_size = number(g, "ssm.inner_size", 0);
    d->state_size = number(g, "ssm.state_size", 0);
    d->time_step_rank = number(g, "ssm.time_step_rank", 0);
    d->group_count = number(g, "ssm.group_count", 0);
    d->short_conv_cache = number(g, "shortconv.l_cache", 0);
    d->per_layer_embedding_length = number(g, "embedding_length_per_layer_input", 0);
    d->altup_inputs = number(g, "altup.num_inputs", 0);
    d->leading_dense_layers = number(g, "leading_dense_block_count", 0);
    d->experts = number(g, "expert_count", 0);
    d->expert_groups = number(g, "expert_group_count", 0);
    d->expert_groups_used = number(g, "expert_group_used_count", 0);
    d->deepstack_layers = number(g, "n_deepstack_layers", 0);
}

/* Whether the floating-point number under a key is none of two. */
static enum mt_said differs_from(const struct describing *g, const char *suffix, float a, float b)
{
    const struct mt_gguf_pair *pair = find(g, suffix);
    if (!pair || pair->type != MT_GGUF_VALUE_F32)
        return MT_NOT_SAID;
    uint32_t bits = (uint32_t)pair->number;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value < a || (value > a && value < b) || value > b ? MT_SAID_YES : MT_SAID_NO;
}

static void read_scales(struct describing *g)
{
    const struct mt_gguf_pair *norms = find(g, "expert_weights_norm");
    if (norms && norms->type == MT_GGUF_VALUE_BOOL)
        g->d->norms_expert_weights = norms->number ? MT_SAID_YES : MT_SAID_NO;
    g->d->scales_expert_weights = differs_from(g, "expert_weights_scale", 0, 1);
    g->d->scales_queries_by_position =
        differs_from(g, "attention.temperature_scale", 0, 0) == MT_SAID_YES;
}

static void read_latent(struct describing *g)
{
    struct mt_model_description *d = g->d;
    uint64_t key = number(g, "attention.key_length_mla", 0);
    uint64_t rope = number(g, "rope.dimension_count", 0);
    if (d->kv_lora_rank == 0)
        return;
    if (key == 0)
        key = number(g, "attention.key_length", 0);
    d->qk_rope_head_size = rope;
    d->qk_nope_head_size = key > rope ? key - rope : 0;
    d->value_head_size =
        number(g, "attention.value_length_mla", number(g, "attention.value_length", 0));
}

static void read_sections(struct describing *g)
{
    const struct mt_gguf_pair *pair = find(g, "rope.dimension_sections");
    int has_two =
        pair && pair->items && pair->n_items >= 2 && pair->items[0] > 0 && pair->items[1] > 0;
    unsigned traits = g->family ? g->family->traits : MT_FAMILY_MAY_SECTION;
    int applies = (traits & MT_FAMILY_SECTIONS) || ((traits & MT_FAMILY_MAY_SECTION) && has_two);
    g->d->position_streams = applies ? 4 : 1;
}

static void make_layers(struct describing *g)
{
    uint64_t n = g->d->architecture ? number(g, "block_count", 0) : 0;
    if (n > LAYERS_MAX) {
        fail_pair(g, find(g, "block_count"), "counts more layers than a model has");
        return;
    }
    g->layers = mt_arena_array(&g->model->arena, n ? (size_t)n : 1, sizeof *g->layers);
    if (!g->layers && !g->code)
        g->code = mt_fail(g->error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for layers");
    g->n_layers = n;
    g->d->n_layers = n;
    g->d->layers = g->layers;
    uint64_t n_draft = number(g, "nextn_predict_layers", 0);
    g->d->n_draft_layers = n_draft < n ? n_draft : n;
}

/* Whether the attention of a layer is limited to a window. */
static int is_windowed(const struct describing *g, uint64_t layer, uint64_t n_trunk)
{
    const struct mt_gguf_pair *pair = find(g, "attention.sliding_window_pattern");
    enum mt_window_rule rule = g->family ? g->family->window : MT_WINDOW_LISTED;
    uint64_t period = g->family ? g->family->period : 0;
    if (rule == MT_WINDOW_NEVER || g->d->sliding_window == 0)
        return 0;
    if (rule == MT_WINDOW_ALWAYS)
        return 1;
    if (pair && pair->items)
        return layer < pair->n_items && pair->items[layer] != 0;
    if (pair && pair->type != MT_GGUF_VALUE_ARRAY && (int64_t)pair->number >= 0) {
        period = pair->number;
        rule = rule == MT_WINDOW_LISTED ? MT_WINDOW_GLOBAL_LAST : rule;
    }
    if (layer >= n_trunk || rule == MT_WINDOW_LISTED)
        return 0;
    if (period == 0)
        return 1;
    return layer % period != (rule == MT_WINDOW_GLOBAL_FIRST ? 0 : period - 1);
}

static void choose_window(struct describing *g)
{
    const struct mt_gguf_pair *pair = find(g, "attention.sliding_window");
    struct mt_model_description *d = g->d;
    if (!g->family)
        return;
    int is_small_exaone =
        g->family->arch == MT_ARCH_EXAONE4 && number(g, "block_count", 0) != EXAONE4_WINDOWED;
    if (g->family->window == MT_WINDOW_NEVER || is_small_exaone)
        d->sliding_window = 0;
    else if (!pair)
        d->sliding_window = g->family->default_window;
    else if ((g->family->traits & MT_FAMILY_CHUNKED) && d->sliding_window != 0)
        d->sliding_window = g->family->default_window;
}

static void set_attention(struct describing *g)
{
    struct mt_model_description *d = g->d;
    unsigned traits = g->family ? g->family->traits : 0;
    int is_latent = (traits & MT_FAMILY_LATENT) && d->kv_lora_rank != 0 &&
                    find(g, "attention.key_length_mla") && find(g, "attention.value_length_mla");
    uint64_t n_trunk = g->n_layers - d->n_draft_layers;
    struct series heads = find_series(g, "attention.head_count", 0);
    struct series kv_heads = find_series(g, "attention.head_count_kv", UINT64_MAX);
    uint64_t first_heads = g->n_layers ? at_layer(g, &heads, 0) : 0;
    uint64_t size = first_heads ? d->embedding_length / first_heads : 0;
    uint64_t key = number(g, "attention.key_length",
                          is_latent ? d->kv_lora_rank + d->qk_rope_head_size : size);
    uint64_t value = number(g, "attention.value_length", size);
    uint64_t window_key = number(g, "attention.key_length_swa", key);
    uint64_t window_value = number(g, "attention.value_length_swa", value);
    for (uint64_t i = 0; i < g->n_layers && !g->code; i++) {
        struct mt_model_layer *layer = &g->layers[i];
        layer->is_draft = i >= n_trunk;
        layer->cache_layer = i;
        layer->heads = at_layer(g, &heads, i);
        layer->kv_heads = at_layer(g, &kv_heads, i);
        if (layer->kv_heads == UINT64_MAX)
            layer->kv_heads = layer->heads;
        d->heads = layer->heads > d->heads ? layer->heads : d->heads;
        if (layer->kv_heads == 0 || (traits & MT_FAMILY_NO_CACHE)) {
            layer->kv_heads = 0;
            continue;
        }
        if (layer->heads && layer->kv_heads > layer->heads)
            fail_pair(g, find(g, "attention.head_count_kv"),
                      "counts more than attention.head_count");
        int windowed = is_windowed(g, i, n_trunk);
        layer->attention =
            windowed ? ((traits & MT_FAMILY_CHUNKED) ? MT_ATTENTION_CHUNKED : MT_ATTENTION_SLIDING)
                     : MT_ATTENTION_GLOBAL;
        layer->window = windowed ? d->sliding_window : 0;
        layer->key_size = windowed ? window_key : key;
        layer->value_size = windowed ? window_value : value;
        if (is_latent && !windowed) {
            layer->attention = MT_ATTENTION_LATENT;
            layer->kv_heads = 1;
            layer->value_size = 0;
        }
    }
    if ((traits & MT_FAMILY_LATENT) && !is_latent)
        note(g, "The file was made before latent attention could be cached compressed "
                "(attention.key_length_mla is missing); llama.cpp caches keys and values of all "
                "heads, ik_llama.cpp compresses them itself.");
}

static int recurs(const struct describing *g, uint64_t i, uint64_t interval,
                  const struct mt_gguf_pair *list, uint64_t ff_length)
{
    const struct mt_model_layer *layer = &g->layers[i];
    if (layer->is_draft)
        return 0;
    switch (g->family->recurs) {
    case MT_RECURS_ALWAYS:
    case MT_RECURS_BESIDE:
        return 1;
    case MT_RECURS_WITHOUT_KV:
        return layer->kv_heads == 0;
    case MT_RECURS_WITHOUT_BOTH:
        return layer->kv_heads == 0 && ff_length == 0;
    case MT_RECURS_BY_INTERVAL:
        if (list && list->items)
            return i < list->n_items && list->items[i] != 0;
        return (i + 1) % interval != 0;
    default:
        return 0;
    }
}

static void stop_attending(struct mt_model_layer *layer)
{
    layer->attention = MT_ATTENTION_NONE;
    layer->heads = layer->kv_heads = layer->key_size = layer->value_size = layer->window = 0;
}

static void set_recurrence(struct describing *g)
{
    if (!g->family || g->family->recurs == MT_RECURS_NEVER)
        return;
    uint64_t interval = number(g, "full_attention_interval", 4);
    const struct mt_gguf_pair *list = find(g, "attention.recurrent_layers");
    struct series ff_length = find_series(g, "feed_forward_length", 0);
    for (uint64_t i = 0; i < g->n_layers && !g->code; i++) {
        if (!recurs(g, i, interval ? interval : 1, list, at_layer(g, &ff_length, i)))
            continue;
        g->layers[i].recurrence = g->family->recurrence;
        if (g->family->recurs != MT_RECURS_BESIDE)
            stop_attending(&g->layers[i]);
    }
}

/* Kimi's linear layers have heads of their own size and no ssm.* keys for it. */
static void set_kimi(struct describing *g)
{
    uint64_t size = number(g, "kda.head_dim", 0);
    if (size == 0)
        return;
    g->d->state_size = size;
    g->d->time_step_rank = g->d->heads;
    if (__builtin_mul_overflow(size, g->d->heads, &g->d->inner_size))
        g->d->inner_size = 0;
}

/* RWKV keeps a square state for each head, and shifts tokens where others convolve. */
static void set_rwkv(struct describing *g)
{
    uint64_t size = number(g, "wkv.head_size", 0);
    if (size == 0)
        return;
    g->d->state_size = size;
    g->d->inner_size = g->d->embedding_length;
    g->d->time_step_rank = g->d->embedding_length / size;
    uint64_t shifts = number(g, "token_shift_count", 2);
    g->d->conv_kernel = shifts < UINT64_MAX ? shifts + 1 : 0;
}

static void share_caches(struct describing *g)
{
    if (!g->family || !(g->family->traits & MT_FAMILY_SHARES_CACHE))
        return;
    uint64_t shared = number(g, "attention.shared_kv_layers", 0);
    if (g->family->arch == MT_ARCH_GEMMA3N) {
        shared = g->n_layers > GEMMA3N_CACHES ? g->n_layers - GEMMA3N_CACHES : 0;
        g->d->altup_inputs = number(g, "altup.num_inputs", GEMMA3N_ALTUP_INPUTS);
        g->d->per_layer_embedding_length =
            number(g, "embedding_length_per_layer_input", GEMMA3N_PER_LAYER);
    }
    if (shared > g->n_layers || g->n_layers - shared < 2)
        return;
    uint64_t first = g->n_layers - shared;
    for (uint64_t i = first; i < g->n_layers; i++)
        g->layers[i].cache_layer = first - (g->layers[i].attention == MT_ATTENTION_SLIDING ? 2 : 1);
}

/* The part of a layer's tensor's name behind "blk.N." */
static const char *rest_of_name(const struct describing *g, const struct mt_gguf_record *record,
                                size_t *length)
{
    const char *name = mt_gguf_name_of(g->gguf, record);
    const char *dot = NULL;
    if (record->name_length > 6 && memcmp(name, "blk.", 4) == 0)
        dot = memchr(name + 4, '.', record->name_length - 4u);
    *length = dot ? record->name_length - (size_t)(dot + 1 - name) : 0;
    return dot ? dot + 1 : NULL;
}

static void count_in_layer(struct describing *g, const struct mt_gguf_record *record)
{
    static const char down[] = "ffn_down";
    struct mt_model_layer *layer = &g->layers[record->layer];
    size_t length;
    const char *rest = rest_of_name(g, record, &length);
    layer->weight_bytes += record->bytes;
    if (record->role == MT_TENSOR_EXPERTS)
        layer->expert_bytes += record->bytes;
    if (length < sizeof down || memcmp(rest, down, sizeof down - 1) != 0)
        return;
    rest += sizeof down - 1;
    length -= sizeof down - 1;
    uint64_t row = mt_gguf_dim_of(g->gguf, record, 0);
    if (length == 7 && memcmp(rest, ".weight", 7) == 0)
        layer->ff_length = row;
    else if (length == 13 && memcmp(rest, "_shexp.weight", 13) == 0)
        layer->shared_ff_length = row;
    else if (length == 12 && memcmp(rest, "_exps.weight", 12) == 0)
        layer->expert_ff_length = row;
}

static uint64_t elements_of(const struct mt_gguf *gguf, const struct mt_gguf_record *record)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < record->n_dims; i++)
        elements *= mt_gguf_dim_of(gguf, record, i);
    return elements;
}

static void count_tensor(struct describing *g, const struct mt_gguf_record *record)
{
    struct mt_model_description *d = g->d;
    d->parameters += elements_of(g->gguf, record);
    d->weight_bytes += record->bytes;
    if (record->layer < g->n_layers)
        count_in_layer(g, record);
    else if (record->layer != MT_GGUF_NO_LAYER)
        g->n_beyond++;
    if (record->role == MT_TENSOR_OUTPUT)
        d->tied_output = 0;
    if (record->role == MT_TENSOR_TOKEN_EMBEDDING && d->vocabulary == 0)
        d->vocabulary = mt_gguf_dim_of(g->gguf, record, 1);
}

static void note_unknown_types(struct describing *g, uint64_t n, uint64_t first)
{
    struct mt_model_tensor tensor;
    if (n == 0 || g->code || mt_gguf_tensor_at(g->model, first, &tensor) != 0)
        return;
    int length = tensor.name_length < 80 ? (int)tensor.name_length : 80;
    int code = mt_model_note(g->model,
                             "%llu of the tensors are of a type that this build does not know (the "
                             "first is %.*s, of %s); their size is the room up to the next tensor.",
                             (unsigned long long)n, length, tensor.name, tensor.type);
    if (code)
        g->code = mt_fail(g->error, code, MT_NO_OFFSET, "out of memory for a note");
}

/* The type that most bytes are of. */
static void choose_dtype(struct describing *g, const uint64_t of_type[TYPES_MAX])
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < TYPES_MAX; i++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_number(i);
        if (!type || of_type[i] <= most)
            continue;
        most = of_type[i];
        g->d->dtype = type->name;
    }
}

static void count_tokens(struct describing *g)
{
    const struct mt_gguf_pair *tokens = mt_gguf_find(&g->gguf->pairs, "tokenizer.ggml.tokens");
    g->d->vocabulary = tokens && tokens->type == MT_GGUF_VALUE_ARRAY ? tokens->n_items : 0;
}

static void count_tensors(struct describing *g)
{
    uint64_t of_type[TYPES_MAX] = {0};
    uint64_t n_unknown = 0, first_unknown = 0;
    g->d->n_tensors = g->gguf->n;
    g->d->tied_output = 1;
    g->d->vocabulary = g->d->architecture ? number(g, "vocab_size", 0) : 0;
    for (uint64_t i = 0; i < g->gguf->n && !g->code; i++) {
        const struct mt_gguf_record *record = &g->gguf->records[i];
        uint32_t type = mt_gguf_type_of(g->gguf, record);
        count_tensor(g, record);
        if (type < TYPES_MAX)
            of_type[type] += record->bytes;
        if (!mt_ggml_type_by_number(type) && n_unknown++ == 0)
            first_unknown = i;
    }
    if (g->d->vocabulary == 0)
        count_tokens(g);
    choose_dtype(g, of_type);
    note_unknown_types(g, n_unknown, first_unknown);
}

static void set_experts(struct describing *g)
{
    struct series ff = find_series(g, "feed_forward_length", 0);
    struct series expert_ff = find_series(g, "expert_feed_forward_length", 0);
    struct series used = find_series(g, "expert_used_count", 0);
    for (uint64_t i = 0; i < g->n_layers && !g->code; i++) {
        struct mt_model_layer *layer = &g->layers[i];
        uint64_t experts_used = at_layer(g, &used, i);
        if (layer->expert_bytes == 0) {
            if (layer->ff_length == 0 && layer->weight_bytes == 0)
                layer->ff_length = at_layer(g, &ff, i);
            continue;
        }
        layer->experts = g->d->experts;
        layer->experts_used = experts_used;
        if (experts_used > g->d->experts_used)
            g->d->experts_used = experts_used;
        if (layer->expert_ff_length == 0)
            layer->expert_ff_length = at_layer(g, &expert_ff, i);
    }
}

/* What metadata and tensors do not agree on. */
static void note_contradictions(struct describing *g)
{
    uint64_t n_empty = 0, n_sizeless = 0;
    for (uint64_t i = 0; i < g->n_layers; i++) {
        const struct mt_model_layer *layer = &g->layers[i];
        int attends = layer->attention != MT_ATTENTION_NONE;
        n_empty += attends && layer->weight_bytes == 0 && g->gguf->n != 0;
        n_sizeless += attends && layer->key_size == 0;
    }
    if (n_sizeless)
        note(g, "The file does not give the size of heads (attention.head_count is missing or "
                "0): memtally counts no keys and values.");
    if (n_empty)
        note(g, "Some layers that block_count counts have no tensors; they count with keys and "
                "values.");
    if (g->n_beyond && g->d->architecture)
        note(g, "Some tensors are of layers that block_count does not count; they count as "
                "weights, without keys and values.");
}

static void say_what_is_unknown(struct describing *g)
{
    struct mt_model_description *d = g->d;
    if (d->architecture && !g->family && !d->is_projector && !g->code &&
        mt_model_note(g->model,
                      "memtally does not know the family '%s': weights are exact, the kinds of "
                      "its layers are a guess from the common keys.",
                      d->architecture) != 0)
        g->code = mt_fail(g->error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a note");
    if (d->architecture && find(g, "attention.indexer.types"))
        note(g, "Only some layers have an indexer of their own (attention.indexer.types); which "
                "ones is not kept here.");
    if (g->family && (g->family->traits & MT_FAMILY_PARTLY))
        note(g, "The caches of this family hold more than keys and values; what is kept of past "
                "tokens is known in part.");
}

int mt_gguf_describe(struct mt_model *model, const struct mt_gguf *gguf, struct mt_error *error)
{
    struct describing g = {.model = model, .d = &model->description, .gguf = gguf, .error = error};
    read_general(&g);
    read_kind(&g);
    g.d->is_embedder = g.family && (g.family->traits & MT_FAMILY_EMBEDDER) != 0;
    g.d->position_streams = 1;
    if (g.d->architecture) {
        read_shape(&g);
        read_scales(&g);
        read_latent(&g);
        read_sections(&g);
        choose_window(&g);
    }
    make_layers(&g);
    if (g.code)
        return g.code;
    count_tensors(&g);
    if (g.d->architecture) {
        set_attention(&g);
        set_recurrence(&g);
        set_kimi(&g);
        set_rwkv(&g);
        share_caches(&g);
        set_experts(&g);
        note_contradictions(&g);
    }
    say_what_is_unknown(&g);
    return g.code;
}
