/* SPDX-License-Identifier: MIT */
/* From what was typed to the settings of an estimate. Whether an engine knows a setting is for the
 * library to say; here is only what the command line itself can get wrong. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/settings.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/cpu.h"
#include "cli/model/model.h"

const char *const estimate_device_kinds[] = {"cuda", "rocm", "vulkan", "metal", NULL};
#define NAME(NAME_, name) name,
const char *const estimate_switches[] = {MT_SWITCH_LIST(NAME) NULL};
const char *const estimate_splits[] = {MT_SPLIT_LIST(NAME) NULL};
#undef NAME
const char *const estimate_programs[] = {"auto",
#define NAME(NAME_, name) name,
                                         MT_PROGRAM_LIST(NAME)
#undef NAME
                                             NULL};

#define SAY(error, ...)  mt_fail(error, MT_EARG, MT_NO_OFFSET, __VA_ARGS__)
#define FAIL(error, ...) mt_fail(error, MT_EARG, MT_NO_OFFSET, "estimate: " __VA_ARGS__)

/* A number without a unit is bytes, and that is hardly what is meant by "24". */
static int lacks_unit(const char *text)
{
    uint64_t size;
    return *text && !text[strspn(text, "0123456789.")] && mt_parse_size(text, &size) == 0 && size &&
           size < UINT64_C(1) << 20;
}

/* The number before an x, as of "2x24GiB"; *text goes past it. */
static unsigned long read_times(const char **text)
{
    size_t digits = strspn(*text, "0123456789");
    unsigned long times = 1;
    if (digits && digits < 4 && (*text)[digits] == 'x') {
        times = strtoul(*text, NULL, 10);
        *text += digits + 1;
    }
    return times;
}

/* Whether this is the name of a GPU rather than a size: "H100-80GB", "3090". */
static int is_name(const char *text)
{
    struct mt_rehearsal_gpu gpu;
    uint64_t size;
    if (mt_rehearsal_gpu_find(text, &gpu, NULL) == 0)
        return 1;
    return isalpha((unsigned char)*text) && mt_parse_size(text, &size) != 0;
}

/* One of "24GiB", "2x24GiB", "H100-80GB" and "2xH100-80GB". */
static int parse_device(const char *text, uint64_t *sizes, char (*names)[ESTIMATE_GPU_BYTES],
                        size_t *n, struct mt_error *error)
{
    struct mt_rehearsal_gpu gpu = {.key = ""};
    const char *what = text;
    unsigned long times = read_times(&what);
    uint64_t size = 0;
    if (!times)
        return MT_EARG;
    if (times > ESTIMATE_DEVICES_MAX - *n)
        return SAY(error, "option '--device' names more than %d devices", ESTIMATE_DEVICES_MAX);
    if (is_name(what)) {
        if (mt_rehearsal_gpu_find(what, &gpu, error) < 0)
            return MT_EARG;
        size = gpu.memory_bytes;
    } else if (lacks_unit(what)) {
        return SAY(error, "option '--device' wants a unit: perhaps %.20sGiB", what);
    } else if (mt_parse_size(what, &size)) {
        return MT_EARG;
    }
    if (!size)
        return SAY(error, "option '--device': a device without memory is none; leave it out");
    for (; times--; (*n)++) {
        sizes[*n] = size;
        if (names)
            snprintf(names[*n], ESTIMATE_GPU_BYTES, "%s",
                     strlen(what) < ESTIMATE_GPU_BYTES && *gpu.key ? what : gpu.key);
    }
    return 0;
}

