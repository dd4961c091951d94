/* SPDX-License-Identifier: MIT */
/* What a rehearsed server is asked: an endpoint, questions for it, and what its answers say. */
#ifndef CLI_REHEARSE_REQUESTS_H
#define CLI_REHEARSE_REQUESTS_H

#include <jansson.h>
#include <memtally/error.h>
#include <stddef.h>
#include <stdint.h>

struct rehearse_endpoint {
    int port;
    const char *prefix; /* of all paths, or "" */
};

/* What a server says of itself; 0 where it does not. */
struct rehearse_server_facts {
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
int rehearse_ask(const struct rehearse_endpoint *endpoint, const char *path, const char *body,
                 uint64_t timeout_ms, int *status, json_t **json, struct mt_error *error);

/* Takes the answers of /props, /v1/models and /lora-adapters; NULL or nonsense says nothing. */
void rehearse_facts_take(struct rehearse_server_facts *facts, const json_t *props,
                         const json_t *models, const json_t *adapters);

/* What the server says of an error, or NULL. Borrowed from `answer`. */
const char *rehearse_complaint(const json_t *answer);

/* Bodies of requests; the caller frees them. NULL without memory. */

/* Completes `n_tokens` token ids that no other `seed` begins with. */
char *rehearse_completion_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                               uint64_t n_generated);
/* The same with `n_adapters` of the server's adapters. */
char *rehearse_adapters_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                             uint64_t n_adapters);
/* The same for a server of OpenAI's interface. */
char *rehearse_openai_body(const char *model, uint64_t seed, uint64_t n_tokens,
                           uint64_t n_generated);
char *rehearse_embedding_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary);
char *rehearse_rerank_body(void);
char *rehearse_image_body(void);

#endif
