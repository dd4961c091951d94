/* SPDX-License-Identifier: MIT */
/* Memory that comes and goes, so that there is a peak to catch. */
#include <memtally/scope.h>

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "recorder/child.h"

#define LENGTH ((size_t)64 << 20)

static void *mapped(int flags, int fd)
{
    void *area = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags, fd, 0);
    MUST(area != MAP_FAILED);
    return area;
}

static void say_area(void *area)
{
    memset(area, 1, LENGTH);
    say("area=%#lx\n", (unsigned long)(uintptr_t)area);
}

static void fall_by_munmap(void)
{
    void *area = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say_area(area);
    munmap(area, LENGTH);
}

static void fall_by_free(void)
{
    void *block = keep(malloc(LENGTH + 65536));
    void *area = (void *)(((uintptr_t)block + 4095) & ~(uintptr_t)4095);
    say_area(area);
    free(block);
}

static void fall_by_madvise(void)
{
    void *area = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say_area(area);
    madvise(area, LENGTH, MADV_DONTNEED);
}

static void fall_by_mremap(void)
{
    void *area = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say_area(area);
    MUST(mremap(area, LENGTH, 4096, 0) == area);
}

static void fall_by_fixed_mmap(void)
{
    void *area = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say_area(area);
    MUST(mmap(area, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
}

static void fall_by_ftruncate(void)
{
    int fd = memfd_create("shared", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, (off_t)LENGTH) == 0);
    say_area(mapped(MAP_SHARED, fd));
    MUST(ftruncate(fd, 0) == 0);
}

static void fall_by_small_frees(void)
{
    enum { N = 16384 };
    static void *blocks[N];
    for (size_t i = 0; i < N; i++)
        memset(blocks[i] = keep(malloc(4080)), 1, 4080);
    say("area=%#lx\n", (unsigned long)(uintptr_t)blocks[0]);
    for (size_t i = N; i > 0; i--)
        free(blocks[i - 1]);
}

static void fall_by_end(void)
{
    say_area(mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1));
}

void early_fills_at_end(void *area, size_t length);

static void fall_after_destructors(void)
{
    void *area = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    say("area=%#lx\n", (unsigned long)(uintptr_t)area);
    early_fills_at_end(area, LENGTH);
}

/* The heap's last block goes with the end of the heap, which libc then shortens. */
static void fall_by_heap_end(void)
{
    MUST(mallopt(M_MMAP_THRESHOLD, 2 * (int)LENGTH) == 1);
    MUST(mallopt(M_TRIM_THRESHOLD, 128 << 10) == 1);
    char *block = keep(malloc(LENGTH + 65536));
    say_area((void *)(((uintptr_t)block + 4095) & ~(uintptr_t)4095));
    free(block);
}

static void *use_stack(void *context)
{
    char area[LENGTH + 4096];
    free(keep(malloc(1000)));
    say_area((void *)(((uintptr_t)area + 4095) & ~(uintptr_t)4095));
    return context;
}

static void fall_by_thread_end(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes) == 0);
    MUST(pthread_attr_setstacksize(&attributes, LENGTH + (8 << 20)) == 0);
    MUST(pthread_create(&thread, &attributes, use_stack, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} falls[] = {
    {"heap_end", fall_by_heap_end},
    {"thread_end", fall_by_thread_end},
    {"munmap", fall_by_munmap},
    {"free", fall_by_free},
    {"madvise", fall_by_madvise},
    {"mremap", fall_by_mremap},
    {"fixed_mmap", fall_by_fixed_mmap},
    {"ftruncate", fall_by_ftruncate},
    {"end", fall_by_end},
    {"destructors", fall_after_destructors},
    {"small_frees", fall_by_small_frees},
};

static int falls_by(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof falls / sizeof *falls; i++)
        if (strcmp(falls[i].name, argv[argc - 1]) == 0) {
            falls[i].run();
            return 0;
        }
    return 96;
}

static void rise_and_fall(size_t height)
{
    void *area = mmap(NULL, height, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    memset(area, 1, height);
    munmap(area, height);
}

/* waves NUMBER: resident memory rises to a new height and falls, over and over. */
static int waves(int argc, char **argv)
{
    size_t height = (size_t)8 << 20;
    for (long left = (long)number(argc, argv, 1, 2); left > 0; left--, height += (size_t)2 << 20)
        rise_and_fall(height);
    return 0;
}

/* ripple: of 384 MiB, falls from a height that has a picture, and then from a little
 * more. Says what the kernel's highest size is. */
static int ripple(int argc, char **argv)
{
    const size_t base = (size_t)384 << 20, first = (size_t)8 << 20, more = (size_t)640 << 10;
    void *area = mmap(NULL, base, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rusage usage;
    (void)argc;
    (void)argv;
    MUST(area != MAP_FAILED);
    memset(area, 1, base);
    rise_and_fall(first);
    rise_and_fall(first + more);
    MUST(getrusage(RUSAGE_SELF, &usage) == 0);
    printf("highest=%lu\n", (unsigned long)usage.ru_maxrss * 1024);
    return 0;
}

const struct command map_commands[] = {
    {"falls", falls_by}, {"waves", waves}, {"ripple", ripple}, {NULL, NULL}};
