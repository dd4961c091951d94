/* SPDX-License-Identifier: MIT */
/* What memtally asks a rehearsed server: an endpoint, questions for it, and what its answers say.
 */
#ifndef DRIVE_REQUESTS_H
#define DRIVE_REQUESTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

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

/* What is asked: `n_tokens` token ids that no other `seed` begins with, of `n_ids` (not 0) from
 * `first_id` on. What a body has no letter for says nothing. */
struct mt_drive_question {
    uint64_t seed;
    uint64_t n_tokens;
    uint64_t first_id;
    uint64_t n_ids;
    uint64_t n_generated;
    uint64_t n_adapters; /* of the server's, all of which are asked for */
    const char *model;   /* as the server calls it */
};

/* The body of a request, by its name in the engine's table ("complete"); the caller frees it. NULL
 * without memory. */
char *mt_drive_body(const char *engine, const char *name, const struct mt_drive_question *question);

struct mt_profile_value;

/* The same with other values in place of its letters; see mt_profile_fill(). */
char *mt_drive_body_of(const char *engine, const char *name, const struct mt_profile_value *values);

#endif
