/* SPDX-License-Identifier: MIT */
/* Python's own call stack, read where the interpreter keeps it.
 *
 * CPython has no interface that says where a thread is and may be called inside an allocation. So
 * we read its structs, by a table of where their fields lie in each version. The helper in Python
 * compares what we read with what the interpreter says (python/memtally/watch/frames.py). Until
 * then we read memory through the kernel, which refuses what is not there; afterwards directly. A
 * thread reads only its own frames, which stand still meanwhile. The interpreter frees the states
 * of other threads when it ends; before that the helper stops the reading. */
#include "recorder/python.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>

#include "recorder/python_text.h"
#include "recorder/real.h"
#include "recorder/sys.h"

#define HOOK(result, name, parameters)
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters) EXPORTED result name parameters;
#include "recorder/hooks.def"

#define NO_FIELD    UINT16_MAX
#define OWNER_IS_C  3 /* and above: a frame without code that marks where C called */
#define FRAME_LIMIT 4096

/* Offsets, in bytes. From CPython's headers: pystate.h, pycore_frame.h, code.h, unicodeobject.h. */
static const struct python_layout layouts[] = {
    /* version, frame and cframe of a thread; of a frame: code, previous, instruction, owner,
     * is_entry; of code: first line, name, file, lines, instructions; of a text: ASCII head, wide
     * head */
    {310, 24, NO_FIELD, 32, 24, 96, NO_FIELD, NO_FIELD, {40, 112, 104, 120, NO_FIELD, 48, 72}},
    {311, 56, 8, 32, 48, 56, 69, 68, {72, 128, 112, 136, 184, 48, 72}},
    {312, 56, 0, 0, 8, 56, 70, NO_FIELD, {68, 128, 112, 136, 192, 40, 56}},
    {313, 72, NO_FIELD, 0, 8, 56, 70, NO_FIELD, {68, 128, 112, 136, 200, 40, 56}},
    {314, 72, NO_FIELD, 0, 8, 56, 74, NO_FIELD, {68, 128, 112, 136, 208, 40, 56}},
    {314, 72, NO_FIELD, 0, 8, 56, 74, NO_FIELD, {68, 128, 112, 136, 200, 40, 56}},
    {314, 64, NO_FIELD, 0, 8, 56, 74, NO_FIELD, {68, 128, 112, 136, 208, 40, 56}},
    {314, 64, NO_FIELD, 0, 8, 56, 74, NO_FIELD, {68, 128, 112, 136, 200, 40, 56}},
};

/* Through the kernel: 0 where the memory is not there. */
static int read_safely(uintptr_t from, void *to, size_t length)
{
    struct iovec here = {to, length};
    struct iovec there = {(void *)from, length};
    long pid = MT_SYS0(SYS_getpid);
    return MT_SYS6(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0) == (long)length;
}

static int read_directly(uintptr_t from, void *to, size_t length)
{
    if (from < 4096)
        return 0;
    memcpy(to, (const void *)from, length);
    return 1;
}

/* What the kernel reads is checked; afterwards the same fields are read without it. */
struct reading {
    const struct python_layout *layout;
    int is_checked;
};

static inline int get(const struct reading *reading, uintptr_t from, void *to, size_t length)
{
    return LIKELY(reading->is_checked) ? read_directly(from, to, length)
                                       : read_safely(from, to, length);
}

static inline uintptr_t get_pointer(const struct reading *reading, uintptr_t from)
{
    uintptr_t value = 0;
    return get(reading, from, &value, sizeof value) ? value : 0;
}

static inline uint8_t get_byte(const struct reading *reading, uintptr_t from)
{
    uint8_t value = 0;
    return get(reading, from, &value, sizeof value) ? value : 0;
}

