/* SPDX-License-Identifier: MIT */
/* Setting the stage of rehearsals. Starts nothing but the engine's --version. */
#include "stage.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/predict.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "engine_version.h"
#include "engines.h"
#include "find.h"
#include "pretend_path.h"

/* What the engine calls a program. */
static const char *program_name(enum mt_program program, char name[MT_DRIVE_ENGINE_TEXT])
{
    static const char *const words[] = {[MT_PROGRAM_SERVER] = "server",
                                        [MT_PROGRAM_BENCH] = "bench",
                                        [MT_PROGRAM_FIT_PARAMS] = "fit_params"};
    return mt_drive_engine_word(NULL, "rehearse.program", words[program], name);
}

/* The program called `name` in the folder of the program at `other`. */
static int is_beside(const char *other, const char *name, char path[PATH_MAX])
{
    const char *slash = strrchr(other, '/');
    int length = slash ? (int)(slash - other) : 0;
    return snprintf(path, PATH_MAX, "%.*s/%s", length, other, name) < PATH_MAX &&
           access(path, X_OK) == 0;
}

/* A program that cannot be profiled is looked for beside one that can. */
static int find_beside(const char *given, const struct mt_profile_places *places, const char *name,
                       struct mt_profile_engine *engine, char path[PATH_MAX],
                       struct mt_error *error)
{
    static const enum mt_program others[] = {MT_PROGRAM_SERVER, MT_PROGRAM_BENCH};
    char other[MT_DRIVE_ENGINE_TEXT];
    int result = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        result = mt_profile_find_engine(program_name(others[i], other), given, places, engine,
                                        i ? NULL : error);
        if (result == 0 && is_beside(engine->program, name, path))
            return 0;
    }
    return result < 0 ? result
                      : mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "there is no %s beside %s",
                                name, engine->program);
}

/* A given program stands for the folder that it lies in, unless it is the very one. */
static int take_given(const char *given, const char *name, char path[PATH_MAX])
{
    struct stat status;
    char real[PATH_MAX];
    if (stat(given, &status) != 0 || !S_ISREG(status.st_mode) || !realpath(given, real))
        return 0;
    const char *slash = strrchr(real, '/');
    if (!strncmp(slash + 1, name, strlen(name)) && access(real, X_OK) == 0) {
        memcpy(path, real, PATH_MAX);
        return 1;
    }
    return is_beside(real, name, path);
}

/* The engine in Node.js is that, a program of ours, and the package's modules. */
static int find_node(const char *given, char *const *environment, struct mt_profile_engine *engine,
                     struct mt_error *error)
{
    char engines[PATH_MAX];
    char scripts[PATH_MAX];
    mt_profile_engines_folder(environment, engines, sizeof engines);
    mt_profile_scripts_folder(scripts, sizeof scripts);
    const struct mt_profile_places places = {
        .engines = engines, .path = mt_environment_get(environment, "PATH"), .scripts = scripts};
    return mt_profile_find_engine(mt_profile_node_llama_cpp.name, given, &places, engine, error);
}

static int find_with(enum mt_program program, const char *given, char *const *environment,
                     struct mt_profile_engine *engine, char path[PATH_MAX], struct mt_error *error)
{
    char engines[PATH_MAX];
    int result;
    if (program == MT_PROGRAM_NODE) {
        result = find_node(given, environment, engine, error);
        if (result == 0)
            memcpy(path, engine->program, PATH_MAX);
        return result;
    }
    char name[MT_DRIVE_ENGINE_TEXT];
    program_name(program, name);
    mt_profile_engines_folder(environment, engines, sizeof engines);
    const struct mt_profile_places places = {.engines = engines,
                                             .path = mt_environment_get(environment, "PATH")};
    if (given && take_given(given, name, path))
        return 0;
    if (program == MT_PROGRAM_FIT_PARAMS)
        return find_beside(given, &places, name, engine, path, error);
    result = mt_profile_find_engine(name, given, &places, engine, error);
    if (result == 0 && !realpath(engine->program, path))
        memcpy(path, engine->program, PATH_MAX);
    return result;
}

int mt_drive_find_program(enum mt_program program, const char *given, char *const *environment,
                          char path[PATH_MAX], struct mt_error *error)
{
    struct mt_profile_engine *engine = malloc(sizeof *engine);
    int result = engine ? find_with(program, given, environment, engine, path, error)
                        : mt_out_of_memory(error);
    free(engine);
    return result;
}

static int take_node(struct mt_drive_stage *stage, const char *given, struct mt_error *error)
{
    struct mt_profile_engine engine;
    int result = find_node(given, stage->environment, &engine, error);
    if (result < 0)
        return result;
    stage->program = MT_PROGRAM_NODE;
    memcpy(stage->program_path, engine.program, PATH_MAX);
    memcpy(stage->script_path, engine.script, PATH_MAX);
    memcpy(stage->modules_path, engine.modules, PATH_MAX);
    return 0;
}

