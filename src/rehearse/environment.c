/* SPDX-License-Identifier: MIT */
/* The environment of a rehearsed program: the pretended devices in, the real ones out. Knows no
 * process. */
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/strbuf.h"
#include "rehearse/account.h"
#include "rehearse/program.h"

/* What a value is made of, beside the text that stands in the table. */
enum part {
    PLAIN,
    PRELOAD,   /* the pretended devices, before what was preloaded already */
    PRETEND,   /* the object that pretends devices to ggml */
    ACCOUNT,   /* the account's path */
    DIRECTORY, /* the look-alikes' folder */
    SEARCHED,  /* the same, before what was there */
    HELPER,    /* the helper's folder, before what was there */
    PROGRAMS,  /* the look-alikes of programs, before what was there */
    TEMPORARY, /* the folder for temporary files, where its path is short enough */
    CACHE      /* a folder among the caches */
};

#define DEFAULT_PATH "/bin:/usr/bin" /* of execvp(3), where there is none */

/* Engines put sockets there, whose paths have 107 bytes at most; vLLM's names have 36. */
#define TEMPORARY_BYTES 64u

#define ALWAYS 3u /* for programs of which kind */
#define GGML   1u /* without look-alikes of CUDA's libraries */
#define CUDA   2u /* with them */

/* What is set for the program, whatever stood there. The real GPUs are hidden from a CUDA program
 * by the look-alikes themselves, which answer for the devices that it asks for. */
static const struct own {
    const char *name;
    const char *value;
    enum part part;
    unsigned programs;
} own[] = {
    {"LD_PRELOAD", "", PRELOAD, ALWAYS},
    {"GGML_BACKEND_PATH", "", PRETEND, ALWAYS},
    {MT_ACCOUNT_VARIABLE, "", ACCOUNT, ALWAYS},
    {"CUDA_VISIBLE_DEVICES", "-1", PLAIN, GGML},
    {"HIP_VISIBLE_DEVICES", "-1", PLAIN, ALWAYS},
    {"ROCR_VISIBLE_DEVICES", "-1", PLAIN, ALWAYS},
    {"MUSA_VISIBLE_DEVICES", "-1", PLAIN, ALWAYS},
    {"GGML_VK_VISIBLE_DEVICES", "", PLAIN, ALWAYS}, /* a list; a number that is none is an error */
    {"ONEAPI_DEVICE_SELECTOR", "!*:gpu", PLAIN, ALWAYS},
    {"GGML_NO_BACKTRACE", "1", PLAIN, ALWAYS}, /* else an assertion that fails starts a debugger */
    {"LD_LIBRARY_PATH", "", SEARCHED, CUDA},
    {"LIBRARY_PATH", "", SEARCHED, CUDA}, /* of linkers, for programs that compile as they run */
    {"TRITON_LIBCUDA_PATH", "", DIRECTORY, CUDA},
    {"PYTHONPATH", "", HELPER, CUDA},
    {"PATH", "", PROGRAMS, CUDA},
    /* What was compiled or measured for a device that is not there is of no use to one that is. */
    {"TRITON_CACHE_DIR", "triton", CACHE, CUDA},
    {"TORCHINDUCTOR_CACHE_DIR", "inductor", CACHE, CUDA},
    {"TORCH_EXTENSIONS_DIR", "torch_extensions", CACHE, CUDA},
    {"VLLM_CACHE_ROOT", "vllm", CACHE, CUDA},
    {"FLASHINFER_WORKSPACE_BASE", "flashinfer", CACHE, CUDA},
    {"SGLANG_CACHE_DIR", "sglang", CACHE, CUDA},
    {"SGLANG_JIT_CACHE_DIR", "sglang/jit", CACHE, CUDA},
    {"SGL_DG_CACHE_DIR", "deep_gemm", CACHE, CUDA},
    {"SGLANG_DG_CACHE_DIR", "deep_gemm", CACHE, CUDA},
    {"DG_JIT_CACHE_DIR", "deep_gemm", CACHE, CUDA},
    {"TILELANG_CACHE_DIR", "tilelang", CACHE, CUDA},
    {"CUPY_CACHE_DIR", "cupy", CACHE, CUDA},
    {"CUDA_CACHE_PATH", "driver", CACHE, CUDA},
    /* What is killed cleans up nothing: its temporary files go with the rehearsal's. */
    {"TMPDIR", "", TEMPORARY, CUDA},
    {"VLLM_API_KEY", "", PLAIN, CUDA}, /* the server that is asked has no secrets */
};

