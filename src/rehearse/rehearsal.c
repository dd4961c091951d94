/* SPDX-License-Identifier: MIT */
/* The life of a rehearsal: the folder, the program, the waiting, the end. */
#include <memtally/error.h>
#include <memtally/rehearsal.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "pytorch/torch.h"
#include "rehearse/program.h"
#include "rehearse/rehearsal.h"

#define STEP_MS          10
#define LOOK_NS          UINT64_C(100000000)
#define WHOLE_NS         UINT64_C(2000000000) /* that is waited for an event to be whole */
#define OUTPUT_KEPT      (1 << 20)            /* of each end of a file of output */
#define OUTPUT_MOST      (8 << 20)
#define WORDS_READ_BYTES 65536

static int check(const struct mt_rehearsal_options *options, struct mt_error *error)
{
    if (!options->directory || !options->argv || !options->argv[0] || !options->environment ||
        !options->pretend_path)
        return mt_fail(
            error, MT_EARG, MT_NO_OFFSET,
            "a rehearsal needs a folder, a program, its environment and the pretended devices");
    if (strpbrk(options->pretend_path, " :"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: a preloaded library's path may have no space and no colon in it",
                       options->pretend_path);
    if (access(options->pretend_path, R_OK) < 0)
        return mt_fail_errno(error, errno, "cannot read %s", options->pretend_path);
    return 0;
}

static int prepare_folder(struct mt_rehearsal *rehearsal, const char *directory,
                          struct mt_error *error)
{
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return mt_fail_errno(error, errno, "cannot make the folder %s", directory);
    rehearsal->directory = realpath(directory, NULL);
    if (!rehearsal->directory)
        return mt_fail_errno(error, errno, "cannot use the folder %s", directory);
    if (asprintf(&rehearsal->account_path, "%s/account", rehearsal->directory) < 0) {
        rehearsal->account_path = NULL;
        return mt_out_of_memory(error);
    }
    return 0;
}

/* Opens a file of output for the program, and once more for us to read. */
static int open_output(struct mt_rehearsal *rehearsal, int which, struct mt_error *error)
{
    static const char *const names[] = {"output", "errors"};
    char *path;
    if (asprintf(&path, "%s/%s", rehearsal->directory, names[which]) < 0)
        return mt_out_of_memory(error);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        mt_fail_errno(error, errno, "cannot write %s", path);
    free(path);
    rehearsal->output_fd[which] = fd;
    return fd < 0 ? MT_EIO : 0;
}

/* Without such a pipe, as on a file system that has none, only the program itself ends with us. */
static void show_life(struct mt_rehearsal *rehearsal)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s" MT_ACCOUNT_ALIVE, rehearsal->account_path) >= PATH_MAX)
        return;
    unlink(path);
    if (mkfifo(path, 0600) == 0)
        rehearsal->alive_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

static void end_life(const struct mt_rehearsal *rehearsal)
{
    char path[PATH_MAX];
    if (rehearsal->alive_fd < 0)
        return;
    close(rehearsal->alive_fd);
    if (snprintf(path, sizeof path, "%s" MT_ACCOUNT_ALIVE, rehearsal->account_path) < PATH_MAX)
        unlink(path);
}

/* Address space alone: it takes no memory. */
static int get_spare(struct mt_rehearsal *rehearsal, struct mt_error *error)
{
    void *spare = mmap(NULL, sizeof *rehearsal->spare, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (spare == MAP_FAILED)
        return mt_out_of_memory(error);
    rehearsal->spare = spare;
    return 0;
}

static int prepare(struct mt_rehearsal *rehearsal, const struct mt_rehearsal_options *options,
                   struct mt_error *error)
{
    int result = prepare_folder(rehearsal, options->directory, error);
    if (result == 0 && options->stdout_fd < 0)
        result = open_output(rehearsal, 0, error);
    if (result == 0 && options->stderr_fd < 0)
        result = open_output(rehearsal, 1, error);
    if (result == 0)
        result = mt_account_create(options, rehearsal->account_path, &rehearsal->account, error);
    rehearsal->reader.account = rehearsal->account;
    if (result == 0)
        result = get_spare(rehearsal, error);
    if (result < 0)
        return result;
    rehearsal->n_devices = rehearsal->account->n_devices;
    show_life(rehearsal);
    return 0;
}

/* NULL where that failed. */
static char **make_environment(struct mt_rehearsal *rehearsal,
                               const struct mt_rehearsal_options *options, struct mt_error *error)
{
    char *const *given = options->environment;
    struct mt_cuda_stage stage = {0};
    if (options->cuda_directory) {
        char program[PATH_MAX];
        int staged = mt_program_find(options->argv[0], given, program, error);
        if (staged == 0)
            staged = mt_cuda_stage(options, rehearsal->directory, mt_cuda_major_beside(program),
                                   &stage, error);
        if (staged < 0)
            return NULL;
    }
    char **environment = mt_environment_make(given, options->pretend_path, rehearsal->account_path,
                                             options->cuda_directory ? &stage : NULL);
    mt_cuda_stage_finish(&stage);
    if (!environment)
        mt_out_of_memory(error);
    return environment;
}

static int start(struct mt_rehearsal *rehearsal, const struct mt_rehearsal_options *options,
                 char **environment, struct mt_error *error)
{
    const int output_fd[2] = {
        options->stdout_fd < 0 ? rehearsal->output_fd[0] : options->stdout_fd,
        options->stderr_fd < 0 ? rehearsal->output_fd[1] : options->stderr_fd,
    };
    int result = mt_program_start(options, environment, output_fd, error);
    if (result < 0)
        return result;
    rehearsal->pid = result;
    rehearsal->pidfd = (int)syscall(SYS_pidfd_open, rehearsal->pid, 0);
    return 0;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void release(struct mt_rehearsal *rehearsal)
{
    mt_account_reader_finish(&rehearsal->reader);
    mt_torch_close(rehearsal->torch);
    mt_account_unmap(rehearsal->account);
    mt_account_unmap(rehearsal->spare);
    end_life(rehearsal);
    close_if_open(rehearsal->pidfd);
    close_if_open(rehearsal->output_fd[0]);
    close_if_open(rehearsal->output_fd[1]);
    free(rehearsal->account_path);
    free(rehearsal->directory);
    free(rehearsal);
}

/* The environment is the caller's where it is asked for, and the program then the caller's to
 * start. */
static int begin(const struct mt_rehearsal_options *options, struct mt_rehearsal **rehearsal,
                 char ***wanted, struct mt_error *error)
{
    struct mt_error own = {.offset = MT_NO_OFFSET};
    char **environment = NULL;
    error = error ? error : &own;
    int result = check(options, error);
    if (result < 0)
        return result;
    struct mt_rehearsal *made = calloc(1, sizeof *made);
    if (!made)
        return mt_out_of_memory(error);
    made->alive_fd = made->pidfd = made->output_fd[0] = made->output_fd[1] = -1;
    result = prepare(made, options, error);
    if (result == 0)
        environment = make_environment(made, options, error);
    if (result == 0 && !environment)
        result = error->code;
    if (result == 0 && wanted)
        *wanted = environment;
    else if (result == 0)
        result = start(made, options, environment, error);
    if (!wanted || result < 0)
        mt_environment_free(environment);
    if (result < 0) {
        if (made->account)
            unlink(made->account_path);
        release(made);
        return result;
    }
    *rehearsal = made;
    return 0;
}

int mt_rehearsal_start(const struct mt_rehearsal_options *options, struct mt_rehearsal **rehearsal,
                       struct mt_error *error)
{
    return begin(options, rehearsal, NULL, error);
}

int mt_rehearsal_open(const struct mt_rehearsal_options *options, struct mt_rehearsal **rehearsal,
                      char ***environment, struct mt_error *error)
{
    struct mt_rehearsal_options plain = *options;
    plain.stdout_fd = STDOUT_FILENO; /* no file is made for them */
    plain.stderr_fd = STDERR_FILENO;
    return begin(&plain, rehearsal, environment, error);
}

void mt_rehearsal_free_environment(char **environment)
{
    mt_environment_free(environment);
}

/* Notes the end of a process; the devices have back what it did not give. */
static void note_end(struct mt_rehearsal *rehearsal, uint32_t pid, int is_final)
{
    struct mt_account *account = rehearsal->account;
    uint64_t now_ns = mt_monotonic_ns();
    mt_account_reader_read(&rehearsal->reader, now_ns, is_final);
    int is_full = mt_account_is_full(account);
    for (uint32_t i = 0; i <= account->n_devices && i <= MT_ACCOUNT_DEVICES_MAX; i++) {
        uint8_t place = i < account->n_devices ? (uint8_t)i : MT_ACCOUNT_HOST;
        const char *name = mt_place_name(place);
        if (is_full && place != MT_ACCOUNT_HOST)
            mt_account_give_back(account, place, mt_account_of_process(account, pid, i, 0),
                                 mt_account_of_process(account, pid, i, 1));
        else
            mt_account_give_back(
                account, place, mt_account_reader_held(&rehearsal->reader, pid, name, NULL),
                mt_account_reader_held(&rehearsal->reader, pid, name, &account->rules));
    }
    mt_account_reader_release_shared(&rehearsal->reader, pid);
    mt_account_note(account, MT_ACCOUNT_END, pid, MT_ENDED_MARK);
    mt_account_drop_process(account, pid); /* others wait for this, and take memory then */
    mt_account_reader_read(&rehearsal->reader, mt_monotonic_ns(), is_final);
}

static void reap(struct mt_rehearsal *rehearsal)
{
    int status = -1;
    if (!rehearsal->pid) /* whoever started it takes its end */
        return;
    pid_t got = rehearsal->ended ? 0 : waitpid(rehearsal->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno != ECHILD))
        return;
    rehearsal->ended = 1;
    rehearsal->ended_ns = mt_monotonic_ns();
    rehearsal->status = got > 0 ? status : -1;
    note_end(rehearsal, (uint32_t)rehearsal->pid, 0);
}

static void add_process(struct mt_rehearsal *rehearsal, uint32_t pid)
{
    size_t i = 0;
    while (i < rehearsal->n_processes && rehearsal->processes[i] != pid)
        i++;
    if (pid && pid != (uint32_t)rehearsal->pid && i == rehearsal->n_processes &&
        i < MT_PROCESSES_MAX)
        rehearsal->processes[rehearsal->n_processes++] = pid;
}

/* Other processes of the program that the account has heard of; where its list is full, those that
 * have a row. */
static void find_processes(struct mt_rehearsal *rehearsal)
{
    struct mt_account *account = rehearsal->account;
    for (uint32_t i = 0; mt_account_is_full(account) && i < MT_ACCOUNT_PROCESSES; i++)
        add_process(rehearsal, __atomic_load_n(&account->process[i].pid, __ATOMIC_ACQUIRE));
    const struct mt_noted *noted;
    for (; (noted = mt_account_reader_at(&rehearsal->reader, rehearsal->n_seen));
         rehearsal->n_seen++) {
        if (noted->event.kind == MT_REHEARSAL_ALLOC)
            add_process(rehearsal, (uint32_t)noted->event.pid);
    }
}

static void look_at_processes(struct mt_rehearsal *rehearsal)
{
    find_processes(rehearsal);
    for (size_t i = rehearsal->n_processes; i-- > 0;) {
        uint32_t pid = rehearsal->processes[i];
        if (!mt_program_is_gone(pid))
            continue;
        rehearsal->processes[i] = rehearsal->processes[--rehearsal->n_processes];
        note_end(rehearsal, pid, 0);
    }
}

/* A file that grows too large keeps its beginning and its end. Where the file system cannot make a
 * hole, it begins anew. */
static void bound_output(int fd)
{
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0 || status.st_blocks * 512 < OUTPUT_MOST)
        return;
    off_t length = status.st_size - 2 * OUTPUT_KEPT;
    if (length <= 0 ||
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OUTPUT_KEPT, length) < 0)
        (void)!ftruncate(fd, 0);
}

