/* SPDX-License-Identifier: MIT */
/* A program that opens two engines, each with its own ggml, so that neither sees the other's. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_engine(const char *path)
{
    void *engine = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!engine) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return engine;
}

static void *call(void *handle, const char *name)
{
    void (*function)(void);
    void *address = dlsym(handle, name);
    if (!address) {
        printf("no %s\n", name);
        exit(1);
    }
    memcpy(&function, &address, sizeof function);
    function();
    return address;
}

/* The function that a handle gives must be the handle's own, or lead to it. */
static void size_by_handle(void *engine, int copy)
{
    struct {
        int copy;
        const char *name;
        _Bool host;
        void *inner;
        size_t limit;
        _Bool throws;
    } type = {.copy = copy, .name = "by handle"};
    struct {
        size_t size;
        void *first;
    } context = {4711, NULL};
    size_t (*size_of)(void *context, void *type);
    void *address = dlsym(engine, "ggml_backend_alloc_ctx_tensors_from_buft_size");
    memcpy(&size_of, &address, sizeof size_of);
    printf("by handle: %zu\n", size_of(&context, &type));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    void *first = open_engine(argv[1]);
    void *second = open_engine(argv[2]);
    call(first, "run_engine");
    call(second, "run_engine");
    size_by_handle(first, 1);
    size_by_handle(second, 2);
    printf("by default: %s\n", dlsym(RTLD_DEFAULT, "ggml_get_name") ? "found" : "none");
    dlclose(first);
    dlclose(second);
    dlerror();
    printf("closed: %s\n", dlsym(RTLD_DEFAULT, "ggml_backend_buffer_free") ? "found" : "none");
    return 0;
}
