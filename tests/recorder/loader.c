/* SPDX-License-Identifier: MIT */
/* A program whose output depends on how dlopen and dlsym see their caller. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tool(void);
const char *next_tool(void);
void *open_leaf(int flags);
void second_is_linked(void);

static void say_leaf(int flags)
{
    const char *(*name)(void);
    void *(*block)(void);
    void *leaf = open_leaf(flags);
    if (!leaf) {
        printf("no leaf: %s\n", dlerror());
        return;
    }
    void *address = dlsym(leaf, "leaf_name");
    memcpy(&name, &address, sizeof name);
    address = dlsym(leaf, "leaf_block");
    memcpy(&block, &address, sizeof block);
    free(block());
    printf("%s", name());
    printf(", closed: %d\n", dlclose(leaf));
}

static void say_symbol(void *handle, const char *name)
{
    dlerror();
    void *found = dlsym(handle, name);
    printf("%s: %s, %s\n", name, found ? "found" : "none", dlerror() ? "an error" : "no error");
}

int main(void)
{
    second_is_linked();
    printf("before: %s\n", dlerror() ? "an error" : "no error");
    printf("%s, then %s\n", tool(), next_tool());
    say_leaf(RTLD_NOW);
    say_leaf(RTLD_LAZY | RTLD_DEEPBIND);
    void *self = dlopen(NULL, RTLD_NOW);
    say_symbol(RTLD_DEFAULT, "malloc");
    say_symbol(RTLD_DEFAULT, "no_such_name");
    say_symbol(RTLD_DEFAULT, "ggml_backend_buffer_free");
    say_symbol(RTLD_NEXT, "ggml_backend_no_such_name");
    say_symbol(self, "ggml_backend_buft_alloc_buffer");
    say_symbol(self, "ggml_backend_alloc_ctx_tensors_from_buft");
    printf("%s\n", dlopen("libnowhere.so", RTLD_NOW) ? "opened" : "not there");
    return 0;
}
