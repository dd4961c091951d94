/* SPDX-License-Identifier: MIT */
/* A child that is forked while another thread counts what it takes of a device, under the lock of
 * the count: forked RECORDER starts itself under the recorder, held to a part of the device of
 * fake_driver.c, whose cuCtxGetCurrent() is asked under that lock. A child that waits for the lock
 * is ended by its alarm. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/device_caps.h"
#include "check.h"

#define MIB ((uint64_t)1 << 20)

int cuMemAlloc_v2(uint64_t *address, size_t size);
int cuMemFree_v2(uint64_t address);
extern void (*fake_current)(void);

static sem_t is_inside, may_go_on;

static void wait_inside(void)
{
    fake_current = NULL;
    sem_post(&is_inside);
    sem_wait(&may_go_on);
}

static void *take(void *context)
{
    CHECK(cuMemAlloc_v2(context, 64 * MIB) == 0);
    return NULL;
}

static void start_held(const char *self, char *recorder)
{
    static struct mt_device_caps caps = {.magic = MT_CAPS_MAGIC, .n_devices = 1};
    char name[] = "/tmp/memtally-forked-XXXXXX";
    int file = mkstemp(name);
    caps.devices[0].cap_bytes = 100 * MIB;
    CHECK(file >= 0 && write(file, &caps, sizeof caps) == (ssize_t)sizeof caps);
    CHECK(setenv(MT_CAPS_VARIABLE, name, 1) == 0 && setenv("LD_PRELOAD", recorder, 1) == 0);
    execl(self, self, (char *)NULL);
    exit(2);
}

/* It has nothing of its parent's: 64 MiB are its parent's part, 30 may be its own. */
static void child(void)
{
    uint64_t address;
    alarm(60);
    CHECK(cuMemAlloc_v2(&address, 40 * MIB) != 0);
    CHECK(cuMemAlloc_v2(&address, 30 * MIB) == 0 && cuMemFree_v2(address) == 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    uint64_t taken, address;
    int status;
    if (argc > 1)
        start_held(argv[0], argv[1]);
    unlink(getenv(MT_CAPS_VARIABLE));
    CHECK(sem_init(&is_inside, 0, 0) == 0 && sem_init(&may_go_on, 0, 0) == 0);
    fake_current = wait_inside;
    CHECK(pthread_create(&thread, NULL, take, &taken) == 0);
    sem_wait(&is_inside);
    pid_t pid = fork();
    if (pid == 0)
        child();
    CHECK(waitpid(pid, &status, 0) == pid);
    sem_post(&may_go_on);
    CHECK(pthread_join(thread, NULL) == 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        fputs("the child waits for a lock that nobody gives back\n", stderr);
    CHECK(status == 0);
    CHECK(cuMemAlloc_v2(&address, 40 * MIB) != 0 && cuMemFree_v2(taken) == 0);
    CHECK(cuMemAlloc_v2(&address, 100 * MIB) == 0);
    return 0;
}