int estimate_parse_devices(const char *text, uint64_t *sizes, char (*names)[ESTIMATE_GPU_BYTES],
                           size_t *n, struct mt_error *error)
{
    struct mt_error why = {.text = ""};
    char copy[1024];
    size_t wanted = *n;
    if (strlen(text) >= sizeof copy)
        return FAIL(error, "the list of '--device' is too long");
    memcpy(copy, text, strlen(text) + 1);
    for (char *rest = copy; rest;) {
        char *word = strsep(&rest, ",");
        if (parse_device(word, sizes, names, &wanted, &why) == 0)
            continue;
        if (*why.text)
            return FAIL(error, "%s", why.text);
        return FAIL(error,
                    "option '--device' wants sizes such as 24GiB or 2x24GiB, or names of GPUs, at "
                    "most %d, not '%.80s'",
                    ESTIMATE_DEVICES_MAX, text);
    }
    *n = wanted;
    return 0;
}

static int read_devices(struct estimate_request *request, const struct cli_texts *texts,
                        struct mt_error *error)
{
    for (size_t i = 0; i < texts->n; i++) {
        int result =
            estimate_parse_devices(texts->items[i], request->device_bytes, request->device_gpus,
                                   &request->settings.n_devices, error);
        if (result)
            return result;
    }
    return estimate_take_kinds(request, error);
}

/* Shares such as "3,1". */
static int read_tensor_split(struct estimate_request *request, const char *text,
                             struct mt_error *error)
{
    size_t n = 0;
    const char *at = text;
    while (text && n < ESTIMATE_DEVICES_MAX) {
        char *end;
        double share = strtod(at, &end);
        if (end == at || !(share >= 0 && share < 1e9) || (*end && *end != ','))
            break;
        request->tensor_split[n++] = share;
        if (!*end) {
            request->settings.tensor_split = request->tensor_split;
            request->settings.n_tensor_split = n;
            return 0;
        }
        at = end + 1;
    }
    return text ? FAIL(error, "option '--tensor-split' wants shares such as 3,1, not '%.80s'", text)
                : 0;
}

/* Several may stand in one text, as llama.cpp takes them. A pattern may hold '=', a buffer not. */
static int read_override(struct estimate_request *request, char *text, struct mt_error *error)
{
    for (char *rest = text; rest;) {
        char *word = strsep(&rest, ",");
        char *equals = strrchr(word, '=');
        if (!equals || equals == word || !equals[1])
            return FAIL(error, "option '--override-tensor' wants PATTERN=BUFFER, not '%.80s'",
                        word);
        if (request->settings.n_overrides == ESTIMATE_OVERRIDES_MAX)
            return FAIL(error, "option '--override-tensor' takes at most %d patterns",
                        ESTIMATE_OVERRIDES_MAX);
        *equals = '\0';
        request->overrides[request->settings.n_overrides++] =
            (struct mt_tensor_override){word, equals + 1};
    }
    return 0;
}

static int read_overrides(struct estimate_request *request, const struct cli_texts *texts,
                          struct mt_error *error)
{
    for (size_t i = 0; i < texts->n; i++) {
        request->override_texts[i] = strdup(texts->items[i]);
        if (!request->override_texts[i])
            return mt_out_of_memory(error);
        int result = read_override(request, request->override_texts[i], error);
        if (result)
            return result;
    }
    request->settings.overrides = request->overrides;
    return 0;
}

