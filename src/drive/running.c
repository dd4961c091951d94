/* SPDX-License-Identifier: MIT */
#include "drive/running.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/secrets.h"
#include "base/ticks.h"
#include "drive/dialect.h"
#include "drive/ports.h"
#include "drive/running_internal.h"
#include "model/files.h"

#define TREE_MAX    512
#define PORTS_MAX   8
#define WORDS_MAX   6 /* among which the program's name, a script's or a module's is */
#define LINE_BYTES  4096
#define PARENTS_MAX 16

/* ---- which engine ---- */

/* A word that ends in "::" is how the names of an engine's workers begin, which write over their
 * command lines; another is a program's. */
static int has_title(const struct mt_engine *engine, const char *title)
{
    char words[256];
    char *rest = words;
    const char *slash = strrchr(title, '/');
    mt_engine_text(engine, "titles", words, sizeof words);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        size_t length = strlen(word);
        int is_prefix = length > 2 && strcmp(word + length - 2, "::") == 0;
        if (length && (is_prefix ? strncmp(title, word, length) == 0
                                 : strcmp(slash ? slash + 1 : title, word) == 0))
            return 1;
    }
    return 0;
}

/* The first words of a command line, which end with NULL; `bytes` ends with a NUL. */
static void split(char *bytes, size_t n, char *words[WORDS_MAX + 1])
{
    size_t n_words = 0;
    for (size_t at = 0; at < n && n_words < WORDS_MAX; at += strlen(bytes + at) + 1)
        words[n_words++] = bytes + at;
    words[n_words] = NULL;
}

static const char *engine_of_title(const char *title)
{
    struct mt_engine engine;
    const char *name;
    for (size_t i = 0; (name = mt_engine_name_at(i)) != NULL; i++)
        if (mt_engine_find(name, &engine, NULL) == 0 && has_title(&engine, title))
            return name;
    return NULL;
}

/* Whether it was a program that told, and no worker's title. */
static int find_engine_of(const char *arguments, size_t n, char name[32])
{
    char bytes[LINE_BYTES];
    char *words[WORDS_MAX + 1];
    enum mt_drive_program program;
    const char *engine = NULL;
    size_t index;
    n = n < sizeof bytes - 1 ? n : sizeof bytes - 1;
    memcpy(bytes, arguments, n);
    bytes[n] = '\0';
    split(bytes, n, words);
    mt_drive_program_find(words, &index, &engine, &program);
    if (engine && program != MT_DRIVE_SERVER)
        engine = NULL;
    int is_program = engine != NULL;
    for (int i = 0; i < 2 && !engine && words[i]; i++) /* a script stands behind its interpreter */
        engine = engine_of_title(words[i]);
    snprintf(name, 32, "%s", engine ? engine : "");
    return is_program;
}

