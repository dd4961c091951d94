/* SPDX-License-Identifier: MIT */
/* The child calls each hooked function of libc and says which operations a recorder should see. */
#include <memtally/scope.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder/child.h"

/* C23; glibc has them from 2.42 on. */
__attribute__((weak)) void free_sized(void *address, size_t size);
__attribute__((weak)) void free_aligned_sized(void *address, size_t alignment, size_t size);

#define MIB ((size_t)1 << 20)

/* More than there can be, which the compiler is not to know. */
static volatile size_t too_many = SIZE_MAX / 2;

static unsigned long long hex(const void *address)
{
    return (unsigned long long)(uintptr_t)address;
}

static void expect_alloc(void *address, size_t size)
{
    MUST(address != NULL);
    say("ALLOC %llx %zx\n", hex(address), size);
}

static void expect_free(const void *address)
{
    say("FREE %llx\n", hex(address));
}

static void malloc_case(void)
{
    void *block = keep(malloc(1000));
    void *empty = keep(malloc(0));
    MUST(keep(malloc((size_t)PTRDIFF_MAX)) == NULL && errno == ENOMEM);
    expect_alloc(block, 1000);
    expect_alloc(empty, 0);
}

static void calloc_case(void)
{
    void *block = keep(calloc(10, 123));
    MUST(keep(calloc(too_many, 4)) == NULL);
    expect_alloc(block, 1230);
}

static void free_case(void)
{
    void *block = keep(malloc(70000));
    errno = 7;
    free(block);
    free(NULL);
    MUST(errno == 7);
    expect_alloc(block, 70000);
    expect_free(block);
}

static void realloc_case(void)
{
    void *first = keep(realloc(NULL, 100));
    uintptr_t first_at = (uintptr_t)first;
    void *second = keep(realloc(first, 200000));
    size_t usable = malloc_usable_size(second);
    MUST(keep(realloc(second, (size_t)PTRDIFF_MAX)) == NULL && errno == ENOMEM);
    MUST(realloc(second, 0) == NULL);
    expect_alloc((void *)first_at, 100);
    expect_free((void *)first_at);
    expect_alloc(second, 200000);
    expect_free(second);
    expect_alloc(second, usable); /* the failed call left it as it was */
    expect_free(second);
}

static void reallocarray_case(void)
{
    void *first = keep(reallocarray(NULL, 3, 700));
    uintptr_t first_at = (uintptr_t)first;
    MUST(keep(reallocarray(first, too_many, 4)) == NULL && errno == ENOMEM);
    void *second = keep(reallocarray(first, 30, 7000));
    expect_alloc((void *)first_at, 2100);
    expect_free((void *)first_at);
    expect_alloc(second, 210000);
}

static void memalign_case(void)
{
    void *block = keep(memalign(256, 1001));
    expect_alloc(block, 1001);
}

static void posix_memalign_case(void)
{
    void *block = NULL;
    void *none = NULL;
    MUST(posix_memalign(&block, 4096, 1002) == 0);
    MUST(posix_memalign(&none, 3, 1002) == EINVAL && none == NULL);
    expect_alloc(keep(block), 1002);
}

static void aligned_alloc_case(void)
{
    void *block = keep(aligned_alloc(64, 1024));
    expect_alloc(block, 1024);
}

static void valloc_case(void)
{
    void *block = keep(valloc(1003));
    expect_alloc(block, 1003);
}

static void pvalloc_case(void)
{
    void *block = keep(pvalloc(1004));
    expect_alloc(block, 1004);
}

static void free_sized_case(void)
{
    if (!free_sized) /* no recorder, and a libc without it */
        return;
    void *block = keep(malloc(1005));
    uintptr_t at = (uintptr_t)block;
    free_sized(block, 1005);
    free_sized(NULL, 0);
    expect_alloc((void *)at, 1005);
    expect_free((void *)at);
}

static void free_aligned_sized_case(void)
{
    if (!free_aligned_sized)
        return;
    void *block = keep(aligned_alloc(64, 1088));
    uintptr_t at = (uintptr_t)block;
    free_aligned_sized(block, 64, 1088);
    expect_alloc((void *)at, 1088);
    expect_free((void *)at);
}

