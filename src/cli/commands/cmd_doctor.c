/* SPDX-License-Identifier: MIT */
/* memtally doctor: what can be measured on this machine, and what to do about what cannot. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/doctor.h>
#include <memtally/error.h>
#include <memtally/job.h>

#include "cli/calibrate.h"
#include "cli/command.h"
#include "cli/console.h"
#include "drive/find.h"
#include "drive/objects.h"
#include "emit/json.h"
#include "emit/text.h"

struct doctor_options {
    int json;
    int calibrate;
    const char *directory;
};

#define AT(member) offsetof(struct doctor_options, member)

static const struct cli_option doctor_options[] = {
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print the findings as JSON"},
    {.name = "calibrate",
     .kind = CLI_FLAG,
     .offset = AT(calibrate),
     .help = "measure in about two seconds what the driver takes of each NVIDIA card, and keep "
             "it for estimates and rehearsals of these cards"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = AT(directory),
     .help = "an existing folder in which recordings will be written (default: the current one)"},
    {0},
};

/* ---- whether a program can be recorded ---- */

enum { MAPS_MAX = 1 << 20, WAIT_MS = 10000 };

/* The environment with LD_PRELOAD set to `recorder` alone; owned by the caller, who frees the array
 * and its first entry. NULL without memory. */
static char **preloading_environment(const char *recorder)
{
    extern char **environ;
    size_t n = 0;
    while (environ[n])
        n++;
    char **copy = calloc(n + 2, sizeof *copy);
    size_t length = strlen("LD_PRELOAD=") + strlen(recorder) + 1;
    if (!copy || !(copy[0] = malloc(length))) {
        free(copy);
        return NULL;
    }
    snprintf(copy[0], length, "LD_PRELOAD=%s", recorder);
    size_t at = 1;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0)
            copy[at++] = environ[i];
    }
    return copy;
}

/* Starts `cat /proc/self/maps` with its output in *fd. Returns 0 or an errno value. */
static int start_cat(const char *recorder, pid_t *child, int *fd)
{
    int ends[2];
    char program[] = "cat";
    char maps[] = "/proc/self/maps";
    char *arguments[] = {program, maps, NULL};
    char **environment = preloading_environment(recorder);
    if (!environment)
        return ENOMEM;
    int status = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
    if (status == 0) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        status = posix_spawnp(child, program, &actions, NULL, arguments, environment);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        if (status != 0)
            close(ends[0]);
    }
    free(environment[0]);
    free(environment);
    *fd = ends[0];
    return status;
}

