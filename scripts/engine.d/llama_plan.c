/* SPDX-License-Identifier: MIT */
/* Has a build of libllama load a model and make a context, so that a rehearsal sees what it plans.
 *
 * Compiled against declarations of the build that is asked and linked with it; nothing of memtally
 * is in it. usage: llama-plan -m MODEL [-c N] [-b N] [-ub N] [-np N] [-fa on|off] [-ctk TYPE]
 * [-ctv TYPE] [-ngl N] [-kvu on] [-dev none] [--outputs N], as llama.cpp's programs spell them;
 * --outputs is how many rows of logits are wanted at once, as llama-server says of its slots. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_declarations.h"

#define WARN  3 /* of enum ggml_log_level, which older declarations leave out */
#define ERROR 4

struct asked {
    const char *model;
    struct llama_model_params load;
    struct llama_context_params context;
};

static void log_line(int level, const char *text, void *data)
{
    (void)data;
    if (level == WARN || level == ERROR)
        fputs(text, stderr);
}

static void die(const char *what, const char *word)
{
    fprintf(stderr, "llama-plan: %s: %s\n", what, word);
    exit(2);
}

static int type_of(const char *name)
{
    static const struct {
        const char *name;
        int type;
    } types[] = {{"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
                 {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
                 {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1}, {"iq4_nl", GGML_TYPE_IQ4_NL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    die("no type of a cache", name);
    return 0;
}

static uint32_t *number_of(struct llama_context_params *c, const char *flag)
{
#ifdef HAS_OUTPUTS
    if (strcmp(flag, "--outputs") == 0)
        return &c->n_outputs_max;
#endif
    return strcmp(flag, "-c") == 0    ? &c->n_ctx
           : strcmp(flag, "-b") == 0  ? &c->n_batch
           : strcmp(flag, "-ub") == 0 ? &c->n_ubatch
           : strcmp(flag, "-np") == 0 ? &c->n_seq_max
                                      : NULL;
}

static void take(struct asked *asked, const char *flag, const char *word)
{
    static void *no_device[1];
    struct llama_context_params *c = &asked->context;
    uint32_t *number = number_of(c, flag);
    if (number)
        *number = (uint32_t)strtoul(word, NULL, 10);
    else if (strcmp(flag, "-m") == 0)
        asked->model = word;
    else if (strcmp(flag, "-fa") == 0)
        c->flash_attn_type = strcmp(word, "on") == 0;
    else if (strcmp(flag, "-ctk") == 0)
        c->type_k = type_of(word);
    else if (strcmp(flag, "-ctv") == 0)
        c->type_v = type_of(word);
    else if (strcmp(flag, "-ngl") == 0)
        asked->load.n_gpu_layers = atoi(word);
    else if (strcmp(flag, "-kvu") == 0)
        c->kv_unified = true;
    else if (strcmp(flag, "-dev") == 0)
        asked->load.devices = no_device;
    else
        die("this build has no flag", flag);
}

int main(int argc, char **argv)
{
    struct asked asked = {NULL, llama_model_default_params(), llama_context_default_params()};
    asked.context.n_batch = 2048;
    asked.context.n_ubatch = 512;
    asked.context.n_seq_max = 1;
    asked.context.swa_full = false; /* as llama.cpp's own programs have it */
    for (int i = 1; i + 1 < argc; i += 2)
        take(&asked, argv[i], argv[i + 1]);
    if (!asked.model)
        die("what is missing", "-m MODEL");
    llama_log_set(log_line, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(asked.model, asked.load);
    struct llama_context *context = model ? llama_init_from_model(model, asked.context) : NULL;
    if (!context)
        return 1;
    llama_free(context);
    llama_model_free(model);
    return 0;
}
