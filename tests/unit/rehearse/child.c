/* SPDX-License-Identifier: MIT */
/* A program that is rehearsed: each of its words is something to do, in order.
 *
 *   env=NAME          writes "NAME=value" on standard output, "NAME" where it is not set
 *   say=TEXT          writes a line on standard error
 *   flood=N           writes N MiB on standard error, lines of 64 bytes
 *   alloc=PLACE,OBJECT,BYTES,CATEGORY,NAME,DETAIL
 *   free=OBJECT       usage=OBJECT,CATEGORY       refuse=PLACE,BYTES,FREE,NAME
 *   take=PLACE,BYTES  counts bytes as used        attach  says that devices were taken
 *   context           makes a context of CUDA
 *   hole              begins an event and does not end it
 *   mark=NAME         refused=WHY   says that ggml takes no devices
 *   preloaded         says that other processes have the object too
 *   child=WORD        does WORD in a child that is then killed by SIGKILL, and waits for that
 *   stray=FILE        leaves a child in a session of its own, its process id in FILE
 *   map=FILE          makes a file and maps it
 *   cut               makes the account's file empty
 *   scribble          says that the account has devices without number
 *   wait              until it is killed          exit=N  abort */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rehearse/account.h"

static struct mt_account *the_account(void)
{
    static struct mt_account *account;
    const char *path = getenv(MT_ACCOUNT_VARIABLE);
    int fd = account || !path ? -1 : open(path, O_RDWR);
    if (fd >= 0)
        account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!account || account == MAP_FAILED)
        exit(99);
    return account;
}

static struct mt_account_event *new_event(void)
{
    struct mt_account *account = the_account();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct mt_account_event *event =
        &account->event[__atomic_fetch_add(&account->n_events, 1, __ATOMIC_RELAXED)];
    event->pid = (uint32_t)getpid();
    event->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return event;
}

static uint64_t number(char **rest)
{
    char *word = strsep(rest, ",");
    return word ? strtoull(word, NULL, 0) : 0;
}

static void text(char **rest, char *to, size_t size)
{
    char *word = strsep(rest, ",");
    snprintf(to, size, "%s", word ? word : "");
}

static void do_event(enum mt_account_kind kind, char *rest)
{
    struct mt_account_event *event = new_event();
    if (kind == MT_ACCOUNT_ALLOC || kind == MT_ACCOUNT_REFUSE)
        event->place = (uint8_t)number(&rest);
    if (kind != MT_ACCOUNT_REFUSE)
        event->object = number(&rest);
    if (kind == MT_ACCOUNT_ALLOC || kind == MT_ACCOUNT_REFUSE)
        event->bytes = number(&rest);
    if (kind == MT_ACCOUNT_ALLOC || kind == MT_ACCOUNT_USAGE)
        event->category = (uint8_t)number(&rest);
    if (kind == MT_ACCOUNT_REFUSE)
        event->free_bytes = number(&rest);
    text(&rest, event->name, sizeof event->name);
    text(&rest, event->detail, sizeof event->detail);
    __atomic_store_n(&event->kind, (uint32_t)kind, __ATOMIC_RELEASE);
}

static void do_word(char *word);

static void do_child(char *word)
{
    pid_t pid = fork();
    if (pid == 0) {
        do_word(word);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
}

static void do_stray(const char *path)
{
    if (fork() != 0)
        return;
    setsid();
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    for (;;)
        pause();
}

static void do_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) < 0 ||
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
        exit(96);
}

static void do_flood(unsigned long mib)
{
    char line[65];
    memset(line, 'x', sizeof line);
    line[63] = '\n';
    for (unsigned long i = 0; i < mib * 16384; i++)
        if (write(STDERR_FILENO, line, 64) != 64)
            exit(98);
}

static void do_take(char *rest)
{
    uint64_t place = number(&rest);
    uint64_t bytes = number(&rest);
    __atomic_fetch_add(&the_account()->device[place].used_bytes, bytes, __ATOMIC_RELAXED);
}

static void do_mark(const char *name)
{
    struct mt_account_event *event = new_event();
    event->place = MT_ACCOUNT_HOST;
    snprintf(event->name, sizeof event->name, "%s", name);
    __atomic_store_n(&event->kind, MT_ACCOUNT_MARK, __ATOMIC_RELEASE);
}

static void do_refused(const char *why)
{
    the_account()->n_preloaded = 1;
    snprintf(the_account()->refusal, sizeof the_account()->refusal, "%s", why);
    the_account()->is_refused = 1;
}

