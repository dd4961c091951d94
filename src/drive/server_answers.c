/* SPDX-License-Identifier: MIT */
/* What llama-server's answers mean. Speaks to nobody. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "json_get.h"
#include "llama_server.h"

int mt_profile_llama_server_completion(const json_t *answer, uint64_t max_tokens,
                                       struct mt_profile_completion *completion,
                                       struct mt_error *error)
{
    const json_t *timings = json_object_get(answer, "timings");
    struct mt_profile_completion read = {
        mt_profile_json_real(timings, "prompt_ms"), mt_profile_json_real(timings, "predicted_ms"),
        mt_profile_json_count(timings, "prompt_n"), mt_profile_json_count(timings, "predicted_n")};
    if (read.prefill_ms < 0 || read.decode_ms < 0 || read.prompt_tokens == UINT64_MAX ||
        read.generated_tokens == UINT64_MAX)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "llama-server answered a completion without its timings; this may be a "
                       "version that memtally does not know");
    if (read.generated_tokens != max_tokens)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "llama-server generated %" PRIu64 " tokens where %" PRIu64 " were asked for",
                       read.generated_tokens, max_tokens);
    *completion = read;
    return MT_OK;
}

void mt_profile_llama_server_models(struct mt_profile_facts *facts, const json_t *models)
{
    const json_t *model = json_array_get(json_object_get(models, "data"), 0);
    const json_t *meta = json_object_get(model, "meta");
    facts->parameters = mt_profile_json_count(meta, "n_params");
    facts->size_bytes = mt_profile_json_count(meta, "size");
    facts->trained_context_tokens = mt_profile_json_count(meta, "n_ctx_train");
    MT_PROFILE_SET_TEXT(facts->dtype, mt_profile_json_text(meta, "ftype"));
}

/* "b11434-0123abc"; a build that does not know its number says "b0-unknown". */
void mt_profile_llama_server_props(struct mt_profile_facts *facts, const json_t *props)
{
    const char *build = mt_profile_json_text(props, "build_info");
    const json_t *generation = json_object_get(props, "default_generation_settings");
    facts->context_tokens = mt_profile_json_count(generation, "n_ctx");
    MT_PROFILE_SET_TEXT(facts->engine_name, "llama.cpp");
    if (build && strncmp(build, "b0-", 3) != 0)
        MT_PROFILE_SET_TEXT(facts->engine_version, build);
}

json_t *mt_profile_llama_server_prompt(const json_t *tokens, uint64_t count)
{
    size_t n = json_array_size(tokens);
    json_t *prompt = n ? json_array() : NULL;
    for (uint64_t i = 0; prompt && i < (count ? count : n); i++)
        json_array_append(prompt, json_array_get(tokens, (size_t)(i % n)));
    return prompt;
}