/* Whoever reads past the end of a mapped file is killed: where the program has cut the account off,
 * empty memory takes its place; that was got beforehand, in case the kernel has no more. */
static void look_at_account(struct mt_rehearsal *rehearsal)
{
    struct stat status;
    if (rehearsal->is_cut || stat(rehearsal->account_path, &status) < 0 ||
        status.st_size >= (off_t)sizeof *rehearsal->account)
        return;
    rehearsal->is_cut = 1;
    if (mmap(rehearsal->account, sizeof *rehearsal->account, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        struct mt_account *cut = rehearsal->account;
        rehearsal->account = rehearsal->reader.account = rehearsal->spare;
        rehearsal->spare = cut;
    }
}

static void look(struct mt_rehearsal *rehearsal, uint64_t now_ns)
{
    look_at_account(rehearsal);
    reap(rehearsal);
    mt_account_reader_read(&rehearsal->reader, now_ns, 0);
    if (now_ns < rehearsal->next_look_ns && !rehearsal->ended)
        return;
    rehearsal->next_look_ns = now_ns + LOOK_NS;
    look_at_processes(rehearsal);
    bound_output(rehearsal->output_fd[0]);
    bound_output(rehearsal->output_fd[1]);
}

static void wait_a_step(const struct mt_rehearsal *rehearsal, uint64_t left_ns)
{
    struct pollfd fd = {.fd = rehearsal->pidfd, .events = POLLIN};
    uint64_t left_ms = left_ns / 1000000u + 1;
    poll(&fd, rehearsal->pidfd >= 0 && !rehearsal->ended,
         left_ms < STEP_MS ? (int)left_ms : STEP_MS);
}

/* Whether an event is just being written. Those after it are read when it is whole. */
static int is_within_event(const struct mt_rehearsal *rehearsal, uint64_t now_ns)
{
    uint64_t since_ns = rehearsal->reader.hole_since_ns;
    return since_ns && now_ns - since_ns < WHOLE_NS;
}

static void fill_end(const struct mt_rehearsal *rehearsal, struct mt_rehearsal_status *status)
{
    if (!rehearsal->ended)
        return;
    status->exit_code = -1;
    if (rehearsal->status < 0)
        return;
    if (WIFSIGNALED(rehearsal->status)) {
        status->signal = WTERMSIG(rehearsal->status);
        status->exit_code = 128 + status->signal;
    } else {
        status->exit_code = WEXITSTATUS(rehearsal->status);
    }
}

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

/* The library that a note names. It is looked for once one asked, until it is found. */
static const char *private_library(struct mt_rehearsal *rehearsal)
{
    char *library = rehearsal->private_library;
    const struct mt_noted *noted;
    if (!__atomic_load_n(&rehearsal->account->cuda.n_private, __ATOMIC_RELAXED))
        return NULL;
    for (size_t i = 0; !*library && (noted = mt_account_reader_at(&rehearsal->reader, i)) != NULL;
         i++) {
        const char *end = noted->event.kind == MT_REHEARSAL_NOTE
                              ? strstr(noted->event.name, MT_ACCOUNT_PRIVATE)
                              : NULL;
        if (end)
            snprintf(library, sizeof rehearsal->private_library, "%.*s",
                     (int)(end - noted->event.name), noted->event.name);
    }
    return *library ? library : NULL;
}

static void fill_status(struct mt_rehearsal *rehearsal, struct mt_rehearsal_status *status)
{
    struct mt_account *account = rehearsal->account;
    uint64_t now_ns = rehearsal->ended ? rehearsal->ended_ns : mt_monotonic_ns();
    uint64_t last_ns = rehearsal->reader.last_ns;
    if (last_ns < account->start_ns)
        last_ns = account->start_ns;
    account->engine_version[sizeof account->engine_version - 1] = '\0';
    account->refusal[sizeof account->refusal - 1] = '\0';
    account->builds.ggml_version[sizeof account->builds.ggml_version - 1] = '\0';
    *status = (struct mt_rehearsal_status){
        .running = !rehearsal->ended,
        .elapsed_ns = now_ns - account->start_ns,
        .quiet_ns = now_ns > last_ns ? now_ns - last_ns : 0,
        .n_events = rehearsal->reader.n_events,
        .n_preloaded = __atomic_load_n(&account->n_preloaded, __ATOMIC_RELAXED),
        .is_attached = __atomic_load_n(&account->n_attached, __ATOMIC_RELAXED) > 0,
        .api_version = __atomic_load_n(&account->api_version, __ATOMIC_RELAXED),
        .refusal =
            __atomic_load_n(&account->is_refused, __ATOMIC_ACQUIRE) ? account->refusal : NULL,
        .engine_version = text_or_null(account->engine_version),
        .ggml_version = text_or_null(account->builds.ggml_version),
        .build = account->rules.build,
        .n_contexts = __atomic_load_n(&account->cuda.n_contexts, __ATOMIC_RELAXED),
        .n_missing = __atomic_load_n(&account->cuda.n_missing, __ATOMIC_RELAXED),
        .n_private = __atomic_load_n(&account->cuda.n_private, __ATOMIC_RELAXED),
        .private_library = private_library(rehearsal),
        .n_read_back = __atomic_load_n(&account->cuda.n_read_back, __ATOMIC_RELAXED),
        .n_askings = __atomic_load_n(&account->cuda.n_askings, __ATOMIC_RELAXED),
        .is_build_known = account->builds.is_told ||
                          (account->builds.low == account->builds.high && account->builds.low),
    };
    fill_end(rehearsal, status);
}

int mt_rehearsal_wait(struct mt_rehearsal *rehearsal, uint64_t timeout_ns,
                      struct mt_rehearsal_status *status, struct mt_error *error)
{
    uint64_t begun_ns = mt_monotonic_ns();
    for (;;) {
        uint64_t now_ns = mt_monotonic_ns();
        look(rehearsal, now_ns);
        uint64_t waited_ns = now_ns - begun_ns;
        if ((rehearsal->ended || waited_ns >= timeout_ns) && !is_within_event(rehearsal, now_ns))
            break;
        wait_a_step(rehearsal, waited_ns < timeout_ns ? timeout_ns - waited_ns : 0);
    }
    if (rehearsal->reader.out_of_memory)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET,
                       "out of memory while the rehearsal's account is read");
    if (rehearsal->is_cut || rehearsal->account->n_devices != rehearsal->n_devices)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "the program wrote over %.300s, where its devices are, so memtally cannot "
                       "know what it took",
                       rehearsal->account_path);
    fill_status(rehearsal, status);
    return 0;
}

