/* SPDX-License-Identifier: MIT */
/* What scope.h calls. */
#include "recorder/recorder.h"

#define HOOK(result, name, parameters)
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters) EXPORTED result name parameters;
#include "recorder/hooks.def"

static void note(struct thread *thread, enum mt_event_op op, const uint64_t *fields,
                 size_t n_fields)
{
    mt_write_event(&thread->writer, op, now_ticks(), fields, n_fields);
    leave();
}

void memtally_hook_scope_begin(int category, const char *name)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)(uint32_t)category, thread_name(thread, name)};
    note(thread, MT_EVENT_SCOPE_BEGIN, fields, 2);
}

void memtally_hook_scope_end(void)
{
    struct thread *thread = enter();
    if (thread)
        note(thread, MT_EVENT_SCOPE_END, NULL, 0);
}

/* What was said of blocks in a range holds no longer. It is counted behind the event, so that no
 * label of a block that another thread writes before the event passes for one that came after. */
static void note_range(struct thread *thread, enum mt_event_op op, const uint64_t *fields,
                       size_t n_fields)
{
    note(thread, op, fields, n_fields);
    __atomic_fetch_add(&memtally_recorder.range_labels, 1, __ATOMIC_RELAXED);
}

/* Each step is multiplied: small numbers that are merely put over each other cancel out. */
static uint64_t hash_label(const char *name, uint64_t length_bytes, uint64_t category)
{
    uint64_t hash = name ? hash_text(name) : 0;
    hash = (hash ^ length_bytes) * 0x100000001b3u;
    return (hash ^ category) * 0x100000001b3u;
}

void memtally_hook_label(const void *address, size_t length_bytes, int category, const char *name)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, length_bytes, (uint64_t)(uint32_t)category,
                         thread_name(thread, name)};
    note_range(thread, MT_EVENT_LABEL, fields, 4);
}

void memtally_hook_label_block(const void *block, size_t length_bytes, int category,
                               const char *name)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)(uintptr_t)block, length_bytes, (uint64_t)(uint32_t)category, 0};
    if (!label_is_new(thread, fields[0], hash_label(name, fields[1], fields[2]))) {
        leave();
        return;
    }
    fields[3] = thread_name(thread, name);
    note(thread, MT_EVENT_LABEL_BLOCK, fields, 4);
}

void memtally_hook_unlabel(const void *address, size_t length_bytes)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, length_bytes};
    note_range(thread, MT_EVENT_UNLABEL, fields, 2);
}

void memtally_hook_mark(const char *name)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t field = thread_name(thread, name);
    if (look_at_mark(thread, field))
        leave();
    else
        note(thread, MT_EVENT_MARK, &field, 1);
}
