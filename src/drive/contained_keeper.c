/* SPDX-License-Identifier: MIT */
#include "drive/contained_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container/removal.h"

#define STEP_MS      50
#define GONE_STEPS   40   /* what is still being copied may come so late */
#define GUARD_STEPS  1800 /* that the program in the container has, to end the engine first */
#define REMOVE_STEPS 40

enum { GUARDED = 'g', DONE = 'd' };

static void rest(void)
{
    const struct timespec time = {.tv_nsec = STEP_MS * 1000000};
    nanosleep(&time, NULL);
}

int mt_contained_keeper_has_ended(const struct mt_contained_keeper *keeper, int wait_ms)
{
    struct pollfd first = {.fd = keeper->first, .events = POLLIN};
    return keeper->first >= 0 && poll(&first, 1, wait_ms) > 0;
}

/* What is killed may go on for a moment, and make files. */
int mt_contained_keeper_remove(const struct mt_contained_keeper *keeper)
{
    int is_gone = 0;
    for (int i = 0; i < REMOVE_STEPS && !is_gone && keeper->root >= 0; i++) {
        if (i > 0)
            rest();
        is_gone = mt_container_remove(keeper->root, keeper->folder, keeper->times);
    }
    return is_gone;
}

/* ---- the child ---- */

/* Returns whether the program in the container runs; ends where there is nothing to do. */
static int wait_for_end_of_parent(int input)
{
    char word;
    int is_guarded = 0;
    for (;;) {
        ssize_t n = read(input, &word, 1);
        if (n == 0)
            return is_guarded;
        if (n == 1 && word == DONE)
            _exit(0);
        is_guarded |= n == 1 && word == GUARDED;
    }
}

static void keep(const struct mt_contained_keeper *keeper, int input)
{
    struct stat status;
    int gone = 0;
    int steps = wait_for_end_of_parent(input) ? GUARD_STEPS : GONE_STEPS;
    for (int i = 0; i < steps && gone < GONE_STEPS; i++) {
        if (mt_contained_keeper_has_ended(keeper, 0))
            break;
        gone =
            fstatat(keeper->root, keeper->folder, &status, AT_SYMLINK_NOFOLLOW) < 0 ? gone + 1 : 0;
        rest();
    }
    mt_contained_keeper_remove(keeper);
    _exit(0);
}

/* Nobody waits for the end of what the child has open. */
static void close_others(const int kept[3])
{
    int highest = 2;
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    for (int i = 0; i < 3; i++)
        highest = kept[i] > highest ? kept[i] : highest;
    for (int fd = 3; fd < highest; fd++)
        if (fd != kept[0] && fd != kept[1] && fd != kept[2])
            close(fd);
    syscall(SYS_close_range, (unsigned)highest + 1, ~0u, 0);
}

static void start(struct mt_contained_keeper *keeper)
{
    int ends[2];
    sigset_t all;
    sigset_t before;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    keeper->child = fork();
    if (keeper->child == 0) {
        setsid(); /* no signal of a terminal is for it */
        close_others((const int[]){keeper->root, keeper->first, ends[0]});
        keep(keeper, ends[0]);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[0]);
    keeper->told = ends[1];
}

/* ---- the parent ---- */

void mt_contained_keeper_open(struct mt_contained_keeper *keeper,
                              const struct mt_container *container, const char *folder)
{
    char path[64];
    struct stat status;
    *keeper = (struct mt_contained_keeper){
        .first = (int)syscall(SYS_pidfd_open, container->pid, 0), .told = -1, .folder = folder};
    snprintf(path, sizeof path, "/proc/%d/root/", container->pid);
    keeper->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (keeper->root < 0 || fstat(keeper->root, &status) < 0)
        return;
    keeper->times[0].tv_nsec = UTIME_OMIT;
    keeper->times[1] = status.st_mtim;
    start(keeper);
}

/* A child that was killed hears nothing; its end is no signal for us. */
static void tell(const struct mt_contained_keeper *keeper, char word)
{
    if (keeper->child > 0)
        send(keeper->told, &word, 1, MSG_NOSIGNAL);
}

void mt_contained_keeper_note_guard(const struct mt_contained_keeper *keeper)
{
    tell(keeper, GUARDED);
}

void mt_contained_keeper_close(struct mt_contained_keeper *keeper)
{
    const int fds[] = {keeper->told, keeper->root, keeper->first};
    tell(keeper, DONE);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    while (keeper->child > 0 && waitpid(keeper->child, NULL, 0) < 0 && errno == EINTR)
        continue;
}