void mt_rehearsal_stop(struct mt_rehearsal *rehearsal, uint64_t grace_ns)
{
    struct mt_rehearsal_status status;
    look(rehearsal, mt_monotonic_ns());
    if (!rehearsal->pid && !rehearsal->ended) {
        rehearsal->ended = 1;
        rehearsal->ended_ns = mt_monotonic_ns();
        rehearsal->status = -1;
    }
    if (!rehearsal->ended) {
        kill(-rehearsal->pid, SIGTERM);
        mt_rehearsal_wait(rehearsal, grace_ns, &status, NULL);
    }
    if (!rehearsal->ended && rehearsal->account->cuda.driver_version)
        mt_program_kill_rest(rehearsal->account_path, rehearsal->pid);
    if (!rehearsal->ended)
        kill(-rehearsal->pid, SIGKILL);
    while (!rehearsal->ended)
        mt_rehearsal_wait(rehearsal, LOOK_NS, &status, NULL);
    if (!rehearsal->is_swept)
        mt_program_kill_rest(rehearsal->account_path, 0);
    rehearsal->is_swept = 1;
    look_at_processes(rehearsal);
    mt_account_reader_read(&rehearsal->reader, mt_monotonic_ns(), 1);
}

void mt_rehearsal_mark(struct mt_rehearsal *rehearsal, const char *name)
{
    mt_account_note(rehearsal->account, MT_ACCOUNT_MARK, (uint32_t)getpid(), name);
}