/* Reads what the child prints. Returns 0 where it does not come to its end in time. */
static int read_all(int fd, struct mt_strbuf *text)
{
    char bytes[4096];
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    while (text->length < MAPS_MAX) {
        int ready = poll(&waiting, 1, WAIT_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t n = ready > 0 ? read(fd, bytes, sizeof bytes) : -1;
        if (n <= 0)
            return n == 0;
        mt_strbuf_append(text, bytes, (size_t)n);
    }
    return 1;
}

/* Reads all that the child prints, ends it if it hangs, and takes its status. Returns 1 for a child
 * that came to a good end by itself. */
static int finish_cat(pid_t child, int fd, struct mt_strbuf *maps)
{
    int exit_status = 0;
    int ended = read_all(fd, maps);
    close(fd);
    if (!ended)
        kill(child, SIGKILL);
    while (waitpid(child, &exit_status, 0) < 0 && errno == EINTR)
        continue;
    return ended && exit_status == 0;
}

/* Runs a small program with the recorder in it and looks whether it is there. */
static void try_preload(struct mt_check *check, const char *recorder)
{
    pid_t child;
    int fd;
    int status = start_cat(recorder, &child, &fd);
    if (status != 0) {
        check->state = MT_CHECK_LIMITED;
        snprintf(check->finding, sizeof check->finding, "not tried, cat could not be run: %s",
                 strerror(status));
        return;
    }
    struct mt_strbuf maps = {0};
    int is_well = finish_cat(child, fd, &maps);
    int is_in_it = strstr(mt_strbuf_text(&maps), recorder) != NULL;
    mt_strbuf_finish(&maps);
    if (is_well && is_in_it) {
        check->state = MT_CHECK_OK;
        snprintf(check->finding, sizeof check->finding, "programs load the recorder");
        return;
    }
    snprintf(check->finding, sizeof check->finding, "a test program %s",
             is_well ? "did not load the recorder" : "failed with the recorder in it");
    snprintf(check->advice, sizeof check->advice,
             "see what this says: LD_PRELOAD=%.160s cat /dev/null", recorder);
}

static void check_preload(struct mt_check *check)
{
    char recorder[PATH_MAX];
    struct mt_error error;
    *check = (struct mt_check){.name = "preload", .essential = 1, .state = MT_CHECK_MISSING};
    if (mt_drive_find_recorder(environ, recorder, sizeof recorder, &error) == 0) {
        try_preload(check, recorder);
        return;
    }
    snprintf(check->finding, sizeof check->finding, "the recorder was not found");
    snprintf(check->advice, sizeof check->advice, "%.*s", (int)sizeof check->advice - 1,
             error.text);
}

/* ---- how memtally exec and test hold programs to what they need ---- */

/* Makes a control group and removes it: that it may be made is seen by nothing less. */
static void check_host_cap(struct mt_check *check)
{
    struct mt_error error;
    *check = (struct mt_check){.name = "host_cap", .state = MT_CHECK_OK};
    if (mt_job_can_cap(MT_JOB_CAP_GROUP, &error) == 0) {
        snprintf(check->finding, sizeof check->finding,
                 "programs are held to host memory by a control group");
        return;
    }
    check->state = MT_CHECK_LIMITED;
    snprintf(check->finding, sizeof check->finding,
             "programs are held to host memory by RLIMIT_DATA, each process by itself");
    snprintf(check->advice, sizeof check->advice, "%.*s", (int)sizeof check->advice - 1,
             error.text);
}

static void check_device_cap(struct mt_check *check)
{
    struct mt_job_machine machine;
    *check = (struct mt_check){.name = "device_cap", .state = MT_CHECK_OK};
    if (mt_job_look(&machine, NULL, NULL) < 0 || machine.n < 2) {
        snprintf(check->finding, sizeof check->finding,
                 "pretended devices refuse by themselves; there is no real one");
        return;
    }
    check->state = MT_CHECK_LIMITED;
    snprintf(check->finding, sizeof check->finding,
             "no driver holds a program to a part of a device; the recorder in it refuses what is "
             "past the part");
    snprintf(check->advice, sizeof check->advice,
             "for programs that the recorder cannot enter, as static ones, exec and test have "
             "--cap watch, which kills a program that is seen past its need");
}

/* ---- engines that the environment names ---- */

/* Whether profile would take this engine out of the cache. */
static int is_cached(const char *name, const struct mt_profile_places *places)
{
    struct mt_error error;
    size_t length = strlen(places->engines);
    struct mt_profile_engine *engine = length ? malloc(sizeof *engine) : NULL;
    int is_below = 0;
    if (engine && mt_profile_find_engine(name, NULL, places, engine, &error) == MT_OK) {
        const char *path = *engine->modules ? engine->modules : engine->program;
        is_below = strncmp(path, places->engines, length) == 0 && path[length] == '/';
    }
    free(engine);
    return is_below;
}

/* The library looks on PATH only; the cache is found by the environment. */
static void add_cached_engines(struct mt_check *check)
{
    static const char *const names[] = {"node-llama-cpp", "llama-server", "llama-bench"};
    char engines[PATH_MAX];
    char scripts[PATH_MAX];
    char cached[64] = "";
    mt_profile_engines_folder(environ, engines, sizeof engines);
    mt_profile_scripts_folder(scripts, sizeof scripts);
    const struct mt_profile_places places = {
        .engines = engines, .path = getenv("PATH"), .scripts = scripts};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!is_cached(names[i], &places))
            continue;
        strcat(cached, *cached ? ", " : "");
        strcat(cached, names[i]);
    }
    if (!*cached)
        return;
    size_t used = check->state == MT_CHECK_OK ? strlen(check->finding) : 0;
    snprintf(check->finding + used, sizeof check->finding - used, "%sin the cache: %s",
             used ? "; " : "", cached);
    check->state = MT_CHECK_OK;
    check->advice[0] = '\0';
}

static void complete_engines(struct mt_check *checks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(checks[i].name, "engines") == 0)
            add_cached_engines(&checks[i]);
}

/* ---- what is shown ---- */

enum { FINDING_COLUMN = 23 };

/* "name  state  finding", with further lines of the finding below its first. */
static void put_line(struct mt_strbuf *out, const char *start, const char *text, int columns)
{
    struct mt_strbuf safe = {0};
    struct mt_strbuf wrapped = {0};
    mt_text_escape(&safe, text, 1);
    mt_text_wrap(&wrapped, mt_strbuf_text(&safe), FINDING_COLUMN, (size_t)columns);
    const char *lines = mt_strbuf_text(&wrapped);
    mt_strbuf_printf(out, "%-*s", FINDING_COLUMN, start);
    mt_strbuf_puts(out, strlen(lines) > FINDING_COLUMN ? lines + FINDING_COLUMN : "\n");
    mt_strbuf_finish(&safe);
    mt_strbuf_finish(&wrapped);
}

