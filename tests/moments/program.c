/* SPDX-License-Identifier: MIT */
/* A program whose memory is known: it does what its first argument says. Where several processes
 * take part, the first adds up what the kernel says of all of them (Pss, in which a page that n
 * share counts to 1/n) whenever nobody moves, and prints the largest sum and how it came about. */
#include <memtally/scope.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recording/format.h"

#define MIB ((size_t)1 << 20)

/* Before main(), and before most of what a program does. */
__attribute__((constructor)) static void begin(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "constructor") == 0)
        _exit(0);
}

static char *touched(size_t bytes)
{
    char *memory = malloc(bytes);
    if (memory)
        memset(memory, 1, bytes);
    return memory;
}

static char *mapped(size_t bytes, int flags)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(2);
    memset(memory, 1, bytes);
    return memory;
}

/* ---- of one process ---- */

/* Blocks of all sizes, until somebody ends it. */
_Noreturn static void churn(void)
{
    static char *blocks[1024];
    uint64_t random = (uint64_t)getpid();
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        char **block = &blocks[random >> 54];
        free(*block);
        *block = touched((size_t)64 << (random >> 33) % 14);
    }
}

static void *hold(void *unused)
{
    (void)unused;
    char *memory = touched(32 * MIB);
    for (int i = 0; memory && i < 200; i++)
        free(touched(MIB));
    return NULL; /* and keeps it */
}

static int leave_main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold, NULL) != 0)
        return 2;
    pthread_exit(NULL);
}

/* 128 MiB of blocks of 4 KiB come and go twice, and stay with the allocator in between: all but the
 * last were freed before the program ends, and nothing went back to the system. */
static int plateau(void)
{
    enum { N = 32768 };
    static char *blocks[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            if (!(blocks[i] = touched(4000)))
                return 2;
        for (int i = 0; i < N - 1; i++)
            free(blocks[i]);
    }
    return 0;
}

/* Half of a mapping is touched after the highest moment, without a call, and marked. All of it goes
 * before the end. Prints what was touched. */
static int mark_touched(void)
{
    char *later = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *highest = mapped(96 * MIB, MAP_PRIVATE);
    munmap(highest, 96 * MIB);
    memset(later, 1, 32 * MIB);
    mt_mark("touched");
    munmap(later, 64 * MIB);
    printf("%zu\n", 32 * MIB);
    return 0;
}

/* Many marks, and a peak after them that is a little higher. */
static int mark_often(void)
{
    char *held = touched(16 * MIB);
    for (int i = 0; i < 20000; i++)
        mt_mark("step");
    free(touched(4 * MIB));
    free(held);
    return 0;
}

/* ---- of several ---- */