const struct mt_rehearsal_event *mt_rehearsal_event_at(struct mt_rehearsal *rehearsal, size_t index)
{
    look_at_account(rehearsal);
    if (index >= rehearsal->reader.n_events)
        mt_account_reader_read(&rehearsal->reader, mt_monotonic_ns(), 0);
    const struct mt_noted *noted = mt_account_reader_at(&rehearsal->reader, index);
    return noted ? &noted->event : NULL;
}

/* Past the bytes that may be the middle of a line, and what a hole or a cut left there. */
static char *whole_lines(char *text, size_t length, int is_cut)
{
    char *end = text + length;
    char *begin = text;
    while (end > text && (end[-1] == '\n' || end[-1] == '\0'))
        *--end = '\0';
    if (is_cut) {
        char *line = memchr(text, '\n', (size_t)(end - text));
        begin = line ? line + 1 : text;
    }
    for (char *at = begin; at < end; at++)
        if (*at == '\0')
            begin = at + 1;
    return begin;
}

/* Leaves out what only moves a terminal's cursor or colours: ESC [ numbers letter. */
static void drop_controls(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        if (from[0] == '\033' && from[1] == '[') {
            from += 2 + strspn(from + 2, "0123456789;?");
            from += *from != '\0';
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

void mt_rehearsal_last_words(struct mt_rehearsal *rehearsal, char *text, size_t size)
{
    struct stat status;
    int fd = rehearsal->output_fd[1];
    size_t wanted = size < WORDS_READ_BYTES ? size : WORDS_READ_BYTES;
    if (!size)
        return;
    text[0] = '\0';
    if (fd < 0 || fstat(fd, &status) < 0 || wanted < 2)
        return;
    off_t from = status.st_size > (off_t)(wanted - 1) ? status.st_size - (off_t)(wanted - 1) : 0;
    ssize_t got = pread(fd, text, wanted - 1, from);
    if (got <= 0) {
        text[0] = '\0';
        return;
    }
    text[got] = '\0';
    char *begin = whole_lines(text, (size_t)got, from > 0);
    memmove(text, begin, strlen(begin) + 1);
    drop_controls(text);
}

void mt_rehearsal_destroy(struct mt_rehearsal *rehearsal)
{
    if (!rehearsal)
        return;
    mt_rehearsal_stop(rehearsal, 0);
    release(rehearsal);
}