static int find_engine(const char *proc, pid_t pid, char engine[32])
{
    char path[PATH_MAX];
    char bytes[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%ld/cmdline", proc, (long)pid);
    FILE *file = fopen(path, "re");
    *engine = '\0';
    if (!file)
        return 0;
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return find_engine_of(bytes, n, engine);
}

/* The first known engine's process of a tree, parents first; `root` where there is none. */
static pid_t find_in_tree(const char *proc, pid_t root, char engine[32], int *is_program)
{
    pid_t *pids = malloc(TREE_MAX * sizeof *pids);
    pid_t found = root;
    *is_program = find_engine(proc, root, engine);
    size_t n = pids && !*engine ? mt_drive_descendants(proc, root, pids, TREE_MAX) : 0;
    for (size_t i = 0; i < n && !*engine; i++) {
        *is_program = find_engine(proc, pids[i], engine);
        found = *engine ? pids[i] : root;
    }
    free(pids);
    return found;
}

void mt_drive_running_find(const char *proc, pid_t root, char engine[32])
{
    int is_program;
    find_in_tree(proc, root, engine, &is_program);
}

/* A worker of vLLM or SGLang writes over its command line and its environment; what it is told
 * stands in those of a process above it. */
static pid_t find_program_above(const char *proc, pid_t pid, const char *engine)
{
    char name[32];
    pid_t at = pid;
    for (int i = 0; i < PARENTS_MAX && (at = mt_drive_parent(proc, at)) > 1; i++)
        if (find_engine(proc, at, name) && strcmp(name, engine) == 0)
            return at;
    return pid;
}

/* ---- whom to ask ---- */

/* A port of another network is another server's. */
int mt_drive_running_is_near(const char *proc, pid_t pid)
{
    char path[PATH_MAX];
    char theirs[64] = "";
    char ours[64] = "";
    snprintf(path, sizeof path, "%s/%ld/ns/net", proc, (long)pid);
    ssize_t n = readlink(path, theirs, sizeof theirs - 1);
    ssize_t own = readlink("/proc/self/ns/net", ours, sizeof ours - 1);
    return n > 0 && n == own && memcmp(theirs, ours, (size_t)n) == 0;
}

/* 401 Unauthorized, 403 Forbidden. */
static int is_refusal(int status)
{
    return status == 401 || status == 403;
}

static void say_unasked(struct mt_drive_running *running, const struct mt_drive_asking *asking,
                        size_t n_ports, uint64_t timeout_ms)
{
    char title[MT_ENGINE_TITLE_BYTES];
    mt_engine_title(asking->engine, title);
    if (!n_ports)
        snprintf(running->problem, sizeof running->problem,
                 "memtally sees no port that %s listens on", title);
    else if (asking->refused)
        snprintf(running->problem, sizeof running->problem, "%s answered with status %d%s", title,
                 asking->refused, is_refusal(asking->refused) ? "; it may ask for a key" : "");
    else if (asking->is_foreign)
        snprintf(running->problem, sizeof running->problem,
                 "%s answered what memtally does not understand", title);
    else if (asking->error.code == MT_ENOTFOUND)
        snprintf(running->problem, sizeof running->problem,
                 "%s does not listen at 127.0.0.1, where memtally asks", title);
    else
        snprintf(running->problem, sizeof running->problem,
                 "%s did not answer within %" PRIu64 " ms", title, timeout_ms);
}

/* What is asked of one server. */
struct question {
    const char *proc;
    const struct mt_engine *engine;
    struct mt_drive_running *running;
    uint64_t timeout_ms;
};

/* The ports to ask: that which the server was told, else all that it and its descendants listen at.
 * Some listen at others too, where a question of ours is answered by nobody. */
static size_t ports_to_ask(const struct question *question, int ports[PORTS_MAX])
{
    const struct mt_drive_running *running = question->running;
    size_t n = mt_drive_ports_of_tree(question->proc, running->pid, ports, PORTS_MAX);
    for (size_t i = 0; i < n; i++)
        if (ports[i] == running->told_port) {
            ports[0] = ports[i];
            return 1;
        }
    return n;
}

/* One that is silent leaves the others their part of the time. */
static void ask_ports(void *context)
{
    const struct question *question = context;
    struct mt_drive_running *running = question->running;
    int ports[PORTS_MAX];
    struct mt_drive_asking asking = {.engine = question->engine};
    uint64_t until_ns = mt_monotonic_ns() + question->timeout_ms * 1000000;
    size_t n = ports_to_ask(question, ports);
    for (size_t i = 0; i < n && !running->port; i++) {
        uint64_t now_ns = mt_monotonic_ns();
        asking.port = ports[i];
        asking.until_ns = now_ns < until_ns ? now_ns + (until_ns - now_ns) / (n - i) : until_ns;
        if (mt_drive_running_ask(&asking, running))
            running->port = ports[i];
    }
    if (!running->port)
        say_unasked(running, &asking, n, question->timeout_ms);
}

static void ask_engine(const char *proc, uint64_t timeout_ms, struct mt_drive_running *running)
{
    struct mt_engine engine;
    char title[MT_ENGINE_TITLE_BYTES];
    struct question question = {proc, &engine, running, timeout_ms};
    const struct mt_drive_elsewhere elsewhere = {running, ask_ports, &question, timeout_ms};
    if (mt_engine_find(running->engine, &engine, NULL) < 0)
        return;
    if (mt_drive_running_is_near(proc, running->pid)) {
        ask_ports(&question);
        return;
    }
    running->is_elsewhere = 1;
    int asked = mt_drive_running_ask_elsewhere(proc, &elsewhere);
    if (asked < 0)
        say_unasked(running, &(struct mt_drive_asking){.engine = &engine}, 1, timeout_ms);
    else if (!asked)
        snprintf(running->problem, sizeof running->problem,
                 "memtally did not ask %s: it has a network of its own, which this user may not "
                 "enter; root may",
                 mt_engine_title(&engine, title));
}

/* The first of the descendants that is a program of another engine: Ollama's runner is
 * llama-server. */
static pid_t find_runner(const char *proc, const struct mt_drive_running *running, char engine[32])
{
    pid_t *pids = malloc(TREE_MAX * sizeof *pids);
    size_t n = pids ? mt_drive_descendants(proc, running->pid, pids, TREE_MAX) : 0;
    pid_t found = 0;
    for (size_t i = 0; i < n && !found; i++)
        if (find_engine(proc, pids[i], engine) && strcmp(engine, running->engine) != 0)
            found = pids[i];
    free(pids);
    return found;
}

/* What an engine's runner says counts for its memory; the engine says what it is. */
static void ask_runner(const char *proc, uint64_t timeout_ms, struct mt_drive_running *running)
{
    struct mt_drive_running runner = {.ranks = 1};
    runner.pid = find_runner(proc, running, runner.engine);
    if (!runner.pid)
        return;
    mt_drive_running_command(proc, runner.pid, &runner);
    if (timeout_ms)
        ask_engine(proc, timeout_ms, &runner);
    struct mt_drive_running engine = *running;
    *running = runner;
    memcpy(running->rules, runner.engine, sizeof running->rules);
    memcpy(running->engine, engine.engine, sizeof running->engine);
    memcpy(running->version, engine.version, sizeof running->version);
    memcpy(running->problem, engine.problem, sizeof running->problem);
    running->loaded_bytes = engine.loaded_bytes;
    running->loaded_device_bytes = engine.loaded_device_bytes;
    running->is_told_loaded = engine.is_told_loaded;
    running->port = engine.port ? engine.port : runner.port;
    running->is_elsewhere = engine.is_elsewhere;
    for (size_t i = 0; running->variables[i]; i++) /* they lie in the copy now */
        running->variables[i] = running->environment + (runner.variables[i] - runner.environment);
}

void mt_drive_running_look(const char *proc, pid_t root, uint64_t timeout_ms,
                           struct mt_drive_running *running)
{
    int is_program;
    *running = (struct mt_drive_running){.ranks = 1};
    running->pid = find_in_tree(proc, root, running->engine, &is_program);
    if (!*running->engine)
        return;
    if (!is_program)
        running->pid = find_program_above(proc, running->pid, running->engine);
    memcpy(running->rules, running->engine, sizeof running->rules);
    mt_drive_running_command(proc, running->pid, running);
    if (timeout_ms)
        ask_engine(proc, timeout_ms, running);
    ask_runner(proc, timeout_ms, running);
    mt_drive_running_read_log(proc, running);
    running->start = mt_drive_start(proc, running->pid);
    mt_join_arguments(running->model, strlen(running->model), running->shown_model,
                      sizeof running->shown_model);
}

/* ---- its files ---- */

/* Whether it sees the same files as we do by the same names. */
static int has_our_files(const char *proc, pid_t pid)
{
    char path[PATH_MAX];
    char theirs[64];
    char ours[64];
    char root[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld/ns/mnt", proc, (long)pid);
    ssize_t n = readlink(path, theirs, sizeof theirs);
    ssize_t own = readlink("/proc/self/ns/mnt", ours, sizeof ours);
    snprintf(path, sizeof path, "%s/%ld/root", proc, (long)pid);
    ssize_t at = readlink(path, root, sizeof root);
    return n > 0 && n == own && memcmp(theirs, ours, (size_t)n) == 0 && at == 1;
}

/* Writes what a link of the process says, or "". */
static void read_link(const char *proc, pid_t pid, const char *name, char text[PATH_MAX])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld/%s", proc, (long)pid, name);
    ssize_t n = readlink(path, text, PATH_MAX - 1);
    text[n > 0 ? n : 0] = '\0';
}

/* The kernel names a folder as we see it: below a root that is a folder of ours, the process itself
 * sees only what is behind that. */
static void find_folder(const char *proc, pid_t pid, char folder[PATH_MAX])
{
    char root[PATH_MAX];
    read_link(proc, pid, "cwd", folder);
    read_link(proc, pid, "root", root);
    size_t n = strlen(root);
    if (n > 1 && strncmp(folder, root, n) == 0 && (folder[n] == '/' || !folder[n])) {
        memmove(folder, folder + n, strlen(folder + n) + 1);
        if (!*folder)
            strcpy(folder, "/");
    }
}

/* A container's root need not be there for us: without it nothing is found. */
void mt_drive_running_files_open(const char *proc, const struct mt_drive_running *running,
                                 struct mt_drive_running_files *opened)
{
    char path[PATH_MAX];
    find_folder(proc, running->pid, opened->folder);
    opened->root = -1;
    opened->files = *mt_model_files_local();
    if (has_our_files(proc, running->pid))
        return;
    snprintf(path, sizeof path, "%s/%ld/root", proc, (long)running->pid);
    opened->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    mt_model_files_within(&opened->root, &opened->files);
}

int mt_drive_running_lives(const char *proc, const struct mt_drive_running *running)
{
    return running->start && mt_drive_start(proc, running->pid) == running->start;
}

void mt_drive_running_files_close(const struct mt_drive_running_files *opened)
{
    if (opened->root >= 0)
        close(opened->root);
}

int mt_drive_running_path(const struct mt_drive_running_files *opened, const char *path,
                          char whole[PATH_MAX])
{
    int n = *path == '/' ? snprintf(whole, PATH_MAX, "%s", path)
                         : snprintf(whole, PATH_MAX, "%s/%s", opened->folder, path);
    return n < PATH_MAX && (*path == '/' || *opened->folder == '/');
}
