/* SPDX-License-Identifier: MIT */
/* A program whose output depends on how dlopen and dlsym see their caller. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tool(void);
const char *next_tool(void);
void *open_leaf(int flags);
void second_is_linked(void);
__attribute__((weak)) void ggml_backend_buffer_set_usage(void *buffer, int usage);

/* Not the blanks at its end. */
static const char *last_error(void)
{
    static char text[512];
    const char *error = dlerror();
    if (!error)
        return "no error";
    snprintf(text, sizeof text, "%s", error);
    for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
    return text;
}

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
    printf("%s: %s, %s\n", name, found ? "found" : "none", last_error());
}

static void *allocate(void *keep)
{
    void *volatile block = malloc(300000);
    free(block);
    return keep;
}

/* What went wrong is there to be asked for whatever comes in between. */
static void say_late(void)
{
    pthread_t thread;
    void *opened = dlopen("libnowhere.so", RTLD_NOW);
    allocate(NULL);
    if (pthread_create(&thread, NULL, allocate, NULL) == 0)
        pthread_join(thread, NULL);
    if (ggml_backend_buffer_set_usage) /* the recorder's, which asks the loader */
        ggml_backend_buffer_set_usage(NULL, 0);
    printf("%s: %s\n", opened ? "opened" : "not there", last_error());
    printf("then: %s\n", last_error());
}

int main(void)
{
    second_is_linked();
    printf("before: %s\n", last_error());
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
    say_late();
    return 0;
}
