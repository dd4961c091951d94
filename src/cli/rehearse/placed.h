/* SPDX-License-Identifier: MIT */
/* A placement that 'memtally place --json' wrote, to be rehearsed. */
#ifndef CLI_REHEARSE_PLACED_H
#define CLI_REHEARSE_PLACED_H

#include <jansson.h>

#include "base/strbuf.h"
#include "cli/model/model.h"

enum { REHEARSE_PLACED_WORDS_MAX = 64 };

/* Texts borrow from `document` and `text`, but for those that are owned. */
struct rehearse_placed {
    json_t *document;
    char *model; /* owned */
    const char *engine;
    const char *way; /* "tensor-split" and so on */
    uint64_t context_tokens;
    char *text;                                 /* the flags, cut into words */
    char *words[REHEARSE_PLACED_WORDS_MAX + 1]; /* ends with NULL */
    size_t n_words;
    size_t n_devices;                     /* that the engine shall see */
    size_t device[ESTIMATE_DEVICES_MAX];  /* their numbers in the placement */
    char sizes[ESTIMATE_DEVICES_MAX][32]; /* "25769803776B", or a card */
    uint64_t expected_bytes[ESTIMATE_DEVICES_MAX];
    uint64_t stages;     /* of layers; 0: none */
    double memory_share; /* of each device; 0: the engine's own */
    int is_of_weights;   /* what was expected; the engine's pool takes all else */
    char *device_map;    /* JSON, owned; NULL: none */
};

/* Reads the file, and sets variables of this process's environment that the placement names, but
 * for those that choose devices. The caller finishes *placed, also after an error. Errors: MT_EIO,
 * MT_EFORMAT (no placement, or not the best one, which alone has flags), MT_ELIMIT, MT_ENOMEM. */
int rehearse_placed_read(const char *path, struct rehearse_placed *placed, struct mt_error *error);
void rehearse_placed_finish(struct rehearse_placed *placed);

/* What each device was expected to hold beside what the estimate, a rehearsal's, says it holds. */
void rehearse_placed_tell(const struct rehearse_placed *placed, const struct mt_estimate *estimate,
                          struct mt_strbuf *out);

#endif
