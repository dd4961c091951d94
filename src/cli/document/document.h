/* SPDX-License-Identifier: MIT */
/* The document: one tally with what stands around it, in every output format.
 *
 * `report` fills it from a recording, `profile` adds the engine, the model, the settings and the
 * runs, `estimate` fills it from an estimate. Rendering reads it and nothing else. Everything here
 * is borrowed. Sizes and counts that are not known are MT_UNKNOWN, times in milliseconds negative,
 * texts NULL. */
#ifndef CLI_DOCUMENT_H
#define CLI_DOCUMENT_H

#include <jansson.h>
#include <memtally/units.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "cli/console.h"
#include "container/container.h"

struct mt_device_histories; /* both of <memtally/recording.h> */
struct mt_device_timeline;
struct mt_estimate;         /* <memtally/predict.h> */
struct mt_recording_damage; /* all of <memtally/recording.h> */
struct mt_recording_mark;
struct mt_rehearsed; /* "drive/rehearsed.h" */
struct mt_stack_list;
struct mt_tally;          /* <memtally/tally.h> */
struct mt_timeline_point; /* <memtally/recording.h> */

enum cli_format {
    CLI_FORMAT_TABLE,
    CLI_FORMAT_JSON,
    CLI_FORMAT_CSV,
    CLI_FORMAT_FOLDED,
    CLI_FORMAT_SPEEDSCOPE,
    CLI_FORMAT_PERFETTO,
    CLI_FORMAT_MEMORY_VIZ
};

/* The names of the formats in the same order, for option tables; ends with NULL. */
extern const char *const cli_format_names[];

/* One repetition of a profile. A warm-up run is shown and left out of the spread. */
struct cli_document_run {
    uint64_t run; /* from 1 */
    int warm_up;
    double latency_ms;
    double prefill_ms;
    double decode_ms;
    uint64_t peak_memory_bytes;
    uint64_t steps;
    uint64_t batch_size;
    uint64_t max_new_tokens;
    uint64_t peak_device_bytes; /* as the engine counts it, over all devices */
};

/* A stretch of a recording, "load" or "decode", and the most that was resident in it. */
struct cli_document_phase {
    const char *name;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t peak_resident_bytes;
};

struct cli_document_engine {
    const char *name;
    const char *version;
    const char *path;
};

struct cli_document_model {
    const char *path;
    const char *name;
    const char *architecture;
    const char *dtype; /* of most of its weights */
    uint64_t parameters;
    uint64_t weight_bytes;
    uint64_t layers;
    uint64_t trained_context_tokens;
    const json_t *device_map; /* module: device, as text; or NULL */
    int is_converted;         /* no GGUF file: one has to be made of it for llama.cpp */
};

struct cli_document_settings {
    uint64_t context_tokens;
    uint64_t batch;
    uint64_t ubatch;
    uint64_t sequences;
    uint64_t threads;
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    const char *kv_type_k;
    const char *kv_type_v;
    const char *flash_attention; /* "on", "off" or "auto" */
};

/* The answer to "how much fits?". `value` is 0 where nothing fits; `limit` says what ended the
 * search where more might fit, or is NULL. */
#define CLI_CARDS_MAX 4

/* Cards that would do: the smallest of the tables, where so many of it are used. */
struct cli_document_cards {
    size_t n;
    const char *gpu; /* "RTX3090" */
};

struct cli_document_answer {
    const char *goal; /* "max_context" */
    const char *what; /* "tokens of context" */
    uint64_t value;
    int is_size;
    const char *limit;
    struct cli_document_cards cards[CLI_CARDS_MAX]; /* of a size */
    size_t n_cards;
};

/* Start with CLI_DOCUMENT_EMPTY; `tally` is the one member that must be set. `engine`, `model` and
 * `settings` may stay NULL: what the tally itself says of engine and model is then used. */
struct cli_document {
    const char *recording; /* the folder that it was read from */
    int follows_another;   /* in the same output: CSV then has no headings */
    const struct mt_tally *tally;
    const struct mt_container *container; /* that it ran in, or NULL */
    const struct cli_document_engine *engine;
    const struct cli_document_model *model;
    const struct cli_document_settings *settings;
    const struct mt_estimate *estimate;   /* where `tally` is the tally of one */
    const struct mt_rehearsed *rehearsal; /* that gave the estimate, or NULL */
    const struct cli_document_answer *answer;
    int explain; /* show each term of the estimate with its formula */
    const struct cli_document_run *runs;
    size_t n_runs;
    const struct cli_document_phase *phases;
    size_t n_phases;
    const struct mt_timeline_point *timeline;
    size_t n_timeline;
    const struct mt_device_timeline *device_timelines;
    size_t n_device_timelines;
    const struct mt_device_histories *histories; /* for MEMORY_VIZ */
    const struct mt_recording_mark *marks;
    size_t n_marks;
    const struct mt_recording_damage *damage;
    const struct mt_stack_list *stacks;
    size_t n_notes; /* beside the tally's own */
    const char *const *notes;
    size_t details_shown; /* in a table, of each row; 0 for all */
};

#define CLI_DOCUMENT_EMPTY                                                                         \
    {                                                                                              \
        .tally = NULL, .details_shown = 4                                                          \
    }

/* Settings of which nothing is known. */
#define CLI_SETTINGS_UNKNOWN                                                                       \
    {                                                                                              \
        MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, NULL,  \
            NULL, NULL                                                                             \
    }

/* Least, median and most of a figure over the runs that are no warm-up; `n` is how many runs have
 * it. All three are negative where `n` is 0. */
struct cli_spread {
    size_t n;
    double least;
    double median;
    double most;
};

enum cli_figure { CLI_FIGURE_LATENCY, CLI_FIGURE_PREFILL, CLI_FIGURE_DECODE, CLI_FIGURE_PEAK };

/* Whether the model lies on one device, and no device holds anything beyond that one copy. */
int cli_document_is_on_one_device(const struct cli_document *document);

struct cli_spread cli_document_spread(const struct cli_document *document, enum cli_figure figure);

/* Appends the document to `out` in a format. The table is drawn for `terminal`; FOLDED writes
 * `stacks`, as SPEEDSCOPE does, PERFETTO the timelines and MEMORY_VIZ the histories; these
 * two are binary. CSV is a line for each
 * run where there are runs, else a line for each row and detail of the tally. Returns 0,
 * MT_ENOTFOUND where the document has nothing for the format, or MT_ENOMEM. */
int cli_document_render(const struct cli_document *document, enum cli_format format,
                        const struct cli_terminal *terminal, struct mt_strbuf *out,
                        struct mt_error *error);

/* Writes the document as one value of an open JSON array. */
struct mt_json;
void cli_document_put_json(const struct cli_document *document, struct mt_json *json);

/* The short breakdown that `run` prints when a program has ended: categories and totals only. */
void cli_document_summary(const struct cli_document *document, const struct cli_terminal *terminal,
                          struct mt_strbuf *out);

#endif