#define N_OWN (sizeof own / sizeof *own)

static int is_called(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* Whether this variable is set for a program with such a stage. */
static int is_set(const struct own *variable, const struct mt_cuda_stage *stage)
{
    if (variable->part == HELPER && stage && !stage->helper)
        return 0;
    if (variable->part == TEMPORARY && stage && strlen(stage->temporary) > TEMPORARY_BYTES)
        return 0;
    return (variable->programs & (stage ? CUDA : GGML)) != 0;
}

static int is_own(const char *variable, const struct mt_cuda_stage *stage)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (is_set(&own[i], stage) && is_called(variable, own[i].name))
            return 1;
    return 0;
}

/* What values are made of. */
struct sources {
    char *const *given;
    const char *pretend_path;
    const char *account_path;
    const struct mt_cuda_stage *stage;
};

static void put_before(struct mt_strbuf *text, const char *value, const char *rest)
{
    mt_strbuf_printf(text, "%s%s%s", value, rest && *rest ? ":" : "", rest ? rest : "");
}

/* What was preloaded before comes after. */
static void put_preload(struct mt_strbuf *text, const struct sources *sources)
{
    struct mt_strbuf preload = {0};
    put_before(&preload, sources->pretend_path, sources->stage ? sources->stage->preload : NULL);
    put_before(text, mt_strbuf_text(&preload), mt_environment_get(sources->given, "LD_PRELOAD"));
    mt_strbuf_finish(&preload);
}

static char *make_own(const struct own *variable, const struct sources *sources)
{
    struct mt_strbuf text = {0};
    const char *before = mt_environment_get(sources->given, variable->name);
    mt_strbuf_printf(&text, "%s=%s", variable->name,
                     variable->part == CACHE ? "" : variable->value);
    switch (variable->part) {
    case PLAIN:
        break;
    case PRELOAD:
        put_preload(&text, sources);
        break;
    case PRETEND:
        mt_strbuf_puts(&text, sources->pretend_path);
        break;
    case ACCOUNT:
        mt_strbuf_puts(&text, sources->account_path);
        break;
    case DIRECTORY:
        mt_strbuf_puts(&text, sources->stage->directory);
        break;
    case SEARCHED:
        put_before(&text, sources->stage->directory, before);
        break;
    case HELPER:
        put_before(&text, sources->stage->helper, before);
        break;
    case TEMPORARY:
        mt_strbuf_puts(&text, sources->stage->temporary);
        break;
    case PROGRAMS:
        put_before(&text, sources->stage->programs, before ? before : DEFAULT_PATH);
        break;
    case CACHE:
        mt_strbuf_printf(&text, "%s/%s", sources->stage->caches, variable->value);
        break;
    }
    return mt_strbuf_take(&text);
}

char **mt_environment_make(char *const *given, const char *pretend_path, const char *account_path,
                           const struct mt_cuda_stage *stage)
{
    const struct sources sources = {given, pretend_path, account_path, stage};
    size_t n = 0;
    while (given[n])
        n++;
    char **made = calloc(n + N_OWN + 1, sizeof *made);
    size_t n_made = 0;
    int failed = !made;
    for (size_t i = 0; !failed && i < N_OWN; i++) {
        if (!is_set(&own[i], stage))
            continue;
        made[n_made] = make_own(&own[i], &sources);
        failed = !made[n_made++];
    }
    for (size_t i = 0; !failed && i < n; i++) {
        if (is_own(given[i], stage))
            continue;
        made[n_made] = strdup(given[i]);
        failed = !made[n_made++];
    }
    if (!failed)
        return made;
    mt_environment_free(made);
    return NULL;
}

void mt_environment_free(char **environment)
{
    for (char **at = environment; at && *at; at++)
        free(*at);
    free(environment);
}