static uint64_t pss_kib(pid_t pid)
{
    char path[64];
    char line[128];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

struct child {
    pid_t pid;
    int to;
    int from;
};

static uint64_t most_kib;

static void count(const struct child *children, int n)
{
    uint64_t sum = pss_kib(getpid());
    for (int i = 0; i < n; i++)
        sum += pss_kib(children[i].pid);
    most_kib = sum > most_kib ? sum : most_kib;
}

/* A child does `work` each time it is told 1, says so, and ends when it is told 0. */
static struct child start(void (*work)(int step))
{
    int to[2];
    int from[2];
    char byte;
    if (pipe(to) < 0 || pipe(from) < 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        for (int step = 0; read(to[0], &byte, 1) == 1 && byte; step++) {
            if (work)
                work(step);
            if (write(from[1], &byte, 1) != 1)
                break;
        }
        exit(0);
    }
    close(to[0]);
    close(from[1]);
    return (struct child){pid, to[1], from[0]};
}

static void tell(const struct child *child)
{
    char byte = 1;
    if (write(child->to, &byte, 1) != 1 || read(child->from, &byte, 1) != 1)
        exit(2);
}

static void end(const struct child *child)
{
    char byte = 0;
    if (write(child->to, &byte, 1) != 1 || waitpid(child->pid, NULL, 0) != child->pid)
        exit(2);
}

static int say(void)
{
    printf("%llu\n", (unsigned long long)most_kib * 1024);
    return 0;
}

static char *taken;

static void take_100(int step)
{
    if (step == 0)
        taken = mapped(100 * MIB, MAP_PRIVATE);
}

/* The first has 120 MiB when the second has 1, and 50 when that has 100. */
static int alternate(void)
{
    struct child child = start(take_100);
    char *memory = mapped(120 * MIB, MAP_PRIVATE);
    count(&child, 1);
    munmap(memory, 70 * MIB);
    tell(&child);
    count(&child, 1);
    munmap(memory + 70 * MIB, 50 * MIB);
    count(&child, 1);
    end(&child);
    return say();
}

/* The same with blocks of the heap. */
static int alternate_heap(void)
{
    struct child child = start(take_100);
    char *a = touched(70 * MIB);
    char *b = touched(50 * MIB);
    count(&child, 1);
    free(a);
    tell(&child);
    count(&child, 1);
    free(b);
    count(&child, 1);
    end(&child);
    return say();
}

static void take_20(int step)
{
    if (step == 0)
        taken = touched(20 * MIB);
}

/* A server that loads 96 MiB and forks four: two wait, two have 20 MiB of their own. */
static int prefork(void)
{
    struct child children[4];
    char *memory = touched(96 * MIB);
    for (int i = 0; i < 4; i++)
        children[i] = start(i < 2 ? NULL : take_20);
    for (int i = 2; i < 4; i++)
        tell(&children[i]);
    count(children, 4);
    for (int i = 0; i < 4; i++)
        end(&children[i]);
    free(memory);
    return say();
}

static char *common;

static void read_common(int step)
{
    volatile char sum = 0;
    if (step == 0)
        for (size_t i = 0; i < 64 * MIB; i += 4096)
            sum = (char)(sum + common[i]);
}

/* 64 MiB that three processes have mapped and read. */
static int shared(void)
{
    struct child children[2];
    common = mapped(64 * MIB, MAP_SHARED);
    for (int i = 0; i < 2; i++)
        children[i] = start(read_common);
    for (int i = 0; i < 2; i++)
        tell(&children[i]);
    count(children, 2);
    for (int i = 0; i < 2; i++)
        end(&children[i]);
    return say();
}

/* A child that allocates nothing and is never seen but by its parent. */
static int quiet(void)
{
    struct child child;
    char *memory = touched(48 * MIB);
    child = start(NULL);
    tell(&child);
    count(&child, 1);
    end(&child);
    free(memory);
    return say();
}

/* ---- past libc ---- */

/* The system call itself: nothing that is preloaded stands before it. */
static long kernel(long call, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(call), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = call;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    register long sixth __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(number), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
#endif
}

static char *taken_raw(size_t bytes)
{
    long memory = kernel(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory < 0 && memory > -4096)
        exit(2);
    memset((char *)memory, 1, bytes);
    return (char *)memory;
}

/* The file of who watches from outside; NULL where nobody does. */
static const volatile struct mt_file_header *watcher(void)
{
    char path[4096];
    const char *folder = getenv("MEMTALLY_RECORD_DIR");
    snprintf(path, sizeof path, "%s/watch.mtr", folder ? folder : "");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof(struct mt_file_header), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits until the watcher has taken a picture, or for a minute. Returns when it had not yet. */
static uint64_t await_picture(const volatile struct mt_file_header *watch)
{
    uint64_t n = watch ? watch->pictures_taken : 0;
    uint64_t before = now_ms();
    for (int i = 0; watch && i < 60000; i++) {
        uint64_t now = now_ms();
        if (watch->pictures_taken != n)
            break;
        before = now;
        usleep(1000);
    }
    return before;
}

static unsigned long resident_kib(void)
{
    unsigned long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && fgets(line, sizeof line, file))
        (void)sscanf(line, "Rss: %lu", &kib);
    if (file)
        fclose(file);
    return kib;
}

static void give_raw(char *memory, size_t bytes)
{
    kernel(SYS_munmap, (long)memory, (long)bytes, 0, 0, 0, 0);
}

/* 151 MiB and 8 more are taken, touched and given back by system calls of its own, and by none of
 * libc's. The 8 come right after a picture: the watcher takes no other for 30 ms then, so that the
 * next one begins when all is touched. Where that took longer it begins anew, from little. Prints
 * what the kernel counts. */
static int raw(void)
{
    const volatile struct mt_file_header *watch = watcher();
    for (;;) {
        char *most = taken_raw(151 * MIB);
        uint64_t before = await_picture(watch);
        char *more = taken_raw(8 * MIB);
        int is_next_of_all = !watch || now_ms() - before < 30;
        unsigned long kib = resident_kib();
        await_picture(watch);
        give_raw(more, 8 * MIB);
        give_raw(most, 151 * MIB);
        if (is_next_of_all) {
            printf("%lu\n", kib * 1024);
            return 0;
        }
        await_picture(watch);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*deed)(void);
    } deeds[] = {
        {"leave_main", leave_main}, {"plateau", plateau},
        {"alternate", alternate},   {"alternate_heap", alternate_heap},
        {"prefork", prefork},       {"shared", shared},
        {"quiet", quiet},           {"mark_touched", mark_touched},
        {"mark_often", mark_often}, {"raw", raw},
    };
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (strcmp(name, deeds[i].name) == 0)
            return deeds[i].deed();
    if (strcmp(name, "churn") == 0)
        churn();
    if (strcmp(name, "abort") == 0)
        abort();
    return 0;
}
