/* SPDX-License-Identifier: MIT */
/* Reading what llama-server answered; apart from its driver so that tests reach it. */
#ifndef DRIVE_LLAMA_SERVER_H
#define DRIVE_LLAMA_SERVER_H

#include <jansson.h>
#include <stdint.h>

#include "journal.h"

struct mt_error; /* <memtally/error.h> */

/* The times that one completion states. */
struct mt_profile_completion {
    double prefill_ms;
    double decode_ms;
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
};

/* Reads the answer to a completion of `max_tokens`. Errors: MT_EFORMAT (not what llama-server
 * answers, or fewer tokens than asked). */
int mt_profile_llama_server_completion(const json_t *answer, uint64_t max_tokens,
                                       struct mt_profile_completion *completion,
                                       struct mt_error *error);

/* Takes the answers of /v1/models and /props into the facts; NULL or nonsense changes nothing. */
void mt_profile_llama_server_models(struct mt_profile_facts *facts, const json_t *models);
void mt_profile_llama_server_props(struct mt_profile_facts *facts, const json_t *props);

/* The prompt as an array of token ids: `tokens` as they are where `count` is 0, else the first
 * `count` of them, repeated where they are fewer. The caller owns the result; NULL where there are
 * none. */
json_t *mt_profile_llama_server_prompt(const json_t *tokens, uint64_t count);

#endif
