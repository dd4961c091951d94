/* SPDX-License-Identifier: MIT */
/* Writes the graphs that llama.cpp reserves memory with: of one model, in each of several settings.
 *
 * Compiled against the headers of the build that is asked, and linked with it; functions of its
 * graph layer are interposed. Used by scripts/templates only; nothing of memtally is linked with
 * it. usage: graph_dump OUT WORDS SETTINGS [--virtual | --sizes] FILE [LAYERS]; of SETTINGS a line each: NAME CONTEXT UBATCH SEQUENCES
 * OUTPUTS UNIFIED FLASH TYPE_K TYPE_V. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

#define ROOTS_MAX 65536
#define SLOTS     (1u << 18)

static struct ggml_tensor *roots[ROOTS_MAX];
static struct ggml_cgraph *graph_of_roots;
static int n_roots;
static int is_loading;
static const char *setting = "";
static const void *seen[SLOTS];
static int numbers[SLOTS];
static unsigned used[SLOTS];
static unsigned n_used;

static void *real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        exit(3);
    return function;
}

static unsigned slot_of(const void *at)
{
    unsigned slot = (unsigned)(((uintptr_t)at >> 4) * 2654435761u) % SLOTS;
    while (seen[slot] && seen[slot] != at)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void forget(void)
{
    while (n_used)
        seen[used[--n_used]] = NULL;
}

static void number(const void *at, int value)
{
    unsigned slot = slot_of(at);
    if (seen[slot])
        return;
    seen[slot] = at;
    numbers[slot] = value;
    used[n_used++] = slot;
}

static int number_of(const void *at)
{
    unsigned slot = slot_of(at);
    return at && seen[slot] ? numbers[slot] : -1;
}

static void add_root(struct ggml_cgraph *graph, struct ggml_tensor *tensor, int is_first)
{
    if (is_first && (graph != graph_of_roots || (!graph->n_nodes && !graph->n_leafs)))
        n_roots = 0;
    graph_of_roots = graph;
    if (n_roots < ROOTS_MAX)
        roots[n_roots++] = tensor;
}

void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *tensor)
{
    static void (*next)(struct ggml_cgraph *, struct ggml_tensor *);
    if (!next)
        next = real("ggml_build_forward_expand");
    add_root(graph, tensor, 1);
    next(graph, tensor);
}

#ifdef HAS_FORWARD_ORDER
void ggml_build_forward_order(struct ggml_cgraph *graph, struct ggml_tensor *tensor)
{
    static void (*next)(struct ggml_cgraph *, struct ggml_tensor *);
    if (!next)
        next = real("ggml_build_forward_order");
    add_root(graph, tensor, 1);
    next(graph, tensor);
}

#endif

struct ggml_tensor *ggml_build_forward_select(struct ggml_cgraph *graph,
                                              struct ggml_tensor **tensors, int n, int index)
{
    static struct ggml_tensor *(*next)(struct ggml_cgraph *, struct ggml_tensor **, int, int);
    if (!next)
        next = real("ggml_build_forward_select");
    for (int i = 0; i < n; i++)
        add_root(graph, tensors[i], !i);
    return next(graph, tensors, n, index);
}

static void write_name(const char *name)
{
    for (; *name; name++)
        putchar(*name == ' ' ? '~' : *name);
}

static void write_tensor(ggml_backend_sched_t sched, char kind, int i, struct ggml_tensor *t)
{
    ggml_backend_t pin = ggml_backend_sched_get_tensor_backend(sched, t);
    ggml_backend_buffer_t buffer = t->buffer ? t->buffer : t->view_src ? t->view_src->buffer : NULL;
    int usage = !buffer ? 0 : ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS ? 2 : 1;
    printf("%c %d %s %s %d", kind, i, ggml_op_name(t->op), ggml_type_name(t->type), t->flags);
    for (int d = 0; d < 4; d++)
        printf(" %lld", (long long)t->ne[d]);
    for (int d = 0; d < 4; d++)
        printf(" %zu", t->nb[d]);
    printf(" %d %zu %d %s %s ", number_of(t->view_src), t->view_offs, usage,
           t->buffer ? ggml_backend_buffer_name(t->buffer) : "-", pin ? ggml_backend_name(pin) : "-");
    write_name(t->name[0] ? t->name : "-");
    for (int s = 0; s < GGML_MAX_SRC; s++)
        if (t->src[s])
            printf(" %d:%d", s, number_of(t->src[s]));
    putchar('\n');
}

static int only_sizes;

static void write_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph)
{
    if (only_sizes)
        return;
    forget();
    printf("G %s %d %d\n", setting, graph->n_leafs, graph->n_nodes);
    for (int i = 0; i < graph->n_leafs; i++)
        number(graph->leafs[i], i);
    for (int i = 0; i < graph->n_nodes; i++)
        number(graph->nodes[i], graph->n_leafs + i);
    for (int i = 0; i < graph->n_leafs; i++)
        write_tensor(sched, 'L', i, graph->leafs[i]);
    for (int i = 0; i < graph->n_nodes; i++)
        write_tensor(sched, 'N', graph->n_leafs + i, graph->nodes[i]);
    printf("R");
    for (int i = 0; i < n_roots; i++)
        printf(" %d", number_of(roots[i]));
    printf("\nE\n");
    n_roots = 0;
}

static int is_nested;

bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, struct ggml_cgraph *graph)
{
    static bool (*next)(ggml_backend_sched_t, struct ggml_cgraph *);
    if (!next)
        next = real("ggml_backend_sched_reserve");
    if (!is_nested)
        write_graph(sched, graph);
    is_nested++;
    bool result = next(sched, graph);
    is_nested--;
    return result;
}

void ggml_backend_sched_reserve_size(ggml_backend_sched_t sched, struct ggml_cgraph *graph, size_t *sizes)
{
    static void (*next)(ggml_backend_sched_t, struct ggml_cgraph *, size_t *);
    if (!next)
        next = real("ggml_backend_sched_reserve_size");
    if (!is_nested)
        write_graph(sched, graph);
    is_nested++;
    next(sched, graph, sizes);
    is_nested--;
}

void ggml_backend_sched_split_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph)
{
    static void (*next)(ggml_backend_sched_t, struct ggml_cgraph *);
    if (!next)
        next = real("ggml_backend_sched_split_graph");
    if (!is_nested)
        write_graph(sched, graph);
    is_nested++;
    next(sched, graph);
    is_nested--;
}

struct ggml_tensor *ggml_dup_tensor(struct ggml_context *ctx, const struct ggml_tensor *tensor)
{
    static struct ggml_tensor *(*next)(struct ggml_context *, const struct ggml_tensor *);
    if (!next)
        next = real("ggml_dup_tensor");
    if (is_loading && tensor->name[0])
        printf("T %s %s %lld %lld %lld %lld\n", tensor->name, ggml_type_name(tensor->type), (long long)tensor->ne[0],
               (long long)tensor->ne[1], (long long)tensor->ne[2], (long long)tensor->ne[3]);
    return next(ctx, tensor);
}

/* With --sizes nothing is dumped, but what the engine then allocates. */
size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend)
{
    static size_t (*next)(ggml_backend_sched_t, ggml_backend_t);
    if (!next)
        next = real("ggml_backend_sched_get_buffer_size");
    size_t bytes = next(sched, backend);
    if (only_sizes)
        printf("B %s %s %zu\n", setting, ggml_backend_name(backend), bytes);
    return bytes;
}

