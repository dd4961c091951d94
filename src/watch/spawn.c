/* SPDX-License-Identifier: MIT */
/* Starting a program with the recorder in it, and telling which programs cannot have it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/run.h>

#include "base/become.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/filters.h"
#include "base/out_of_memory.h"
#include "base/preload.h"
#include "base/strbuf.h"
#include "watch/watch.h"

/* The variables that the program gets from us. */
enum own_variable {
    OWN_PRELOAD,
    OWN_DIRECTORY,
    OWN_DEPTH,
    OWN_STACKS,
    OWN_SHARE,
    OWN_SIDE,
    OWN_FILTERS,
    OWN_ASAN_OPTIONS,
    OWN_PYTHON_PATH,
    OWN_WATCH,
    OWN_WATCH_PARTS,
    N_OWN_VARIABLES
};

static const char *const own_names[N_OWN_VARIABLES] = {
    [OWN_PRELOAD] = "LD_PRELOAD=",
    [OWN_DIRECTORY] = "MEMTALLY_RECORD_DIR=",
    [OWN_DEPTH] = "MEMTALLY_RECORD_DEPTH=",
    [OWN_STACKS] = "MEMTALLY_RECORD_STACKS=",
    [OWN_SHARE] = "MEMTALLY_RECORD_SHARE_PPM=",
    [OWN_SIDE] = "MEMTALLY_RECORD_OTHER_DIR=",
    [OWN_FILTERS] = MT_FILTERS_VARIABLE "=",
    [OWN_ASAN_OPTIONS] = "ASAN_OPTIONS=",
    [OWN_PYTHON_PATH] = "PYTHONPATH=",
    [OWN_WATCH] = "MEMTALLY_WATCH=",
    [OWN_WATCH_PARTS] = "MEMTALLY_WATCH_PARTS=",
};

static int is_own(const char *variable)
{
    for (size_t i = 0; i < N_OWN_VARIABLES; i++)
        if (strncmp(variable, own_names[i], strlen(own_names[i])) == 0)
            return 1;
    return 0;
}

/* What the given environment says of the variables that become ours; NULL where it says nothing. */
struct given {
    const char *preloaded;
    const char *asan_options;
    const char *python_path;
    int is_rehearsed;
};

/* The address sanitizer ends a program if something is preloaded before it, unless an option
 * forbids the look. The recorder does nothing in such a program. */
static void put_asan_options(struct mt_strbuf *text, const struct given *given)
{
    if (given->asan_options)
        mt_strbuf_printf(text, "%s:", given->asan_options);
    mt_strbuf_puts(text, "verify_asan_link_order=0");
}

/* Python reads sitecustomize.py in the first folder that has one; a rehearsal's stays the first. */
static void put_python_path(struct mt_strbuf *text, const char *site, const struct given *given)
{
    const char *before = given->python_path ? given->python_path : "";
    mt_strbuf_printf(text, "%s%s%s", site ? site : "", site && *before ? ":" : "", before);
}

/* The recorder goes on under the filters that stand over us: we make calls like its own. */
static int own_filters(void)
{
    char text[MT_STATUS_BYTES];
    int fd = mt_watch_os.open(MT_OWN_STATUS, O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? -1 : mt_watch_os.read(fd, text, sizeof text - 1);
    if (fd >= 0)
        mt_watch_os.close(fd);
    text[got > 0 ? got : 0] = '\0';
    return mt_count_filters(text);
}

static char *own_variable(enum own_variable which, const struct mt_run_options *options,
                          const struct mt_run *run, const struct given *given)
{
    struct mt_strbuf text;
    double share = options->picture_share > 0 ? options->picture_share : 0.02;
    mt_strbuf_init(&text);
    mt_strbuf_puts(&text, own_names[which]);
    switch (which) {
    case OWN_PRELOAD:
        mt_preload_put(&text, run->copied_recorder ? run->copied_recorder : options->recorder_path,
                       given->preloaded, given->is_rehearsed);
        break;
    case OWN_DIRECTORY:
        mt_strbuf_puts(&text, run->directory);
        break;
    case OWN_DEPTH:
        mt_strbuf_printf(&text, "%d", (int)options->depth);
        break;
    case OWN_STACKS:
        mt_strbuf_printf(&text, "%d", (int)options->stacks);
        break;
    case OWN_SHARE: /* a quarter is left for pictures from outside */
        mt_strbuf_printf(&text, "%.0f", share * 1e6 * 0.75);
        break;
    case OWN_SIDE:
        mt_strbuf_puts(&text, run->side ? run->side : "");
        break;
    case OWN_FILTERS:
        mt_strbuf_printf(&text, "%d", own_filters());
        break;
    case OWN_PYTHON_PATH:
        put_python_path(&text, options->python_site, given);
        break;
    case OWN_WATCH:
        mt_strbuf_puts(&text, options->python_site ? run->directory : "");
        break;
    case OWN_WATCH_PARTS:
        mt_strbuf_printf(&text, "%s%s", options->tells_layers ? "layers," : "",
                         options->tells_operations ? "operations," : "");
        break;
    case OWN_ASAN_OPTIONS:
    case N_OWN_VARIABLES:
        put_asan_options(&text, given);
        break;
    }
    return mt_strbuf_take(&text);
}

static void free_environment(char **made, size_t first_own)
{
    if (!made)
        return;
    for (size_t i = 0; i < N_OWN_VARIABLES; i++)
        free(made[first_own + i]);
    free(made);
}

static const char *value_of(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] ? variable + length : NULL;
}