/* A whole number, or "all" where that is allowed. */
static int read_count(const char *option, const char *text, int may_be_all, uint64_t *count,
                      struct mt_error *error)
{
    if (may_be_all && !strcmp(text, "all")) {
        *count = MT_ALL;
        return 0;
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (!*text || text[strspn(text, "0123456789")] || errno || value >= UINT32_MAX)
        return FAIL(error, "option '--%s' wants a whole number%s, not '%.80s'", option,
                    may_be_all ? " or 'all'" : "", text);
    *count = value;
    return 0;
}

static int read_counts(struct estimate_request *request, const struct estimate_options *options,
                       struct mt_error *error)
{
    struct mt_predict_settings *settings = &request->settings;
    int result = 0;
    settings->has_mla_mode = options->mla != NULL;
    settings->has_gpu_layers = options->gpu_layers != NULL;
    if (options->gpu_layers)
        result = read_count("gpu-layers", options->gpu_layers, 1, &settings->gpu_layers, error);
    if (!result && options->cpu_moe)
        result = read_count("cpu-moe", options->cpu_moe, 1, &settings->cpu_moe_layers, error);
    if (!result && options->mla)
        result = read_count("mla", options->mla, 0, &settings->mla_mode, error);
    return result;
}

static void copy_plain(struct mt_predict_settings *settings, const struct estimate_options *options)
{
    const char *both = options->kv_type;
    settings->engine = options->engine;
    settings->program = estimate_program(options);
    settings->context_tokens = options->context;
    settings->batch = options->batch;
    settings->ubatch = options->ubatch;
    settings->sequences = options->sequences;
    settings->kv_type_k = options->kv_type_k ? options->kv_type_k : both;
    settings->kv_type_v = options->kv_type_v ? options->kv_type_v : both;
    settings->flash_attention = (enum mt_switch)options->flash_attention;
    settings->unified_kv = options->kv_unified      ? MT_SWITCH_ON
                           : options->no_kv_unified ? MT_SWITCH_OFF
                                                    : MT_SWITCH_AUTO;
    settings->swa_full = options->swa_full;
    settings->mmap = options->no_mmap ? MT_SWITCH_OFF : MT_SWITCH_AUTO;
    settings->repack = options->no_repack ? MT_SWITCH_OFF : MT_SWITCH_AUTO;
    settings->fusion = options->no_fusion ? MT_SWITCH_OFF : MT_SWITCH_AUTO;
    settings->kv_on_host = options->no_kv_offload;
    settings->split = (enum mt_split)options->split;
    settings->attn_max_batch_mib = options->amb;
    settings->draft_tokens = options->draft_tokens;
    settings->max_concurrency = options->max_concurrency;
    settings->graph_batch = options->graph_batch;
    settings->graph_padding = options->graph_padding;
    settings->memory_share = options->memory_share;
    settings->batched_tokens = options->batched_tokens;
    settings->tensor_parallel = options->tensor_parallel;
    settings->pipeline_parallel = options->pipeline_parallel;
    settings->eager = options->eager;
    settings->weight_type = options->weight_type;
    settings->host_bytes = options->host_bytes;
    settings->device_kind =
        options->device_kind ? estimate_device_kinds[options->device_kind] : NULL;
}

static int check(const struct estimate_options *options, struct mt_error *error)
{
    if (options->kv_unified && options->no_kv_unified)
        return FAIL(error, "'--kv-unified' and '--no-kv-unified' contradict each other");
    if (options->host_bytes && options->host_bytes < UINT64_C(1) << 20)
        return FAIL(error, "option '--host' wants a unit: perhaps %" PRIu64 "GiB",
                    options->host_bytes);
    if (options->no_rehearse && options->engine_path)
        return FAIL(error, "'--no-rehearse' and '--engine-path' contradict each other");
    if (options->here && options->host_bytes)
        return FAIL(error, "'--here' and '--host' contradict each other: both say how much memory "
                           "the host has");
    if (estimate_program(options) == MT_PROGRAM_BENCH &&
        (options->sequences > 1 || options->max_sequences))
        return FAIL(error, "llama-bench runs one sequence; '--sequences' other than 1 and "
                           "'--max-sequences' want another '--program'");
    return 0;
}

enum mt_program estimate_program(const struct estimate_options *options)
{
    return options->program ? (enum mt_program)(options->program - 1) : MT_PROGRAM_SERVER;
}

/* Programs that are rehearsed for the request get ours. */
static int set_environment(const struct estimate_options *options, struct mt_error *error)
{
    if (options->no_fusion && setenv("GGML_CUDA_DISABLE_FUSION", "1", 1) < 0)
        return mt_out_of_memory(error);
    return 0;
}

int estimate_request_init(struct estimate_request *request, const struct estimate_options *options,
                          struct mt_error *error)
{
    struct mt_predict_settings *settings = &request->settings;
    int result = check(options, error);
    copy_plain(settings, options);
    settings->device_bytes = request->device_bytes;
    settings->device_used_bytes = request->device_used_bytes;
    settings->device_known = request->device_known;
    if (!result)
        result = read_counts(request, options, error);
    if (!result)
        result = read_devices(request, &options->devices, error);
    if (!result)
        result = read_tensor_split(request, options->tensor_split, error);
    if (!result)
        result = read_overrides(request, &options->overrides, error);
    if (!result)
        result = cli_take_cpu(options->cpu, &settings->processor, error);
    if (!result && options->here)
        result = estimate_look_here(request, error);
    if (!result)
        result = estimate_take_measured(request, error);
    if (!result)
        result = set_environment(options, error);
    return result;
}

int estimate_fail_as(const char *command, const struct mt_error *error)
{
    static const char *const others[] = {"estimate: ", "rehearse: "};
    struct mt_error said = *error;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(error->text, others[i], strlen(others[i])))
            snprintf(said.text, sizeof said.text, "%s: %s", command,
                     error->text + strlen(others[i]));
    return cli_fail(&said);
}

