/* SPDX-License-Identifier: MIT */
/* A program whose allocator maps its memory under a lock that it spins on, as browsers' do. Within
 * that, whatever allocates would wait for ever. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)64 << 20)

static char *arena;
static size_t used;
static int is_locked;

static void lock(void)
{
    static const char text[] = "allocates while it maps\n";
    if (__atomic_exchange_n(&is_locked, 1, __ATOMIC_ACQUIRE)) {
        if (write(STDOUT_FILENO, text, sizeof text - 1) > 0)
            _exit(9);
    }
}

/* Each block begins with its size. */
static void *take(size_t size)
{
    lock();
    if (!arena)
        arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *block = arena == MAP_FAILED || size > ARENA_BYTES - used - 32 ? NULL : arena + used;
    if (block)
        used += (size + 16 + 15) & ~(size_t)15;
    __atomic_store_n(&is_locked, 0, __ATOMIC_RELEASE);
    if (!block)
        return NULL;
    memcpy(block, &size, sizeof size);
    return block + 16;
}

void *malloc(size_t size)
{
    return take(size);
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return take(count * size);
}

void *realloc(void *old, size_t size)
{
    char *block = take(size);
    size_t had = 0;
    if (old && block) {
        memcpy(&had, (char *)old - 16, sizeof had);
        memcpy(block, old, had < size ? had : size);
    }
    return block;
}

void early_is_linked(void); /* its library allocates before the recorder is set up */

int main(void)
{
    char *text = malloc(100);
    early_is_linked();
    if (!text)
        return 1;
    strcpy(text, "mapped");
    printf("%s\n", text);
    return 3;
}