static void note_given(struct given *given, const char *variable)
{
    const char *preloaded = value_of(variable, own_names[OWN_PRELOAD]);
    const char *asan_options = value_of(variable, own_names[OWN_ASAN_OPTIONS]);
    if (preloaded)
        given->preloaded = preloaded;
    if (asan_options)
        given->asan_options = asan_options;
    const char *python_path = value_of(variable, own_names[OWN_PYTHON_PATH]);
    if (python_path)
        given->python_path = python_path;
    given->is_rehearsed |= value_of(variable, MT_REHEARSAL_VARIABLE "=") != NULL;
}

/* The environment with the recorder's variables in place of any that were there. *first_own is
 * where they start. */
static char **make_environment(const struct mt_run_options *options, const struct mt_run *run,
                               size_t *first_own)
{
    char *const *variables = options->environment;
    struct given given = {0};
    size_t n = 0;
    while (variables[n])
        n++;
    char **made = calloc(n + N_OWN_VARIABLES + 1, sizeof *made);
    if (!made)
        return NULL;
    *first_own = 0;
    for (size_t i = 0; i < n; i++) {
        note_given(&given, variables[i]);
        if (!options->recorder_path || !is_own(variables[i]))
            made[(*first_own)++] = variables[i];
    }
    for (size_t i = 0; i < N_OWN_VARIABLES && options->recorder_path; i++) {
        made[*first_own + i] = own_variable((enum own_variable)i, options, run, &given);
        if (!made[*first_own + i]) {
            free_environment(made, *first_own);
            return NULL;
        }
    }
    return made;
}

struct start {
    const char *program;
    const struct mt_run_options *options;
    char **environment;
    const struct sigaction *child_action;
};

static int become(void *context)
{
    const struct start *start = context;
    sigaction(SIGCHLD, start->child_action, NULL);
    if (start->options->stdout_fd >= 0)
        dup2(start->options->stdout_fd, STDOUT_FILENO);
    if (start->options->stderr_fd >= 0)
        dup2(start->options->stderr_fd, STDERR_FILENO);
    execvpe(start->program, start->options->argv,
            start->environment); /* its path: nothing is looked up */
    return errno;
}

/* The program's path. One that is named by a path is left to the kernel to judge. */
static int find(const struct mt_run_options *options, char program[PATH_MAX])
{
    if (!strchr(options->argv[0], '/'))
        return mt_environment_find(options->environment, options->argv[0], program);
    return snprintf(program, PATH_MAX, "%s", options->argv[0]) < PATH_MAX ? 0 : ENAMETOOLONG;
}

static int fail_to_run(const struct mt_run_options *options, int failed, struct mt_error *error)
{
    if (failed == ENOENT)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "%s: no such program", options->argv[0]);
    return mt_fail_errno(error, failed, "cannot run %s", options->argv[0]);
}

static int start(const struct mt_run_options *options, char **environment,
                 const struct sigaction *child_action, struct mt_error *error)
{
    char program[PATH_MAX];
    int missing = find(options, program);
    if (missing)
        return fail_to_run(options, missing, error);
    struct start start = {.program = program,
                          .options = options,
                          .environment = environment,
                          .child_action = child_action};
    pid_t pid = mt_become(become, &start);
    return pid < 0 ? fail_to_run(options, -pid, error) : pid;
}

int mt_spawn(const struct mt_run_options *options, const struct mt_run *run, struct mt_error *error)
{
    size_t first_own;
    char **environment = make_environment(options, run, &first_own);
    if (!environment)
        return mt_out_of_memory(error);
    int result = start(options, environment, &run->child_action, error);
    free_environment(environment, first_own);
    return result;
}

enum mt_outside_reason mt_outside_reason_of(const char *program)
{
    switch (mt_preload_bar_of(program)) {
    case MT_PRELOAD_STATIC:
        return MT_OUTSIDE_STATIC;
    case MT_PRELOAD_SETUID:
        return MT_OUTSIDE_SETUID;
    case MT_PRELOAD_SANITIZED:
        return MT_OUTSIDE_SANITIZED;
    case MT_PRELOAD_FREE:
        break;
    }
    return MT_OUTSIDE_NOT_LOADED;
}