/* The complaint is about the program, if node-llama-cpp would do and is not there either. */
static int find_program(struct mt_drive_stage *stage, const struct mt_drive_stage_options *options,
                        struct mt_error *error)
{
    const char *given = options->engine_path;
    if (stage->program == MT_PROGRAM_NODE)
        return take_node(stage, given, error);
    int result = mt_drive_find_program(stage->program, given, stage->environment,
                                       stage->program_path, error);
    if (result < 0 && options->may_be_node && take_node(stage, given, NULL) == 0)
        return 0;
    return result;
}

/* The version by which rules know an engine ("11434" of "llama.cpp@0.6.0-dev", "llama.cpp@b11434"),
 * or "" where they know none such. */
static void resolve(const struct mt_model *model, const char *name, char version[64])
{
    const struct mt_predict_settings settings = {.engine = name};
    struct mt_estimate *estimate;
    version[0] = '\0';
    if (mt_estimate_create(model, &settings, &estimate, NULL) < 0)
        return;
    const char *text = estimate->tally.engine_version;
    text += *text == 'b';
    snprintf(version, 64, "%.*s", (int)strcspn(text, " ("), text);
    mt_estimate_destroy(estimate);
}

/* Out of "11434 (abcdef)" or "0.4.0-dev (build 10840, commit unknown)" the build, else the first
 * word. Somebody's own build may have the number 0, which is none. */
static void read_build(const char *version, char build[64])
{
    static const char word[] = "(build ";
    const char *number = strstr(version, word);
    if (number && number[sizeof word - 1] != '0')
        version = number + sizeof word - 1;
    snprintf(build, 64, "%.*s", (int)strcspn(version, " (,"), version);
    if (!strcmp(build, "0"))
        build[0] = '\0';
}

/* A version such as 0.5.0 is that of many builds. */
static int is_number(const char *build)
{
    return *build && !build[strspn(build, "0123456789")];
}

void mt_drive_ask_build(const char *program, char *const *environment, char build[64])
{
    char version[64] = "";
    mt_profile_ask_version(program, environment, version, sizeof version);
    read_build(version, build);
    if (!is_number(build))
        build[0] = '\0';
}

/* Asks the engine for its version. */
static void ask_version(struct mt_drive_stage *stage, char resolved[64])
{
    mt_profile_ask_version(stage->program_path, stage->environment, stage->version,
                           sizeof stage->version);
    read_build(stage->version, stage->build);
    snprintf(stage->engine_name, sizeof stage->engine_name, "%s%s%s", mt_engine_name_at(0),
             *stage->build ? "@" : "", stage->build);
    resolve(stage->model, stage->engine_name, resolved);
    if (*resolved && *stage->build)
        return;
    resolved[0] = stage->build[0] = '\0';
    snprintf(stage->engine_name, sizeof stage->engine_name, "%s", mt_engine_name_at(0));
}

/* The package does not say its build, so we take the user at his word. */
static int take_node_version(struct mt_drive_stage *stage, const char *asked)
{
    const char *at = asked ? strchr(asked, '@') : NULL;
    snprintf(stage->version, sizeof stage->version, "%s", at ? at + 1 : "");
    snprintf(stage->build, sizeof stage->build, "%s", stage->version);
    snprintf(stage->rules_build, sizeof stage->rules_build, "%s", stage->version);
    snprintf(stage->engine_name, sizeof stage->engine_name, "%s",
             asked ? asked : mt_engine_name_at(0));
    return 0;
}

int mt_drive_check_version(const struct mt_drive_stage *stage, const char *found,
                           struct mt_error *error)
{
    char build[64];
    char name[96];
    char asked[64];
    char really[64];
    if (stage->program != MT_PROGRAM_NODE || !*stage->version || !*found)
        return 0;
    read_build(found, build);
    snprintf(name, sizeof name, "%s@%s", mt_engine_name_at(0), build);
    resolve(stage->model, stage->engine_name, asked);
    resolve(stage->model, name, really);
    if (!*asked || !*really || !strcmp(asked, really))
        return 0;
    return mt_fail(error, MT_EVERSION, MT_NO_OFFSET,
                   "the %s of %s is of version %s, and %.60s was asked for; leave the "
                   "version out, or name another with --engine-path",
                   mt_engine_name_at(0), stage->modules_path, found, stage->engine_name);
}

/* The engine must be of the asked version. */
static int take_version(struct mt_drive_stage *stage, const struct mt_drive_stage_options *options,
                        struct mt_error *error)
{
    char found[64];
    char wanted[64];
    const char *at = options->engine_name ? strchr(options->engine_name, '@') : NULL;
    if (stage->program == MT_PROGRAM_NODE)
        return take_node_version(stage, options->engine_name);
    ask_version(stage, found);
    snprintf(stage->rules_build, sizeof stage->rules_build, "%s",
             at                        ? at + 1
             : is_number(stage->build) ? stage->build
                                       : "");
    if (!at)
        return 0;
    resolve(stage->model, options->engine_name, wanted);
    if (*found && !strcmp(found, wanted))
        return 0;
    if (*found || !options->engine_path)
        return mt_fail(error, MT_EVERSION, MT_NO_OFFSET,
                       "%s is of version %s, and %.60s was asked for; name another with "
                       "--engine-path",
                       stage->program_path, *stage->version ? stage->version : "unknown",
                       options->engine_name);
    snprintf(stage->build, sizeof stage->build, "%s", at + 1);
    snprintf(stage->engine_name, sizeof stage->engine_name, "%s", options->engine_name);
    return 0;
}

