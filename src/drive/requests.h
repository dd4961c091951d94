/* SPDX-License-Identifier: MIT */
/* What memtally asks a rehearsed server: an endpoint, questions for it, and what its answers say.
 */
#ifndef DRIVE_REQUESTS_H
#define DRIVE_REQUESTS_H

#include <jansson.h>
#include <memtally/error.h>
#include <stddef.h>
#include <stdint.h>

struct mt_drive_endpoint {
    int port;
    const char *prefix; /* of all paths, or "" */
};

/* What a server says of itself; 0 where it does not. */
struct mt_drive_server_facts {
    uint64_t n_slots;
    uint64_t slot_tokens;
    uint64_t vocabulary;
    int sees_images;
    char model[160]; /* as a server of OpenAI's interface calls it, which has no /props; else "" */
    uint64_t model_tokens; /* then the longest request, 0 where it is not said */
    uint64_t n_adapters;   /* that a request may ask for */
};

/* Asks at `path`: a GET where `body` is NULL. Returns 0 with *status, and the answer in *json,
 * which the caller owns and which is NULL where it is no JSON; `json` may be NULL. Errors: those of
 * mt_http_fetch(). */
int mt_drive_ask(const struct mt_drive_endpoint *endpoint, const char *path, const char *body,
                 uint64_t timeout_ms, int *status, json_t **json, struct mt_error *error);

/* Takes the answers of /props, /v1/models and /lora-adapters; NULL or nonsense says nothing. */
void mt_drive_facts_take(struct mt_drive_server_facts *facts, const json_t *props,
                         const json_t *models, const json_t *adapters);

/* What the server says of an error, or NULL. Borrowed from `answer`. */
const char *mt_drive_complaint(const json_t *answer);

/* Bodies of requests; the caller frees them. NULL without memory. */

/* Completes `n_tokens` token ids that no other `seed` begins with. */
char *mt_drive_completion_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                               uint64_t n_generated);
/* The same with `n_adapters` of the server's adapters. */
char *mt_drive_adapters_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                             uint64_t n_adapters);
/* The same for a server of OpenAI's interface. */
char *mt_drive_openai_body(const char *model, uint64_t seed, uint64_t n_tokens,
                           uint64_t n_generated);
char *mt_drive_embedding_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary);
char *mt_drive_rerank_body(void);
char *mt_drive_image_body(void);

#endif