static uintptr_t innermost(const struct reading *reading, uintptr_t state)
{
    const struct python_layout *layout = reading->layout;
    uintptr_t at = get_pointer(reading, state + layout->state_frame);
    if (layout->cframe_frame == NO_FIELD || !at)
        return at;
    return get_pointer(reading, at + layout->cframe_frame);
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

#define OBJECT_SIZE_AT 16u
#define BYTES_AT       32u

/* Eight bytes of what an object holds, and how many there are; `at` is where they begin. */
static uint64_t gist(const struct reading *reading, uintptr_t object, uint32_t at, int is_from_end)
{
    uint64_t size = 0;
    uint64_t bytes = 0;
    if (!object || !get(reading, object + OBJECT_SIZE_AT, &size, sizeof size) || size > UINT32_MAX)
        return 0;
    uint64_t first = is_from_end && size > sizeof bytes ? size - sizeof bytes : 0;
    get(reading, object + at + first, &bytes, sizeof bytes);
    return mix(bytes) + size;
}

/* Code that is freed gives its address, and that of its name, to other code, often at once: what
 * tells the two apart is part of the key. */
static uint64_t key_of(const struct reading *reading, const struct python_place *place)
{
    const struct python_code_layout *layout = &reading->layout->code;
    uint32_t first_line = 0;
    get(reading, place->code + layout->first_line, &first_line, sizeof first_line);
    uintptr_t name = get_pointer(reading, place->code + layout->name);
    uintptr_t file = get_pointer(reading, place->code + layout->file);
    uintptr_t lines = get_pointer(reading, place->code + layout->lines);
    uint64_t key = mix(place->code + mix(place->instruction + name));
    key = mix(key + first_line + gist(reading, lines, BYTES_AT, 0));
    key = mix(key + gist(reading, file, layout->ascii_head, 1));
    return mix(key + gist(reading, name, layout->ascii_head, 0));
}

static int fill_place(const struct reading *reading, uintptr_t frame, struct python_place *place)
{
    const struct python_layout *layout = reading->layout;
    uintptr_t code = get_pointer(reading, frame + layout->frame_code) & ~(uintptr_t)7;
    uint32_t index = 0;
    if (!code ||
        get_pointer(reading, code + sizeof(void *)) != memtally_recorder.interpreter.code_type)
        return 0;
    place->code = code;
    if (layout->version == 310) {
        get(reading, frame + layout->frame_instruction, &index, sizeof index);
        place->instruction = index;
    } else {
        place->instruction = get_pointer(reading, frame + layout->frame_instruction);
    }
    place->key = key_of(reading, place);
    place->is_entry = 0;
    return 1;
}

static int is_mark_of_c(const struct reading *reading, uintptr_t frame)
{
    uint16_t owner = reading->layout->frame_owner;
    return owner != NO_FIELD && get_byte(reading, frame + owner) >= OWNER_IS_C;
}

/* From 3.12 on a mark follows what C called; before, the frame itself says so. */
static void follow(const struct reading *reading, uintptr_t frame, struct python_stack *stack)
{
    const struct python_layout *layout = reading->layout;
    for (int seen = 0; frame && seen < FRAME_LIMIT; seen++) {
        struct python_place *place = &stack->place[stack->n];
        if (is_mark_of_c(reading, frame)) {
            if (stack->n)
                place[-1].is_entry = 1;
        } else if (fill_place(reading, frame, place)) {
            if (layout->version == 310)
                place->is_entry = 1;
            else if (layout->frame_is_entry != NO_FIELD)
                place->is_entry = get_byte(reading, frame + layout->frame_is_entry) != 0;
            stack->n++;
        }
        frame = get_pointer(reading, frame + layout->frame_previous);
        if (stack->n == PYTHON_MOST_FRAMES)
            break;
    }
    stack->is_cut = frame != 0;
}

static void read_stack(const struct reading *reading, uintptr_t state, struct python_stack *stack)
{
    stack->n = 0;
    stack->is_cut = 0;
    stack->hash = 0;
    follow(reading, innermost(reading, state), stack);
    for (uint32_t i = 0; i < stack->n; i++)
        stack->hash += stack->place[i].key * memtally_recorder.frame_keys[i];
}

/* Other threads than the main one are waited for when reading is stopped. */
int python_walk(struct python_stack *stack)
{
    uint32_t *readers = &memtally_recorder.process->python_readers;
    const struct reading reading = {memtally_recorder.interpreter.layout, 1};
    __atomic_fetch_add(readers, 1, __ATOMIC_SEQ_CST);
    void *state = NULL;
    if (__atomic_load_n(&memtally_recorder.python, __ATOMIC_SEQ_CST))
        state = memtally_recorder.interpreter.thread_state();
    if (state)
        read_stack(&reading, (uintptr_t)state, stack);
    __atomic_fetch_sub(readers, 1, __ATOMIC_SEQ_CST);
    return state != NULL;
}

static uint64_t number_of(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return MT_FRAME_PYTHON | (mix(hash) & (MT_FRAME_ENTERED - 1));
}

uint64_t python_frame(struct thread *thread, const struct python_place *place, uint64_t ticks)
{
    struct python_slot *slot = &thread->python[place->key % PYTHON_SLOTS];
    uint64_t entry = place->is_entry ? MT_FRAME_ENTERED : 0;
    if (slot->frame && slot->key == place->key)
        return slot->frame | entry;
    const struct python_code code = {.layout = &memtally_recorder.interpreter.layout->code,
                                     .version = memtally_recorder.interpreter.layout->version,
                                     .code = place->code,
                                     .instruction = place->instruction,
                                     .get = read_directly};
    char text[PYTHON_TEXT_BYTES];
    size_t length = python_put_text(&code, text);
    slot->key = place->key;
    slot->frame = number_of(text, length);
    mt_write_frame_name(&thread->writer, ticks, slot->frame, text, length);
    return slot->frame | entry;
}

/* What the helper calls. */

static int find(const char *name, void *place)
{
    void *address = memtally_real.dlsym(RTLD_DEFAULT, name);
    memcpy(place, &address, sizeof address);
    return address != NULL;
}

static int find_interpreter(void)
{
    return find("PyGILState_GetThisThreadState", &memtally_recorder.interpreter.thread_state) &&
           find("PyCode_Type", &memtally_recorder.interpreter.code_type) &&
           find("PyUnicode_FromStringAndSize", &memtally_recorder.interpreter.text) &&
           find("PyLong_FromLong", &memtally_recorder.interpreter.number) &&
           find("PyLong_AsLong", &memtally_recorder.interpreter.as_number) &&
           find("PyBytes_AsString", &memtally_recorder.interpreter.bytes) &&
           find("PyModule_Create2", &memtally_recorder.interpreter.module);
}

static const struct python_layout *candidate(long version, long which)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].version == version && which-- == 0)
            return &layouts[i];
    return NULL;
}