static void set_nothing(struct ggml_tensor *tensor, void *user)
{
    (void)tensor;
    (void)user;
}

static enum ggml_type type_of(const char *name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++)
        if (ggml_type_name(i) && strcmp(ggml_type_name(i), name) == 0)
            return (enum ggml_type)i;
    exit(4);
}

static void run(struct llama_model *model, char *line)
{
    static char name[64];
    char type_k[16];
    char type_v[16];
    unsigned context, ubatch, sequences, outputs;
    int unified, flash;
    if (sscanf(line, "%63s %u %u %u %u %d %d %15s %15s", name, &context, &ubatch, &sequences, &outputs, &unified,
               &flash, type_k, type_v) != 9)
        exit(5);
    setting = name;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = context;
    params.n_batch = ubatch;
    params.n_ubatch = ubatch;
    params.n_seq_max = sequences;
    params.n_outputs_max = outputs;
    params.kv_unified = unified;
    params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = type_of(type_k);
    params.type_v = type_of(type_v);
    params.swa_full = false;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    struct llama_context *made = llama_init_from_model(model, params);
    printf("C %s %s\n", name, made ? "ok" : "failed");
    if (made)
        llama_free(made);
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_WARN)
        fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc < 5 || !freopen(argv[1], "w", stdout) || !freopen(argv[2], "w", stderr) || !freopen(argv[3], "r", stdin))
        return 2;
    argc -= 3;
    argv += 3;
    int is_virtual = strcmp(argv[1], "--virtual") == 0;
    only_sizes = strcmp(argv[1], "--sizes") == 0;
    const char *path = argv[is_virtual || only_sizes ? 2 : 1];
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = argc > 3 ? atoi(argv[3]) : 999;
    params.no_alloc = !only_sizes;
#ifdef HAS_LOAD_MODE
    params.load_mode = LLAMA_LOAD_MODE_NONE;
#else
    params.use_mmap = false;
#endif
    struct llama_model *model;
    is_loading = 1;
    if (is_virtual) {
        struct gguf_init_params none = {.no_alloc = true};
        struct gguf_context *metadata = gguf_init_from_file(path, none);
        if (!metadata)
            return 6;
        model = llama_model_init_from_user(metadata, set_nothing, NULL, params);
    } else
        model = llama_model_load_from_file(path, params);
    is_loading = 0;
    if (!model) {
        printf("F\n");
        return 7;
    }
    printf("M ok\n");
    char line[512];
    while (fgets(line, sizeof line, stdin))
        run(model, line);
    fflush(stdout);
    _exit(0);
}
