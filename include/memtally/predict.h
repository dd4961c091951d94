/* SPDX-License-Identifier: MIT */
/* Predicting the tally of a model before it is loaded.
 *
 * Rules of a named engine and version are applied to a model's description and the settings of a
 * run. Every figure says which rule gave it, and has a low and a high bound. Nothing here touches a
 * device, a clock or the environment: the same input gives the same estimate. Any function may be
 * called from any thread. */
#ifndef MEMTALLY_PREDICT_H
#define MEMTALLY_PREDICT_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/settings.h>
#include <memtally/tally.h>
#include <memtally/verdict.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_model; /* <memtally/model_file.h> */

/* One summand of the estimate. `formula` is the formula with its numbers put in, and gives `bytes`.
 * `rule` names the rule and the version it holds from ("llama.cpp/kv_cache"), `source` where it was
 * published or read. */
struct mt_estimate_term {
    const char *place;
    enum mt_category category;
    const char *name; /* "KV cache, global layers" */
    const char *rule;
    const char *source; /* NULL: this project's own reading of the engine */
    const char *formula;
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
    enum mt_provenance provenance;
    enum mt_term_kind kind; /* what it rests on: a rule, the engine's own word, measurements */
};

/* What an engine that takes a budget makes of one device. All bytes; `present` 0: the engine takes
 * none. requested = capacity * share; pool = requested - weights - activations - other - graphs. */
struct mt_estimate_pool {
    int present;
    uint64_t requested_bytes;
    uint64_t weights_bytes;
    uint64_t activations_bytes;
    uint64_t other_bytes;     /* driver, communication: "non-torch" */
    uint64_t graphs_bytes;    /* what the engine sets aside for CUDA graphs */
    int64_t pool_bytes;       /* negative where the budget does not suffice */
    uint64_t bytes_per_token; /* 0: there are states alone, and tokens mean nothing */
    uint64_t pool_tokens;
    uint64_t pool_tokens_low;
    uint64_t pool_tokens_high;
    double concurrency;      /* sequences of context_tokens, or states, that fit at once */
    const char *graphs_note; /* how wrong the engine's own figure for graphs tends to be */
};

/* CUDA graphs that an engine captures by its rule. The bytes are of a rank of the tightest stage:
 * what the largest graph needs of a pool that all share, the driver's for the nodes of all, and
 * what lies beside. */
#define MT_ESTIMATE_GRAPH_GROUPS 4
struct mt_estimate_graph_group {
    const char *kind;      /* "FULL", "PIECEWISE", "PREFILL"; static */
    uint64_t draft_tokens; /* MT_UNKNOWN: they are of tokens, whatever is drafted */
    uint64_t n;
    uint64_t least; /* requests of a batch; where the engine counts so, tokens */
    uint64_t largest;
};
struct mt_estimate_graphs {
    int present;      /* 0: none, or the rule is not known */
    int is_of_tokens; /* sizes of whole graphs are tokens, too */
    uint64_t n;
    size_t n_groups;
    struct mt_estimate_graph_group groups[MT_ESTIMATE_GRAPH_GROUPS];
    uint64_t largest_tokens;
    uint64_t pool_bytes;
    uint64_t driver_bytes;
    uint64_t static_bytes; /* buffers and workspaces that captures take beside the pool */
};

/* An estimate. `settings` are those of the call with every default put in; all of it is owned by
 * the estimate. In each place the rows' allocated bytes add up to total_allocated_bytes. */
struct mt_estimate {
    struct mt_tally tally;
    struct mt_predict_settings settings;
    size_t n_terms;
    const struct mt_estimate_term *terms;
    enum mt_verdict verdict;
    const char *reason;  /* of the verdict, one sentence; NULL where it is unknown */
    int fits_as_counted; /* the verdict would be FITS, but for what is not counted */
    struct mt_estimate_pool pool;
    struct mt_estimate_graphs graphs;
    const char *flags;     /* of the engine, ready to paste: "-c 8192 -ngl 99 -ctk q8_0" */
    double accuracy_ratio; /* (high - low) / 2 / total */
};

/* Makes an estimate. On success the caller owns *estimate; mt_estimate_destroy() frees it. The
 * model must live as long. Where the devices have no room for the whole model, the settings leave
 * open how many layers go to them, and the engine can leave some on the host (llama.cpp and its
 * kin), the estimate is of what does run: a context that was left open becomes smaller as the
 * engine's version would make it, then experts and whole layers stay on the host: SPILLS.
 * Errors: MT_EARG (settings that contradict each other, or that the engine or its version does not
 * know; the text names the nearest one that it does), MT_ENOTFOUND (no such engine),
 * MT_EUNSUPPORTED (the engine cannot load such a model), MT_ELIMIT, MT_ENOMEM. */