#define SHOWN_BYTES 12288u

/* A line for each frame of this thread, as the layout of a number says: "name TAB file TAB line".
 * An empty text where there is no such layout. 100 * number + version is asked for. */
static void *show(void *self, void *asked)
{
    char shown[SHOWN_BYTES];
    long number = memtally_recorder.interpreter.as_number(asked);
    const struct python_layout *layout = candidate(number % 1000, number / 1000);
    struct python_stack stack = {0};
    size_t length = 0;
    (void)self;
    if (!layout)
        return memtally_recorder.interpreter.text("", 0);
    const struct reading reading = {layout, 0};
    read_stack(&reading, (uintptr_t)memtally_recorder.interpreter.thread_state(), &stack);
    for (uint32_t i = 0; i < stack.n && length + PYTHON_TEXT_BYTES < sizeof shown; i++) {
        const struct python_code code = {.layout = &layout->code,
                                         .version = layout->version,
                                         .code = stack.place[i].code,
                                         .instruction = stack.place[i].instruction,
                                         .get = read_safely};
        length += python_put_text(&code, shown + length);
        shown[length++] = '\n';
    }
    return memtally_recorder.interpreter.text(shown, (ssize_t)length);
}

static void *start(void *self, void *asked)
{
    long number = memtally_recorder.interpreter.as_number(asked);
    struct thread *thread = memtally_tls.thread;
    (void)self;
    memtally_recorder.interpreter.layout = candidate(number % 1000, number / 1000);
    if (thread)
        memset(&thread->chain, 0, sizeof thread->chain);
    __atomic_store_n(&memtally_recorder.python, memtally_recorder.interpreter.layout != NULL,
                     __ATOMIC_SEQ_CST);
    return memtally_recorder.interpreter.number(memtally_recorder.interpreter.layout != NULL);
}

static void *stop(void *self, void *asked)
{
    const struct process *process = memtally_recorder.process;
    (void)self;
    (void)asked;
    __atomic_store_n(&memtally_recorder.python, 0, __ATOMIC_SEQ_CST);
    for (int i = 0;
         process && i < 100000 && __atomic_load_n(&process->python_readers, __ATOMIC_SEQ_CST); i++)
        MT_SYS0(SYS_sched_yield);
    return memtally_recorder.interpreter.number(0);
}

/* None of the layouts is right. */
static void *leave_out(void *self, void *asked)
{
    (void)self;
    (void)asked;
    say_once("this Python's frames cannot be read; call stacks have native functions alone");
    return memtally_recorder.interpreter.number(0);
}

/* Counts the heap from now on. */
static void *count(void *self, void *asked)
{
    (void)self;
    (void)asked;
    __atomic_store_n(&memtally_recorder.counts_heap, 1, __ATOMIC_RELAXED);
    return memtally_recorder.interpreter.number(0);
}