/* Only a height that there was not yet is looked at. */
static void malloc_trim_case(void)
{
    const size_t length = 16 << 20;
    long height = syscall(SYS_mmap, NULL, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, (long)0);
    MUST(height != -1);
    memset((void *)height, 1, length);
    malloc_trim(0);
    say("LOOK\n");
}

static void expect_mmap(const void *address, size_t length, int protection, int flags, int fd,
                        size_t offset)
{
    say("MMAP %llx %zx %x %x %x %zx\n", hex(address), length, (unsigned)protection, (unsigned)flags,
        fd >= 0, offset);
}

static void mmap_case(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *area = mmap(NULL, MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    MUST(area != MAP_FAILED);
    MUST(mmap(NULL, 0, PROT_READ, flags, -1, 0) == MAP_FAILED && errno == EINVAL);
    expect_mmap(area, MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void mmap64_case(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *area = mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
    MUST(area != MAP_FAILED);
    expect_mmap(area, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
    close(fd);
}

static void *area_of(size_t length)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *area = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    MUST(area != MAP_FAILED);
    expect_mmap(area, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    return area;
}

static void expect_mremap(const void *from, size_t old_length, const void *to, size_t length)
{
    say("MREMAP %llx %zx %llx %zx\n", hex(from), old_length, hex(to), length);
}

static void mremap_case(void)
{
    char *area = area_of(8 * 4096);
    MUST(mremap(area, 8 * 4096, 4 * 4096, 0) == area);
    expect_mremap(area, 8 * 4096, area, 4 * 4096);
    void *place = area_of(4 * 4096);
    void *moved = mremap(area, 4 * 4096, 4 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    MUST(moved == place);
    expect_mremap(area, 4 * 4096, place, 4 * 4096);
    MUST(mremap(area, 4 * 4096, 4 * 4096, 0x40000000) == MAP_FAILED);
}

static void munmap_case(void)
{
    char *area = area_of(4 * 4096);
    MUST(munmap(area + 4096, 4096) == 0);
    MUST(munmap(area + 1, 4096) < 0 && errno == EINVAL);
    say("MUNMAP %llx 1000\n", hex(area + 4096));
}

static void madvise_case(void)
{
    char *area = area_of(4 * 4096);
    MUST(madvise(area, 4096, MADV_DONTNEED) == 0);
    MUST(madvise(area, 4096, MADV_WILLNEED) == 0); /* nothing falls */
    MUST(madvise(area + 1, 4096, MADV_DONTNEED) < 0 && errno == EINVAL);
    say("MADVISE %llx 1000 %x\n", hex(area), (unsigned)MADV_DONTNEED);
}

static void memfd_create_case(void)
{
    int fd = memfd_create("memory of the test", MFD_CLOEXEC);
    MUST(fd >= 0);
    MUST(memfd_create("x", ~0u) < 0 && errno == EINVAL);
    say("MEMFD %x\n", (unsigned)fd);
    close(fd);
}

static void truncating(int (*truncate_it)(int, off_t))
{
    int fd = memfd_create("x", MFD_CLOEXEC);
    MUST(fd >= 0 && truncate_it(fd, 8192) == 0);
    MUST(truncate_it(-1, 1) < 0 && errno == EBADF);
    say("MEMFD %x\nFTRUNCATE %x 2000\n", (unsigned)fd, (unsigned)fd);
    close(fd);
}

static void ftruncate_case(void)
{
    truncating(ftruncate);
}

static void ftruncate64_case(void)
{
    truncating(ftruncate64);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name)                                                                                 \
    {                                                                                              \
#name, name##_case                                                                         \
    }
    CASE(malloc),     CASE(calloc),       CASE(free),
    CASE(realloc),    CASE(reallocarray), CASE(memalign),
    CASE(valloc),     CASE(pvalloc),      CASE(posix_memalign),
    CASE(mmap),       CASE(mmap64),       CASE(aligned_alloc),
    CASE(mremap),     CASE(munmap),       CASE(madvise),
    CASE(ftruncate),  CASE(ftruncate64),  CASE(memfd_create),
    CASE(free_sized), CASE(malloc_trim),  CASE(free_aligned_sized),
};

static int hook(int argc, char **argv)
{
    (void)argc;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            mt_mark(argv[1]);
            cases[i].run();
            mt_mark("end");
            return 0;
        }
    say("no such hook\n");
    return 96;
}

/* Labels, scopes and their recording by name, as scope.h has them. */
static int scopes(int argc, char **argv)
{
    static char memory[4096];
    (void)argc;
    (void)argv;
    mt_mark("scopes");
    mt_scope_begin(MT_CATEGORY_KV_CACHE, "outer");
    mt_scope_begin(MT_CATEGORY_WEIGHTS, "inner");
    mt_scope_end();
    mt_scope_end();
    mt_scope_end(); /* one too many */
    mt_label(memory, sizeof memory, MT_CATEGORY_ACTIVATIONS, "label");
    mt_unlabel(memory + 1024, 1024);
    mt_mark("end");
    say("SCOPE_BEGIN 2\nSCOPE_BEGIN 1\nSCOPE_END\nSCOPE_END\nSCOPE_END\n"
        "LABEL %llx 1000 4\nUNLABEL %llx 400\n",
        hex(memory), hex(memory + 1024));
    return 0;
}

/* A block too small for an event: that it ends is one where it was labelled, and once. What is said
 * of it is an event where it is not what was said last: of this block, and since something was said
 * of a range. */
static int label_block(int argc, char **argv)
{
    static void *blocks[100]; /* of which a sample might be taken */
    (void)argc;
    (void)argv;
    for (size_t i = 0; i < 100; i++)
        MUST((blocks[i] = malloc(10)) != NULL);
    mt_mark("label_block");
    for (size_t i = 0; i < 100; i++) {
        mt_label_block(blocks[i], 10, MT_CATEGORY_WEIGHTS, "small");
        mt_label_block(blocks[i], 10, MT_CATEGORY_WEIGHTS, "small");
        mt_label_block(blocks[i], 10, MT_CATEGORY_KV_CACHE, "small");
    }
    mt_label(blocks, sizeof blocks, MT_CATEGORY_WEIGHTS, "range");
    mt_label_block(blocks[99], 10, MT_CATEGORY_KV_CACHE, "small");
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    void *again = malloc(10); /* libc gives one of them */
    size_t place = 0;
    while (place < 100 && again != blocks[place])
        place++;
    MUST(place < 100);
    mt_label_block(again, 10, MT_CATEGORY_KV_CACHE, "small");
    free(again);
    mt_mark("end");
    for (size_t i = 0; i < 100; i++)
        say("LABEL_BLOCK %llx a 1\nLABEL_BLOCK %llx a 2\n", hex(blocks[i]), hex(blocks[i]));
    say("LABEL %llx %llx 1\nLABEL_BLOCK %llx a 2\n", hex(blocks), (unsigned long long)sizeof blocks,
        hex(blocks[99]));
    for (size_t i = 0; i < 100; i++)
        say("SAMPLE_FREE %llx\n", hex(blocks[i]));
    say("LABEL_BLOCK %llx a 2\nSAMPLE_FREE %llx\n", hex(again), hex(again));
    return 0;
}

/* Between any two labels of the block, something is said of a range, and the block becomes another
 * thing. */
static int label_by_turns(int argc, char **argv)
{
    static char range[64];
    (void)argc;
    (void)argv;
    void *block = malloc(100000);
    MUST(block != NULL);
    mt_mark("label_by_turns");
    for (int i = 0; i < 600; i++) {
        int category = i % 2 ? MT_CATEGORY_KV_CACHE : MT_CATEGORY_WEIGHTS;
        size_t length = i % 3 ? 1000 : 1001;
        mt_label_block(block, length, category, "block");
        mt_label(range, sizeof range, MT_CATEGORY_WEIGHTS, "range");
        say("LABEL_BLOCK %llx %zx %d\nLABEL %llx 40 1\n", hex(block), length, category, hex(range));
    }
    mt_mark("end");
    free(block);
    return 0;
}

const struct command hook_commands[] = {{"hook", hook},
                                        {"scopes", scopes},
                                        {"label_block", label_block},
                                        {"label_by_turns", label_by_turns},
                                        {NULL, NULL}};