static int make_folder(struct mt_drive_stage *stage, struct mt_error *error)
{
    int length = snprintf(stage->directory, sizeof stage->directory, "%s/memtally-rehearse-XXXXXX",
                          mt_environment_temporary(stage->environment));
    if (length >= (int)sizeof stage->directory - 32) {
        stage->directory[0] = '\0';
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "TMPDIR is too long");
    }
    if (mkdtemp(stage->directory))
        return 0;
    int why = errno;
    int result = mt_fail_errno(error, why, "%s", stage->directory);
    stage->directory[0] = '\0';
    return result;
}

static int is_plain_gguf(const struct mt_drive_stage_options *options)
{
    const struct mt_model_description *d = mt_model_describe(options->model);
    static const char ending[] = ".gguf";
    size_t length = strlen(d->path);
    return d->format == MT_MODEL_GGUF && !options->write_sparse && d->n_files <= 1 &&
           length > sizeof ending && !strcmp(d->path + length - (sizeof ending - 1), ending);
}

static int make_model(struct mt_drive_stage *stage, const struct mt_drive_stage_options *options,
                      struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(options->model);
    int drops = options->drop_vocabulary && stage->program != MT_PROGRAM_NODE;
    struct mt_sparse_options sparse = {.drop_vocabulary = drops};
    stage->drops_vocabulary = drops;
    if (is_plain_gguf(options) && !drops)
        return realpath(d->path, stage->model_path) ? 0
                                                    : mt_fail_errno(error, errno, "%s", d->path);
    sparse.type = d->dtype && !strcmp(d->dtype, "bf16") ? MT_FILE_BF16 : MT_FILE_F16;
    if (options->file_type && mt_file_type_by_name(options->file_type, &sparse.type) < 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s stores no weights as '%.40s'; try f16, q8_0 or q4_k_m",
                       mt_engine_name_at(0), options->file_type);
    if (d->format != MT_MODEL_GGUF)
        stage->file_type = mt_file_type_name(sparse.type);
    if (snprintf(stage->model_path, sizeof stage->model_path, "%s/model.gguf", stage->directory) >=
        (int)sizeof stage->model_path)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the path is too long",
                       stage->directory);
    return (options->write_sparse ? options->write_sparse : mt_model_write_sparse)(
        options->model, stage->model_path, &sparse, error);
}

int mt_drive_stage_init(struct mt_drive_stage *stage, const struct mt_drive_stage_options *options,
                        struct mt_error *error)
{
    *stage = (struct mt_drive_stage){.program = options->program,
                                     .model = options->model,
                                     .generation = options->generation,
                                     .device_names = options->device_names,
                                     .reserved_bytes = options->reserved_bytes,
                                     .timeout_ns = options->timeout_ns,
                                     .interrupted = options->interrupted,
                                     .environment = options->environment};
    int result = find_program(stage, options, error);
    if (result == 0)
        result = mt_drive_find_pretend(stage->environment, stage->pretend_path,
                                       sizeof stage->pretend_path, error);
    if (result == 0)
        result = take_version(stage, options, error);
    if (result == 0)
        result = make_folder(stage, error);
    if (result == 0)
        result = make_model(stage, options, error);
    if (result < 0)
        mt_drive_stage_finish(stage);
    return result;
}

int mt_drive_stage_converted(const struct mt_drive_stage *stage, uint64_t *weight_bytes)
{
    struct mt_model *made;
    if (!stage->file_type || mt_model_open(stage->model_path, NULL, &made, NULL) < 0)
        return 0;
    *weight_bytes = mt_model_describe(made)->weight_bytes;
    mt_model_close(made);
    return 1;
}

int mt_drive_check_devices(size_t n_devices, struct mt_error *error)
{
    if (n_devices <= MT_DRIVE_DEVICES_MAX)
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "%zu devices: ggml takes 16 at a time, of which one is the CPU, so at most %d",
                   n_devices, MT_DRIVE_DEVICES_MAX);
}

int mt_drive_stage_folder(const struct mt_drive_stage *stage, size_t number, char path[PATH_MAX],
                          struct mt_error *error)
{
    if (snprintf(path, PATH_MAX, "%s/%zu", stage->directory, number) >= PATH_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the path is too long",
                       stage->directory);
    return 0;
}

void mt_drive_folder_remove(const char *path)
{
    char *roots[] = {(char *)path, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; tree && (entry = fts_read(tree));) {
        if (entry->fts_info == FTS_DP)
            rmdir(entry->fts_path);
        else if (entry->fts_info != FTS_D)
            unlink(entry->fts_path);
    }
    if (tree)
        fts_close(tree);
}

void mt_drive_stage_finish(struct mt_drive_stage *stage)
{
    if (stage->directory[0])
        mt_drive_folder_remove(stage->directory);
    stage->directory[0] = '\0';
}
