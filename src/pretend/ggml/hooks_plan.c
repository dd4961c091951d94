/* SPDX-License-Identifier: MIT */
/* What an engine plans: compute buffers that its scheduler reserves, and dry runs, where it only
 * asks how large everything would be and allocates nothing. */
#include <string.h>

#include "hooks_buffers.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

#define PLANS_MAX 1024u

/* Planned and not forgotten yet; of a context of tensors, or of a scheduler. */
static struct plan {
    const void *owner; /* NULL: free; set last */
    const void *object;
    uint64_t bytes;
    uint32_t place;
} plans[PLANS_MAX];
static uint32_t n_plans; /* slots that were ever used */

static void note_plan(const void *owner, const void *object, struct engine *engine, void *type,
                      uint64_t bytes)
{
    const char *detail;
    enum mt_category category = current_purpose(&detail);
    uint32_t place = place_of_type(engine, type);
    hook_thread()->n_plans++;
    const char *name =
        real_ggml_backend_buft_name(engine) ? real_ggml_backend_buft_name(engine)(type) : NULL;
    for (uint32_t i = 0; i < PLANS_MAX; i++) {
        const void *empty = NULL;
        if (!__atomic_compare_exchange_n(&plans[i].owner, &empty, &plans, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        plans[i] = (struct plan){&plans, object, bytes, place};
        __atomic_store_n(&plans[i].owner, owner, __ATOMIC_RELEASE);
        uint32_t used = __atomic_load_n(&n_plans, __ATOMIC_RELAXED);
        while (used < i + 1 && !__atomic_compare_exchange_n(&n_plans, &used, i + 1, 1,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        }
        pretend_note_alloc(place, category, MT_ACCOUNT_PLANNED, object, bytes, name, detail);
        return;
    }
}

static int is_planned(const void *owner)
{
    uint32_t used = __atomic_load_n(&n_plans, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (__atomic_load_n(&plans[i].owner, __ATOMIC_ACQUIRE) == owner)
            return 1;
    return 0;
}

static void forget_plans(const void *owner)
{
    uint32_t used = __atomic_load_n(&n_plans, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; owner && i < used; i++) {
        struct plan plan = plans[i];
        if (plan.owner != owner || !__atomic_compare_exchange_n(&plans[i].owner, &owner, NULL, 0,
                                                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        pretend_note_free(plan.place, plan.object, plan.bytes);
    }
}

/* Asked of tensors that have no memory: their owner allocates nothing. */
size_t ggml_backend_alloc_ctx_tensors_from_buft_size(void *context, void *type)
{
    struct engine *engine = engine_of(CALLER);
    size_t size = real_ggml_backend_alloc_ctx_tensors_from_buft_size(engine)(context, type);
    void *tensor =
        real_ggml_get_first_tensor(engine) ? real_ggml_get_first_tensor(engine)(context) : NULL;
    if (!rehearsal() || !size || !tensor || !real_ggml_get_data(engine) ||
        real_ggml_get_data(engine)(tensor) || is_planned(context))
        return size;
    PURPOSE purpose;
    tensors_purpose(engine, context, &purpose);
    note_plan(context, tensor, engine, type, size);
    return size;
}

static void fill_again(struct hook_thread **thread)
{
    (*thread)->is_roomy--;
}

/* A context of tensors without their data has room for as many as there may be. */
void *ggml_init(struct ggml_parameters parameters)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal() || !parameters.no_alloc)
        return real_ggml_init(engine)(parameters);
    __attribute__((cleanup(fill_again))) struct hook_thread *thread = hook_thread();
    thread->is_roomy++;
    return real_ggml_init(engine)(parameters);
}

void ggml_free(void *context)
{
    if (rehearsal() && context)
        forget_plans(context);
    real_ggml_free(engine_of(CALLER))(context);
}

/* It has room for a copy of every tensor of a graph, of which it uses what copies there are: the
 * rest is address space. Its tables are cleared and so counted. */
static void *new_scheduler(struct engine *engine, void *backends, void *types, int n_backends,
                           size_t graph_size, int is_parallel, int is_offloading)
{
    __attribute__((cleanup(fill_again))) struct hook_thread *thread = hook_thread();
    thread->is_roomy++;
    return real_ggml_backend_sched_new(engine)(backends, types, n_backends, graph_size, is_parallel,
                                               is_offloading);
}

/* A scheduler belongs to the context that is being made. */
void *ggml_backend_sched_new(void *backends, void *types, int n_backends, size_t graph_size,
                             int is_parallel, int is_offloading)
{
    struct engine *engine = engine_of(CALLER);
    void *scheduler =
        new_scheduler(engine, backends, types, n_backends, graph_size, is_parallel, is_offloading);
    if (rehearsal() && scheduler)
        name_object(scheduler, current_owner());
    if (rehearsal() && scheduler && !hook_thread()->is_in_engine)
        pretend_note_mark("model");
    return scheduler;
}

void ggml_backend_sched_free(void *scheduler)
{
    if (rehearsal() && scheduler)
        forget_plans(scheduler);
    real_ggml_backend_sched_free(engine_of(CALLER))(scheduler);
}

static void begin_compute(struct purpose *purpose, const void *scheduler)
{
    purpose_begin(purpose, MT_CATEGORY_ACTIVATIONS, "compute buffer", object_name(scheduler));
}

_Bool ggml_backend_sched_reserve(void *scheduler, void *graph)
{
    struct engine *engine = engine_of(CALLER);
    struct hook_thread *thread = hook_thread();
    PURPOSE purpose;
    begin_compute(&purpose, scheduler);
    _Bool is_reserved = real_ggml_backend_sched_reserve(engine)(scheduler, graph);
    if (is_reserved && rehearsal() && !thread->is_in_engine && thread->scheduler != scheduler) {
        thread->scheduler = scheduler;
        pretend_note_mark("context");
    }
    return is_reserved;
}

_Bool ggml_backend_sched_alloc_graph(void *scheduler, void *graph)
{
    PURPOSE purpose;
    begin_compute(&purpose, scheduler);
    return real_ggml_backend_sched_alloc_graph(engine_of(CALLER))(scheduler, graph);
}

/* A graph allocator without a scheduler, or within one. */
static void begin_graph(struct purpose *purpose)
{
    const char *detail;
    char kept[sizeof purpose->detail];
    int is_known = current_purpose(&detail) == MT_CATEGORY_ACTIVATIONS;
    snprintf(kept, sizeof kept, "%s", is_known ? detail : "compute buffer");
    purpose_begin(purpose, MT_CATEGORY_ACTIVATIONS, kept, NULL);
}

_Bool ggml_gallocr_reserve_n(void *allocator, void *graph, const int *node_ids, const int *leaf_ids)
{
    PURPOSE purpose;
    begin_graph(&purpose);
    return real_ggml_gallocr_reserve_n(engine_of(CALLER))(allocator, graph, node_ids, leaf_ids);
}

_Bool ggml_gallocr_alloc_graph(void *allocator, void *graph)
{
    PURPOSE purpose;
    begin_graph(&purpose);
    return real_ggml_gallocr_alloc_graph(engine_of(CALLER))(allocator, graph);
}

/* Types that two backends share are planned once. */
static void note_sizes(struct engine *engine, void *scheduler, const size_t *sizes)
{
    if (!real_ggml_backend_sched_get_n_backends(engine) ||
        !real_ggml_backend_sched_get_backend(engine) ||
        !real_ggml_backend_sched_get_buffer_type(engine))
        return;
    PURPOSE purpose;
    begin_compute(&purpose, scheduler);
    void *type[64];
    int n = real_ggml_backend_sched_get_n_backends(engine)(scheduler);
    for (int i = 0; i < n && i < 64; i++) {
        void *backend = real_ggml_backend_sched_get_backend(engine)(scheduler, i);
        type[i] = real_ggml_backend_sched_get_buffer_type(engine)(scheduler, backend);
        int first = 0;
        while (type[first] != type[i])
            first++;
        if (first == i && sizes[i])
            note_plan(scheduler, (const char *)scheduler + i + 1, engine, type[i], sizes[i]);
    }
}

/* The batch of embeddings that a graph begins with: what each later device would be planned a copy
 * of, were its placement forgotten; there are four in turn. */
static uint64_t forgotten_bytes(struct engine *engine, void *scheduler, void *graph)
{
    enum { COPIES = 4 };
    if (!real_ggml_graph_n_nodes(engine) || !real_ggml_graph_node(engine) ||
        !real_ggml_nbytes(engine) || !real_ggml_get_name(engine) ||
        !real_ggml_backend_sched_get_buffer_type(engine))
        return 0;
    int n = real_ggml_graph_n_nodes(engine)(graph);
    int devices = 0;
    int backends = real_ggml_backend_sched_get_n_backends(engine)(scheduler);
    for (int i = 0; i < backends; i++) {
        void *backend = real_ggml_backend_sched_get_backend(engine)(scheduler, i);
        devices += place_of_type(engine, real_ggml_backend_sched_get_buffer_type(engine)(
                                             scheduler, backend)) != MT_ACCOUNT_HOST;
    }
    for (int i = 0; devices > 1 && i < n; i++) {
        void *node = real_ggml_graph_node(engine)(graph, i);
        if (strncmp(real_ggml_get_name(engine)(node), "l_out-0", 8) == 0)
            return COPIES * real_ggml_nbytes(engine)(node);
    }
    return 0;
}

static void note_correction(uint64_t bytes)
{
    static uint32_t is_noted;
    char text[MT_ACCOUNT_NOTE_BYTES];
    if (!bytes || __atomic_exchange_n(&is_noted, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text,
             "llama.cpp's dry run (--fit, llama-fit-params) plans %.2f MiB more on each device but "
             "the first than a run takes; left out here.",
             (double)bytes / 1048576.0);
    pretend_note(text);
}

static void keep_no_more(struct hook_thread **thread)
{
    (*thread)->keeps_reset = 0;
}

/* The dry run resets the scheduler after the graph was built and so forgets where the graph's maker
 * placed things; what really loads does not. So the one reset in here is left out. */
void ggml_backend_sched_reserve_size(void *scheduler, void *graph, size_t *sizes)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal()) {
        real_ggml_backend_sched_reserve_size(engine)(scheduler, graph, sizes);
        return;
    }
    uint64_t bytes = forgotten_bytes(engine, scheduler, graph);
    int is_kept;
    {
        __attribute__((cleanup(keep_no_more))) struct hook_thread *thread = hook_thread();
        thread->keeps_reset = 1;
        real_ggml_backend_sched_reserve_size(engine)(scheduler, graph, sizes);
        is_kept = !thread->keeps_reset;
    }
    note_correction(is_kept ? bytes : 0);
    forget_plans(scheduler);
    note_sizes(engine, scheduler, sizes);
}

void ggml_backend_sched_reset(void *scheduler)
{
    struct engine *engine = engine_of(CALLER);
    struct hook_thread *thread = hook_thread();
    if (thread->keeps_reset)
        thread->keeps_reset = 0;
    else
        real_ggml_backend_sched_reset(engine)(scheduler);
}