/* LOW,HIGH,DOUBTS: builds that the program may be of, and what was met that these differ in. */
static void do_builds(const char *text)
{
    struct mt_pretend_builds *builds = &the_account()->builds;
    char *end;
    builds->low = (uint32_t)strtoul(text, &end, 10);
    builds->high = (uint32_t)strtoul(end + 1, &end, 10);
    builds->doubts_met = (uint32_t)strtoul(end + 1, NULL, 10);
    snprintf(builds->ggml_version, sizeof builds->ggml_version, "0.22.0");
}

/* GENERATION,DIFFER: nobody said it, and it may matter. */
static void do_assumed(const char *text)
{
    struct mt_account *account = the_account();
    char *end = strchr(text, ',');
    snprintf(account->rules.generation, sizeof account->rules.generation, "%.*s", (int)(end - text),
             text);
    account->rules.is_generation_assumed = 1;
    account->builds.generations_differ = end[1] == '1';
}

/* The alignment is that of another vendor's driver. */
static void do_vendor(const char *generation)
{
    struct mt_pretend_rules *rules = &the_account()->rules;
    snprintf(rules->generation, sizeof rules->generation, "%s", generation);
    rules->is_of_vendor = 1;
}

/* No log agrees with the rules. */
static void do_unconfirmed(const char *prefix)
{
    struct mt_pretend_rules *rules = &the_account()->rules;
    snprintf(rules->device_prefix, sizeof rules->device_prefix, "%s", prefix);
    rules->is_unconfirmed = 1;
}

static void do_env(const char *name)
{
    const char *value = getenv(name);
    printf("%s%s%s\n", name, value ? "=" : "", value ? value : "");
    fflush(stdout);
}

static int is(const char *word, const char *name, char **rest)
{
    size_t length = strlen(name);
    *rest = (char *)(uintptr_t)word + length + (word[length] == '=');
    return strncmp(word, name, length) == 0 && (word[length] == '=' || word[length] == '\0');
}

static void do_word(char *word)
{
    char *rest;
    if (is(word, "env", &rest))
        do_env(rest);
    else if (is(word, "say", &rest))
        fprintf(stderr, "%s\n", rest);
    else if (is(word, "flood", &rest))
        do_flood(strtoul(rest, NULL, 10));
    else if (is(word, "alloc", &rest))
        do_event(MT_ACCOUNT_ALLOC, rest);
    else if (is(word, "free", &rest))
        do_event(MT_ACCOUNT_FREE, rest);
    else if (is(word, "usage", &rest))
        do_event(MT_ACCOUNT_USAGE, rest);
    else if (is(word, "refuse", &rest))
        do_event(MT_ACCOUNT_REFUSE, rest);
    else if (is(word, "take", &rest))
        do_take(rest);
    else if (is(word, "attach", &rest))
        __atomic_fetch_add(&the_account()->n_attached, 1, __ATOMIC_RELAXED);
    else if (is(word, "context", &rest))
        __atomic_fetch_add(&the_account()->cuda.n_contexts, 1, __ATOMIC_RELAXED);
    else if (is(word, "preloaded", &rest))
        __atomic_fetch_add(&the_account()->n_preloaded, 2, __ATOMIC_RELAXED);
    else if (is(word, "hole", &rest))
        new_event();
    else if (is(word, "mark", &rest))
        do_mark(rest);
    else if (is(word, "refused", &rest))
        do_refused(rest);
    else if (is(word, "builds", &rest))
        do_builds(rest);
    else if (is(word, "assumed", &rest))
        do_assumed(rest);
    else if (is(word, "vendor", &rest))
        do_vendor(rest);
    else if (is(word, "unconfirmed", &rest))
        do_unconfirmed(rest);
    else if (is(word, "reordered", &rest))
        the_account()->rules.is_reordered = 1;
    else if (is(word, "child", &rest))
        do_child(rest);
    else if (is(word, "stray", &rest))
        do_stray(rest);
    else if (is(word, "map", &rest))
        do_map(rest);
    else if (is(word, "cut", &rest))
        exit(truncate(getenv(MT_ACCOUNT_VARIABLE), 0) < 0);
    else if (is(word, "scribble", &rest))
        the_account()->n_devices = UINT32_MAX;
    else if (is(word, "wait", &rest))
        for (;;)
            pause();
    else if (is(word, "exit", &rest))
        exit(atoi(rest));
    else if (is(word, "abort", &rest))
        abort();
    else
        exit(97);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        do_word(argv[i]);
    return 0;
}
