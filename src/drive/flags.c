/* SPDX-License-Identifier: MIT */
/* Flags in a command line. The table is of names alone: spellings, variables, programs. */
#include "flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPELLINGS_MAX 4

#define COMMON (1u << MT_DRIVE_LLAMA | 1u << MT_DRIVE_LLAMA_SERVER)
#define SERVER (1u << MT_DRIVE_LLAMA_SERVER)
#define BENCH  (1u << MT_DRIVE_LLAMA_BENCH)
#define PYTHON (VLLM | SGLANG)
#define VLLM   (1u << MT_DRIVE_VLLM_SERVER)
#define SGLANG (1u << MT_DRIVE_SGLANG_SERVER)

#define TRANSFORMERS 0u /* has no program of its own */

static const struct {
    const char *spellings[SPELLINGS_MAX]; /* the first one is written */
    const char *variable;
    unsigned programs;
    int lacks_value;
} flags[MT_DRIVE_FLAGS] = {
    [MT_DRIVE_MODEL] = {{"-m", "--model"}, "LLAMA_ARG_MODEL", COMMON | BENCH, 0},
    [MT_DRIVE_CONTEXT] = {{"-c", "--ctx-size"}, "LLAMA_ARG_CTX_SIZE", COMMON, 0},
    [MT_DRIVE_GPU_LAYERS] = {{"-ngl", "--n-gpu-layers", "--gpu-layers"},
                             "LLAMA_ARG_N_GPU_LAYERS",
                             COMMON | BENCH,
                             0},
    [MT_DRIVE_KV_TYPE_K] = {{"-ctk", "--cache-type-k"},
                            "LLAMA_ARG_CACHE_TYPE_K",
                            COMMON | BENCH,
                            0},
    [MT_DRIVE_KV_TYPE_V] = {{"-ctv", "--cache-type-v"},
                            "LLAMA_ARG_CACHE_TYPE_V",
                            COMMON | BENCH,
                            0},
    [MT_DRIVE_FLASH_ATTENTION] = {{"-fa", "--flash-attn"},
                                  "LLAMA_ARG_FLASH_ATTN",
                                  COMMON | BENCH,
                                  0},
    [MT_DRIVE_BATCH] = {{"-b", "--batch-size"}, "LLAMA_ARG_BATCH", COMMON | BENCH, 0},
    [MT_DRIVE_UBATCH] = {{"-ub", "--ubatch-size"}, "LLAMA_ARG_UBATCH", COMMON | BENCH, 0},
    [MT_DRIVE_SEQUENCES] = {{"-np", "--parallel"}, "LLAMA_ARG_N_PARALLEL", COMMON, 0},
    [MT_DRIVE_CPU_EXPERTS] = {{"-ncmoe", "--n-cpu-moe"}, "LLAMA_ARG_N_CPU_MOE", COMMON | BENCH, 0},
    [MT_DRIVE_ALL_CPU_EXPERTS] = {{"-cmoe", "--cpu-moe"}, "LLAMA_ARG_CPU_MOE", COMMON, 1},
    [MT_DRIVE_OVERRIDE_TENSOR] = {{"-ot", "--override-tensor"},
                                  "LLAMA_ARG_OVERRIDE_TENSOR",
                                  COMMON | BENCH,
                                  0},
    [MT_DRIVE_NO_KV_OFFLOAD] = {{"-nkvo", "--no-kv-offload"}, NULL, COMMON | BENCH, 1},
    [MT_DRIVE_DEVICES] = {{"-dev", "--device"}, "LLAMA_ARG_DEVICE", COMMON | BENCH, 0},
    [MT_DRIVE_DRAFT_MODEL] = {{"-md", "--model-draft", "--spec-draft-model"},
                              "LLAMA_ARG_SPEC_DRAFT_MODEL",
                              COMMON,
                              0},
    [MT_DRIVE_FIT_TARGET] = {{"-fitt", "--fit-target"}, "LLAMA_ARG_FIT_TARGET", COMMON, 0},
    [MT_DRIVE_CACHE_RAM] = {{"-cram", "--cache-ram"}, "LLAMA_ARG_CACHE_RAM", SERVER, 0},
    [MT_DRIVE_SLOT_SAVE_PATH] = {{"--slot-save-path"}, NULL, SERVER, 0},
    [MT_DRIVE_EMBEDDING] = {{"--embedding", "--embeddings"}, "LLAMA_ARG_EMBEDDINGS", SERVER, 1},
    [MT_DRIVE_RERANK] = {{"--rerank", "--reranking"}, "LLAMA_ARG_RERANKING", SERVER, 1},
    [MT_DRIVE_HOST] = {{"--host"}, "LLAMA_ARG_HOST", SERVER | PYTHON, 0},
    [MT_DRIVE_PORT] = {{"--port"}, "LLAMA_ARG_PORT", SERVER | PYTHON, 0},
    [MT_DRIVE_API_PREFIX] = {{"--api-prefix"}, "LLAMA_ARG_API_PREFIX", SERVER, 0},
    [MT_DRIVE_API_KEY] = {{"--api-key"}, "LLAMA_API_KEY", SERVER | PYTHON, 0},
    [MT_DRIVE_API_KEY_FILE] = {{"--api-key-file"}, NULL, SERVER, 0},
    [MT_DRIVE_SSL_KEY_FILE] = {{"--ssl-key-file", "--ssl-keyfile"},
                               "LLAMA_ARG_SSL_KEY_FILE",
                               SERVER | PYTHON,
                               0},
    [MT_DRIVE_SSL_CERT_FILE] = {{"--ssl-cert-file", "--ssl-certfile"},
                                "LLAMA_ARG_SSL_CERT_FILE",
                                SERVER | PYTHON,
                                0},
    [MT_DRIVE_REUSE_PORT] = {{"--reuse-port"}, "LLAMA_ARG_REUSE_PORT", SERVER, 1},
#define SETTING(engine, setting, flag, other, has_value, ...)                                      \
    [MT_DRIVE_##engine##_##setting] = {{flag, other}, NULL, engine, !(has_value)},
#include "settings.def"
#undef SETTING
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum mt_drive_program program_called(const char *word)
{
    const char *name = base_name(word);
    if (strcmp(name, "llama-server") == 0)
        return MT_DRIVE_LLAMA_SERVER;
    if (strcmp(name, "llama-bench") == 0)
        return MT_DRIVE_LLAMA_BENCH;
    return strncmp(name, "llama-", 6) == 0 ? MT_DRIVE_LLAMA : MT_DRIVE_UNKNOWN_PROGRAM;
}

/* `vllm serve`, `python -m vllm.entrypoints.openai.api_server`, and the same of SGLang. */
static enum mt_drive_program python_server(char *const *words)
{
    static const struct {
        const char *first;
        const char *second;
        enum mt_drive_program program;
    } servers[] = {{"vllm", "serve", MT_DRIVE_VLLM_SERVER},
                   {"-m", "vllm.entrypoints.openai.api_server", MT_DRIVE_VLLM_SERVER},
                   {"-m", "vllm.entrypoints.api_server", MT_DRIVE_VLLM_SERVER},
                   {"sglang", "serve", MT_DRIVE_SGLANG_SERVER},
                   {"-m", "sglang.launch_server", MT_DRIVE_SGLANG_SERVER}};
    for (size_t i = 0; words[1] && i < sizeof servers / sizeof *servers; i++)
        if (strcmp(base_name(words[0]), servers[i].first) == 0 &&
            strcmp(words[1], servers[i].second) == 0)
            return servers[i].program;
    return MT_DRIVE_UNKNOWN_PROGRAM;
}

/* Our own small programs, which have a model and their settings behind them. */
static enum mt_drive_program python_model(char *const *words)
{
    const char *name = base_name(words[0]);
    if (!words[1] || !words[2])
        return MT_DRIVE_UNKNOWN_PROGRAM;
    if (strcmp(name, "rehearse_vllm.py") == 0)
        return MT_DRIVE_VLLM_MODEL;
    if (strcmp(name, "rehearse_sglang.py") == 0)
        return MT_DRIVE_SGLANG_MODEL;
    return strcmp(name, "rehearse_transformers.py") == 0 ? MT_DRIVE_TRANSFORMERS_MODEL
                                                         : MT_DRIVE_UNKNOWN_PROGRAM;
}

/* Words before the program's belong to what starts it: `env A=b nice -n 5 llama-server`. */
static void find_program(struct mt_drive_command *command)
{
    for (size_t i = 0; i < command->n_words; i++) {
        enum mt_drive_program server = python_server(command->words + i);
        enum mt_drive_program program = server ? server : python_model(command->words + i);
        if (program == MT_DRIVE_UNKNOWN_PROGRAM)
            program = program_called(command->words[i]);
        if (program != MT_DRIVE_UNKNOWN_PROGRAM) {
            command->program = program;
            command->program_index = i + (server != MT_DRIVE_UNKNOWN_PROGRAM);
            return;
        }
    }
}

void mt_drive_command_copy(char *const *argv, struct mt_drive_command *command)
{
    size_t n = 0;
    *command = (struct mt_drive_command){0};
    while (argv[n])
        n++;
    command->words = calloc(n + 1, sizeof *command->words);
    command->failed = !command->words;
    for (size_t i = 0; !command->failed && i < n; i++) {
        command->words[i] = strdup(argv[i]);
        command->failed = !command->words[i];
        command->n_words += !command->failed;
    }
    if (!command->failed)
        find_program(command);
}

void mt_drive_command_finish(struct mt_drive_command *command)
{
    for (size_t i = 0; i < command->n_words; i++)
        free(command->words[i]);
    free(command->words);
    *command = (struct mt_drive_command){0};
}

int mt_drive_is_llama(const struct mt_drive_command *command)
{
    return command->program == MT_DRIVE_LLAMA || command->program == MT_DRIVE_LLAMA_SERVER ||
           command->program == MT_DRIVE_LLAMA_BENCH;
}

int mt_drive_is_python_server(const struct mt_drive_command *command)
{
    return command->program == MT_DRIVE_VLLM_SERVER || command->program == MT_DRIVE_SGLANG_SERVER;
}

int mt_drive_flag_is_known(const struct mt_drive_command *command, enum mt_drive_flag flag)
{
    return (flags[flag].programs >> command->program & 1) != 0;
}

/* As long as `name` where `word` begins with it, else 0. llama.cpp takes --ctx_size too. */
static size_t matched_length(const char *word, const char *name)
{
    size_t i = 0;
    int is_long = strncmp(name, "--", 2) == 0;
    for (; name[i]; i++) {
        char c = is_long && i > 1 && word[i] == '_' ? '-' : word[i];
        if (c != name[i])
            return 0;
    }
    return i;
}

/* The spelling of the flag that `word` is, or NULL; *value is then what follows its '=', or NULL.
 */
static const char *spelling_of(const char *word, enum mt_drive_flag flag, const char **value)
{
    for (size_t i = 0; i < SPELLINGS_MAX && flags[flag].spellings[i]; i++) {
        const char *name = flags[flag].spellings[i];
        size_t length = matched_length(word, name);
        int is_joined = length > 0 && word[length] == '=' && strncmp(name, "--", 2) == 0;
        if (length > 0 && (word[length] == '\0' || is_joined)) {
            *value = is_joined ? word + length + 1 : NULL;
            return name;
        }
    }
    return NULL;
}

/* The flag that a word is, of those that the program knows, or MT_DRIVE_FLAGS. */
static enum mt_drive_flag flag_of(const struct mt_drive_command *command, const char *word,
                                  const char **value)
{
    for (enum mt_drive_flag flag = 0; flag < MT_DRIVE_FLAGS; flag++)
        if (mt_drive_flag_is_known(command, flag) && spelling_of(word, flag, value))
            return flag;
    return MT_DRIVE_FLAGS;
}

/* A flag, and no value: negative numbers are values, and older programs' -fa has none. */
static int looks_like_flag(const char *word)
{
    return word[0] == '-' && (word[1] == '-' || (word[1] >= 'A' && word[1] <= 'z'));
}

/* One flag of the command line: `n` words from `index` on. */
struct place {
    size_t index;
    size_t n;
    const char *value;
    int is_joined; /* "--ctx-size=4096" */
};

/* How many words after a flag are its values. The keys of an OpenAI-compatible server in Python may
 * be several, up to the next flag. */
static size_t n_values(const struct mt_drive_command *command, enum mt_drive_flag flag, size_t from)
{
    size_t most =
        flag == MT_DRIVE_API_KEY && mt_drive_is_python_server(command) ? command->n_words : 1;
    size_t n = 0;
    while (n < most && from + n < command->n_words && !looks_like_flag(command->words[from + n]))
        n++;
    return n;
}

/* Finds the next place of `flag` from word `from` on. Values of other flags are stepped over. */
static int next_place(const struct mt_drive_command *command, enum mt_drive_flag wanted,
                      size_t from, struct place *place)
{
    for (size_t i = from; i < command->n_words; i++) {
        const char *value = NULL;
        enum mt_drive_flag flag = flag_of(command, command->words[i], &value);
        if (flag == MT_DRIVE_FLAGS)
            continue;
        size_t n = value || flags[flag].lacks_value ? 0 : n_values(command, flag, i + 1);
        if (flag == wanted) {
            *place = (struct place){i, n + 1, n ? command->words[i + 1] : value, value != NULL};
            return 1;
        }
        i += n;
    }
    return 0;
}

/* The last place decides: llama.cpp takes the last one too. */
static int last_place(const struct mt_drive_command *command, enum mt_drive_flag flag,
                      struct place *last)
{
    struct place place;
    int found = 0;
    size_t from = command->program_index + 1;
    while (next_place(command, flag, from, &place)) {
        *last = place;
        from = place.index + place.n;
        found = 1;
    }
    return found;
}

static const char *variable_value(char *const *environment, const char *name)
{
    size_t length = name ? strlen(name) : 0;
    for (size_t i = 0; name && environment && environment[i]; i++)
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
            return environment[i] + length + 1;
    return NULL;
}

const char *mt_drive_flag_value(const struct mt_drive_command *command, char *const *environment,
                                enum mt_drive_flag flag)
{
    struct place place;
    if (!mt_drive_flag_is_known(command, flag))
        return NULL;
    if (last_place(command, flag, &place))
        return flags[flag].lacks_value ? "1" : place.value;
    if (command->program == MT_DRIVE_LLAMA_BENCH || !mt_drive_is_llama(command))
        return NULL; /* reads no variables of llama.cpp's */
    return variable_value(environment, flags[flag].variable);
}

static void replace_word(struct mt_drive_command *command, size_t index, char *word)
{
    if (!word) {
        command->failed = 1;
        return;
    }
    free(command->words[index]);
    command->words[index] = word;
}

/* "--ctx-size=4096" with another value. */
static char *joined(const char *word, const char *value)
{
    size_t length = strcspn(word, "=") + 1;
    char *text = malloc(length + strlen(value) + 1);
    if (text) {
        memcpy(text, word, length);
        strcpy(text + length, value);
    }
    return text;
}

static void insert_word(struct mt_drive_command *command, size_t index, const char *word)
{
    char *copy = strdup(word);
    char **words = copy ? realloc(command->words, (command->n_words + 2) * sizeof *words) : NULL;
    if (!words) {
        free(copy);
        command->failed = 1;
        return;
    }
    memmove(words + index + 1, words + index, (command->n_words + 1 - index) * sizeof *words);
    words[index] = copy;
    command->words = words;
    command->n_words++;
}

void mt_drive_flag_set(struct mt_drive_command *command, enum mt_drive_flag flag, const char *value)
{
    struct place place;
    if (command->failed)
        return;
    if (!last_place(command, flag, &place)) {
        insert_word(command, command->n_words, flags[flag].spellings[0]);
        if (!command->failed && !flags[flag].lacks_value)
            insert_word(command, command->n_words, value);
    } else if (place.is_joined) {
        replace_word(command, place.index, joined(command->words[place.index], value));
    } else if (place.n > 1) {
        replace_word(command, place.index + 1, strdup(value));
    } else if (!flags[flag].lacks_value) {
        insert_word(command, place.index + 1, value);
    }
}

void mt_drive_flag_drop(struct mt_drive_command *command, enum mt_drive_flag flag)
{
    struct place place;
    while (!command->failed && mt_drive_flag_is_known(command, flag) &&
           last_place(command, flag, &place)) {
        for (size_t i = 0; i < place.n; i++)
            free(command->words[place.index + i]);
        memmove(command->words + place.index, command->words + place.index + place.n,
                (command->n_words - place.index - place.n + 1) * sizeof *command->words);
        command->n_words -= place.n;
    }
}

const char *mt_drive_flag_spelling(const struct mt_drive_command *command, enum mt_drive_flag flag)
{
    struct place place;
    const char *value = NULL;
    if (!last_place(command, flag, &place))
        return flags[flag].spellings[0];
    return spelling_of(command->words[place.index], flag, &value);
}

uint64_t mt_drive_flag_number(const char *text, uint64_t otherwise)
{
    char *end = NULL;
    if (!text || text[0] < '0' || text[0] > '9')
        return otherwise;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    return errno || *end ? otherwise : number;
}
