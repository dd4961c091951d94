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

/* What was said of blocks in a range holds no longer. */
static void note_range(struct thread *thread, enum mt_event_op op, const uint64_t *fields,
                       size_t n_fields)
{
    __atomic_fetch_add(&memtally_recorder.range_labels, 1, __ATOMIC_RELAXED);
    note(thread, op, fields, n_fields);
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
    uint64_t hash = (name ? hash_text(name) : 0) ^ length_bytes << 8 ^ fields[2];
    if (!label_is_new(thread, fields[0], hash)) {
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