void estimate_request_finish(struct estimate_request *request)
{
    for (size_t i = 0; i < CLI_TEXTS_MAX; i++)
        free(request->override_texts[i]);
}

/* A goal, the setting that it looks for, and whether that was given too. */
struct wanted {
    int asked;
    int goal;
    const char *option;
    uint64_t given;
    const char *setting;
};

/* Whether something fits is asked of a place with a size. */
static int check_capacity(const struct estimate_options *options, const char *option,
                          struct mt_error *error)
{
    if (options->devices.n || options->host_bytes || options->here)
        return 0;
    return FAIL(error,
                "option '--%s' asks what fits; give a capacity with '--device', '--host' or "
                "'--here'",
                option);
}

int estimate_goal(const struct estimate_options *options, int *goal, struct mt_error *error)
{
    const struct wanted all[] = {
        {options->max_context, MT_GOAL_CONTEXT, "max-context", options->context, "context"},
        {options->max_sequences, MT_GOAL_SEQUENCES, "max-sequences", options->sequences,
         "sequences"},
        {options->max_batch, MT_GOAL_BATCH, "max-batch", options->ubatch, "ubatch"},
        {options->smallest_device, MT_GOAL_SMALLEST_DEVICE, "smallest-device", 0, NULL},
    };
    const struct wanted *first = NULL;
    *goal = -1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].asked)
            continue;
        if (first)
            return FAIL(error, "'--%s' and '--%s' are two questions; ask one at a time",
                        first->option, all[i].option);
        if (all[i].given)
            return FAIL(error, "'--%s' looks for what '--%s' says already", all[i].option,
                        all[i].setting);
        first = &all[i];
        *goal = all[i].goal;
    }
    if (options->matrix && (first || options->best_quant))
        return FAIL(error, "'--matrix' and '--%s' are two questions; ask one at a time",
                    first ? first->option : "best-quant");
    if (first && options->best_quant)
        return FAIL(error, "'--best-quant' and '--%s' are two questions; ask one at a time",
                    first->option);
    if (options->matrix && options->engine_path)
        return FAIL(error, "'--matrix' goes by rules alone; leave '--engine-path' out");
    if (options->changes && options->engine_path)
        return FAIL(error, "'--changes' goes by rules alone; leave '--engine-path' out");
    if (options->changes && options->matrix)
        return FAIL(error, "'--changes' and '--matrix' contradict each other");
    if (options->best_quant)
        return check_capacity(options, "best-quant", error);
    return first && *goal != MT_GOAL_SMALLEST_DEVICE ? check_capacity(options, first->option, error)
                                                     : 0;
}
