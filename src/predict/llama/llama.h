/* SPDX-License-Identifier: MIT */
/* llama.cpp and its kin: where layers go, and what the parts of the prediction hand each other. */
#ifndef MT_PREDICT_LLAMA_H
#define MT_PREDICT_LLAMA_H

#include "predict/graph/graph.h"
#include "predict/input.h"

/* The plan of a run: everything that the categories have in common. Tokens and cells are counts.
 * device_of[i] is the device of layer i, MT_HOST_PLACE for the host; entry n_layers is the output
 * layer. */
struct mt_llama_plan {
    const struct mt_predict_input *in;
    size_t n_devices;
    size_t n_layers; /* of the text model as the engine counts them */
    const int *device_of;
    int all_on_devices;  /* every layer and the output: what llama.cpp calls full offload */
    int experts_on_host; /* some layer on a device has its experts elsewhere (--cpu-moe, -ot) */
    uint64_t context;    /* padded */
    uint64_t ubatch;     /* at most the context */
    uint64_t sequences;
    uint64_t streams;    /* caches: 1 where unified, else sequences */
    uint64_t cells;      /* of one stream's global cache */
    uint64_t swa_cells;  /* of one stream's cache of windowed layers; 0 without such layers */
    int ignores_windows; /* the engine knows no windows of this family: such layers are global */
    int flash_attention;
    const char *type_k;
    const char *type_v;
    uint64_t output_rows; /* that the graph is reserved for */
    uint64_t copies;      /* of each graph input: 4 with pipeline parallelism, else 1 */
    uint32_t capability[MT_GRAPH_DEVICES_MAX]; /* of the devices' cards; 0 where it is not known */
};

/* Bytes of `n` elements stored as the ggml type called `type`, in whole blocks. 0 for an unknown
 * one. */
uint64_t mt_llama_type_bytes(const char *type, uint64_t n);

/* Terms of each part. */
int mt_llama_weights(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error);
int mt_llama_cache(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                   struct mt_error *error);
int mt_llama_compute(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error);
int mt_llama_residue(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error);
/* The same without a plan: a device where the sheet has a term is one that is used. */
void mt_llama_residue_alone(const struct mt_predict_input *in, struct mt_sheet *sheet);

/* The compute buffers alone: one for each device, then one for the host. `rule` is a word that
 * names the moment that decided ("attention", "ffn", "logits"). */
struct mt_compute_buffer {
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
    uint64_t grown_bytes;      /* beyond that, taken for a few tokens before requests come */
    uint64_t grown_high_bytes; /* the most that is, for a small batch of requests */
    const char *rule;
    int is_alike;   /* the family's graph is not written down: that of what it resembles was planned
                     */
    int is_doubted; /* by a template that is not exact, or not of such a model */
    char formula[256];
};
int mt_llama_compute_buffers(const struct mt_llama_plan *plan, struct mt_compute_buffer *buffers,
                             struct mt_error *error);

#endif