int mt_estimate_create(const struct mt_model *model, const struct mt_predict_settings *settings,
                       struct mt_estimate **estimate, struct mt_error *error);

/* What an engine itself said of a run, in place of what rules say. All borrowed; texts may be NULL.
 */
struct mt_engine_plan {
    const struct mt_tally *tally; /* what it allocated, at places "host" and "gpu:0" and so on */
    const char *version;          /* of the engine, in its own words */
    const char *flags;            /* that it was started with; NULL: those of the settings */
    const char *engine;           /* that `tally` is of, where no table has it: nothing is added to
                                     what it says; else NULL */
    const char *cannot;           /* why it does not start; the verdict is CANNOT */
    const char *spills;           /* why it left on the host what was meant for a device */
    const char *const *notes;
    size_t n_notes;
};

/* Makes an estimate of what an engine itself said that it allocates, as a rehearsal gives it: its
 * rows take the place of those of the rules, with the provenance and the band of the details that
 * they are made of. What no engine says, the driver's context and the program's own heap, is added
 * as in mt_estimate_create(), with its own provenance. The verdict is that of the whole. `model`
 * may be NULL where no file tells what the engine ran; only the devices, the host, the program and
 * residues of the settings then count. On success the caller owns *estimate; mt_estimate_destroy()
 * frees it; the model must live as long, what was said need not. Errors: those of
 * mt_estimate_create(); MT_EARG for a place that the settings do not have; MT_EUNSUPPORTED for an
 * engine that cannot be rehearsed. */
int mt_estimate_from_plan(const struct mt_model *model, const struct mt_predict_settings *settings,
                          const struct mt_engine_plan *said, struct mt_estimate **estimate,
                          struct mt_error *error);

/* What the engine's own choice of layers leaves free of each device, in bytes, where an engine
 * named as in the settings makes one; 0 where it does not, or is not known. Any thread. */
uint64_t mt_fit_margin_bytes(const char *engine);

/* Frees an estimate and all that it owns. NULL is fine. */
void mt_estimate_destroy(struct mt_estimate *estimate);

/* What a rule that is another one does to a model: `keys` are those of the engine's table that
 * changed together ("activations.logits 9.55 -> 3.5, activations.hidden 1.35 -> 1"), `since` the
 * version that they hold from, `source` where that was read or NULL. `place_bytes` has for each
 * place of the tally how many more bytes are taken there, of an engine that takes a budget beside
 * its cache, `pool_tokens` how many more tokens fit. */
struct mt_estimate_change {
    const char *rule;
    const char *since;
    const char *keys;
    const char *source;
    const int64_t *place_bytes;
    int64_t pool_tokens;
};

/* What differs between two versions of an engine. Changes are put in one after another, oldest
 * first, so that what they do adds up to the difference between `before` and `after`; what no
 * key tells is the last of them, whose rule is "version". All owned. */
struct mt_estimate_changes {
    const char *engine;
    const char *from;
    const char *to;
    const struct mt_estimate *before;
    const struct mt_estimate *after;
    size_t n;
    const struct mt_estimate_change *changes;
};

/* Compares two versions, named "vllm@0.16..0.19", by rules alone; the settings' own engine does not
 * count. On success the caller owns *changes; mt_estimate_changes_destroy() frees it. The model
 * must live as long. Errors: MT_EARG for a text that names no two versions, and those of
 * mt_estimate_create(). */
int mt_estimate_changes_create(const struct mt_model *model,
                               const struct mt_predict_settings *settings, const char *versions,
                               struct mt_estimate_changes **changes, struct mt_error *error);

/* Frees a comparison and all that it owns. NULL is fine. */
void mt_estimate_changes_destroy(struct mt_estimate_changes *changes);

/* Finds the largest (or smallest) value with which the verdict is FITS, or would be if all was
 * counted, to the engine's own step:
 * contexts are multiples of its padding, devices of 1 MiB. What a value takes does not always grow
 * with it (padding is a saw-tooth, a graph may be laid out better): the answer is such that it fits
 * and none of the next 8 values does, or that it is the last one. An engine that takes a budget
 * must hold the sequences at once, with the low end of its pool. *answer is 0 and *estimate is
 * untouched where nothing fits; that is no error. Otherwise the caller owns *estimate, which is the
 * estimate at the answer, with every setting that the query changed.
 * Errors: those of mt_estimate_create(), and MT_EARG where no capacity was given. */
int mt_estimate_solve(const struct mt_model *model, const struct mt_predict_settings *settings,
                      enum mt_goal goal, uint64_t *answer, struct mt_estimate **estimate,
                      struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