static void put_findings(struct mt_strbuf *out, const struct cli_terminal *terminal,
                         const struct mt_check *check)
{
    char start[64];
    const char *style = check->state == MT_CHECK_OK ? "" : cli_bold(terminal);
    snprintf(start, sizeof start, "%-12s%-11s", check->name, mt_check_state_name(check->state));
    mt_strbuf_puts(out, style);
    put_line(out, start, check->finding, terminal->columns);
    mt_strbuf_puts(out, *style ? cli_plain(terminal) : "");
}

static void put_table(struct mt_strbuf *out, const struct mt_check *checks, size_t n)
{
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    int n_advised = 0;
    for (size_t i = 0; i < n; i++)
        put_findings(out, &terminal, &checks[i]);
    for (size_t i = 0; i < n; i++) {
        if (!checks[i].advice[0])
            continue;
        if (n_advised++ == 0)
            mt_strbuf_puts(out, "\nWhat can be done:\n");
        put_line(out, checks[i].name, checks[i].advice, terminal.columns);
    }
}

static void put_json(struct mt_strbuf *out, const struct mt_check *checks, size_t n, int works)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "doctor");
    mt_json_bool(&json, "essentials_work", works);
    mt_json_begin_array(&json, "checks");
    for (size_t i = 0; i < n; i++) {
        mt_json_begin_object(&json, NULL);
        mt_json_text(&json, "name", checks[i].name);
        mt_json_bool(&json, "essential", checks[i].essential);
        mt_json_text(&json, "state", mt_check_state_name(checks[i].state));
        mt_json_text(&json, "finding", checks[i].finding);
        mt_json_text(&json, "advice", checks[i].advice[0] ? checks[i].advice : NULL);
        mt_json_end(&json);
    }
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

/* The library's checks, and the one that only the program can make. Returns the exit code that they
 * amount to. */
static int show(const struct doctor_options *options, struct mt_check *checks, size_t n)
{
    int works = 1;
    for (size_t i = 0; i < n; i++)
        works = works && !(checks[i].essential && checks[i].state == MT_CHECK_MISSING);
    struct mt_strbuf out = {0};
    if (options->json)
        put_json(&out, checks, n, works);
    else
        put_table(&out, checks, n);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code != CLI_EXIT_OK ? code : works ? CLI_EXIT_OK : CLI_EXIT_CANNOT;
}

#define N_OWN 3 /* checks of the program's own */

static int run_doctor(const struct cli_call *call)
{
    const struct doctor_options *options = call->options;
    struct mt_doctor_options look = {getenv("PATH"), options->directory};
    struct mt_error error;
    struct mt_check *found = NULL;
    size_t n = 0;
    if (options->calibrate)
        return cli_calibrate(options->json);
    if (mt_doctor_run(&look, &found, &n, &error) < 0)
        return cli_fail(&error);
    struct mt_check *checks = calloc(n + N_OWN, sizeof *checks);
    if (checks)
        memcpy(checks, found, n * sizeof *checks);
    mt_checks_destroy(found);
    if (!checks) {
        cli_complain("doctor: out of memory");
        return CLI_EXIT_CANNOT;
    }
    complete_engines(checks, n);
    check_preload(&checks[n]);
    check_host_cap(&checks[n + 1]);
    check_device_cap(&checks[n + 2]);
    int code = show(options, checks, n + N_OWN);
    free(checks);
    return code;
}

static const char *const description[] = {
    "Looks at what memtally needs from this machine. For each need it says whether all of it "
    "works (ok), part of it (limited) or nothing (missing), and what you can do. It leaves "
    "nothing changed.",
    "With --calibrate it measures the cards instead: the context that CUDA's driver makes for a "
    "process, a first kernel, cuBLAS, a node of a graph. Let no other program use them meanwhile.",
    "Essential are proc, pictures and preload. All others only limit what memtally shows.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally doctor", "What works here?"},
    {"memtally doctor --calibrate", "How much does the driver take of my cards?"},
    {"memtally doctor --json -o /scratch", "The same for a script, with recordings elsewhere."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "all the essentials work"},
    {"2", "wrong usage"},
    {"3", "an essential is missing; with --calibrate, no card can be measured"},
    {0},
};

const struct cmd_entry cmd_doctor = {
    .name = "doctor",
    .synopsis = "[options]",
    .summary = "say what can be measured here, and what to do about the rest",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = doctor_options,
    .options_size = sizeof(struct doctor_options),
    .run = run_doctor,
};