static void *heap(void *self, void *asked)
{
    (void)self;
    (void)asked;
    return memtally_recorder.interpreter.number(
        __atomic_load_n(&memtally_recorder.heap_bytes, __ATOMIC_RELAXED));
}

static void *taken(void *self, void *asked)
{
    (void)self;
    (void)asked;
    return memtally_recorder.interpreter.number(
        (long)__atomic_load_n(&memtally_recorder.heap_taken_bytes, __ATOMIC_RELAXED));
}

/* The most since the last call. */
static void *highest(void *self, void *asked)
{
    int64_t held = __atomic_load_n(&memtally_recorder.heap_bytes, __ATOMIC_RELAXED);
    (void)self;
    (void)asked;
    return memtally_recorder.interpreter.number(
        __atomic_exchange_n(&memtally_recorder.heap_peak_bytes, held, __ATOMIC_RELAXED));
}

/* What scope.h calls, for a helper that does so for each layer and token: an address, a length, a
 * category and a name in bytes. */
static void *tell(void (*hook)(const void *, size_t, int, const char *), void *const *asked,
                  ssize_t n)
{
    const struct interpreter *python = &memtally_recorder.interpreter;
    if (n == 4)
        hook((const void *)python->as_number(asked[0]), (size_t)python->as_number(asked[1]),
             (int)python->as_number(asked[2]), python->bytes(asked[3]));
    return python->number(0);
}

static void *label(void *self, void *const *asked, ssize_t n)
{
    (void)self;
    return tell(memtally_hook_label, asked, n);
}

static void *label_block(void *self, void *const *asked, ssize_t n)
{
    (void)self;
    return tell(memtally_hook_label_block, asked, n);
}

/* What aligned blocks are for that this thread allocates from now on, a category and a name in
 * bytes that the caller keeps until it says so with neither. An empty name: they are counted. */
static void *label_aligned(void *self, void *const *asked, ssize_t n)
{
    const struct interpreter *python = &memtally_recorder.interpreter;
    struct tls *tls = &memtally_tls;
    (void)self;
    tls->aligned_name = n == 2 ? python->bytes(asked[1]) : NULL;
    tls->aligned_category = n == 2 ? (int)python->as_number(asked[0]) : 0;
    return python->number(0);
}

/* How many there were in this thread since the last call. */
static void *aligned(void *self, void *asked)
{
    long n = (long)memtally_tls.n_aligned;
    (void)self;
    (void)asked;
    memtally_tls.n_aligned = 0;
    return memtally_recorder.interpreter.number(n);
}

/* As PyMethodDef and PyModuleDef are in every build with the interpreter's lock: Python's headers
 * are not needed to build the recorder. */
struct method {
    const char *name;
    union {
        void *(*with_one)(void *self, void *argument);
        void *(*with_several)(void *self, void *const *arguments, ssize_t n);
    } call;
    int flags;
    const char *doc;
};

struct module_definition {
    intptr_t references;
    void *type;
    void *rest[3];
    const char *name;
    const char *doc;
    ssize_t size;
    const struct method *methods;
    void *more[4];
};

EXPORTED void *PyInit_memtally_frames(void);

void *PyInit_memtally_frames(void)
{
    enum { ONE_ARGUMENT = 8, SEVERAL_ARGUMENTS = 128, API_VERSION = 1013 };
    static const struct method methods[] = {
        {"show", {show}, ONE_ARGUMENT, NULL},
        {"start", {start}, ONE_ARGUMENT, NULL},
        {"stop", {stop}, ONE_ARGUMENT, NULL},
        {"count", {count}, ONE_ARGUMENT, NULL},
        {"heap", {heap}, ONE_ARGUMENT, NULL},
        {"highest", {highest}, ONE_ARGUMENT, NULL},
        {"taken", {taken}, ONE_ARGUMENT, NULL},
        {"leave_out", {leave_out}, ONE_ARGUMENT, NULL},
        {"label", {.with_several = label}, SEVERAL_ARGUMENTS, NULL},
        {"label_block", {.with_several = label_block}, SEVERAL_ARGUMENTS, NULL},
        {"label_aligned", {.with_several = label_aligned}, SEVERAL_ARGUMENTS, NULL},
        {"aligned", {aligned}, ONE_ARGUMENT, NULL},
        {0}};
    static struct module_definition definition = {
        .references = 1, .name = "memtally_frames", .size = -1, .methods = methods};
    return find_interpreter() ? memtally_recorder.interpreter.module(&definition, API_VERSION)
                              : NULL;
}
