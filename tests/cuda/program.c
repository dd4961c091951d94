/* SPDX-License-Identifier: MIT */
/* A program that uses CUDA's driver as any may: it loads the library by name and takes memory.
 * Words: "take GIB", "must GIB" (ends with 1 where that fails), "crash", "hang", "child GIB" (in a
 * process of its own, which keeps it while ours goes on), "devices", "ask" (for a private table, as
 * NVIDIA's runtime does), "need" (ends with 1 where it does not get one, with the runtime's words).
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The driver's functions that are used here, as they are documented. */
static struct {
    int (*init)(unsigned flags);
    int (*count)(int *n);
    int (*retain)(void **context, int device);
    int (*make_current)(void *context);
    int (*allocate)(unsigned long long *pointer, size_t bytes);
    int (*table)(const void **table, const unsigned char id[16]);
} driver;

static void find(void *library, const char *name, void *function)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s is not there: %s\n", name, dlerror());
        exit(9);
    }
    memcpy(function, &found, sizeof found);
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    find(library, "cuInit", &driver.init);
    find(library, "cuDeviceGetCount", &driver.count);
    find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
    find(library, "cuCtxSetCurrent", &driver.make_current);
    find(library, "cuMemAlloc_v2", &driver.allocate);
    find(library, "cuGetExportTable", &driver.table);
}

static int start(void)
{
    void *context = NULL;
    load();
    int result = driver.init(0);
    if (!result)
        result = driver.retain(&context, 0);
    return result ? result : driver.make_current(context);
}

static int take(const char *gib)
{
    unsigned long long pointer;
    return driver.allocate(&pointer, (size_t)(strtod(gib, NULL) * (double)(1ull << 30)));
}

static void child(const char *gib)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) < 0)
        exit(8);
    if (fork() == 0) {
        byte = (char)(start() || take(gib));
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1 || byte)
        exit(7);
}

static void devices(void)
{
    int n = 0;
    load();
    driver.init(0);
    driver.count(&n);
    printf("%d\n", n);
}

/* Computes without end. */
static void work(void)
{
    static volatile unsigned sum;
    for (;;)
        sum++;
}

static int ask(void)
{
    const unsigned char id[16] = {1};
    const void *table = NULL;
    load();
    return driver.table(&table, id);
}

static void need(void)
{
    if (!ask())
        return;
    fprintf(stderr, "CUDA failed with error named symbol not found\n");
    exit(1);
}

/* Words that make no context. */
static int is_apart(const char *word)
{
    static const char *const words[] = {"child", "devices", "ask", "need"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    int is_started = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int needs = !is_apart(word);
        if (needs && !is_started && start())
            return 6;
        is_started |= needs;
        if (!strcmp(word, "take"))
            take(argv[++i]);
        else if (!strcmp(word, "must") && take(argv[++i]))
            return 1;
        else if (!strcmp(word, "child"))
            child(argv[++i]);
        else if (!strcmp(word, "crash"))
            raise(SIGSEGV);
        else if (!strcmp(word, "hang"))
            pause();
        else if (!strcmp(word, "work"))
            work();
        else if (!strcmp(word, "devices"))
            devices();
        else if (!strcmp(word, "ask"))
            ask();
        else if (!strcmp(word, "need"))
            need();
    }
    return 0;
}
