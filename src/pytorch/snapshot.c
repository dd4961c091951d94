/* SPDX-License-Identifier: MIT */
/* From the values of a pickle to segments, blocks, actions and call stacks. */
#include "pytorch/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/category.h>
#include <memtally/units.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "pytorch/pickle.h"

const struct mt_snapshot_purpose mt_snapshot_purposes[] = {
    {MT_CATEGORY_NONE, "", "", NULL},
#define PURPOSE(CATEGORY, name, file, function) {MT_CATEGORY_##CATEGORY, name, file, function},
#include "pytorch/snapshot_purposes.def"
#undef PURPOSE
};

#define N_PURPOSES (sizeof mt_snapshot_purposes / sizeof *mt_snapshot_purposes)

/* What a list of the pickle was taken for; the rest of its note is an index. */
enum taken_for { TAKEN_AS_FRAME = 1, TAKEN_AS_STACK, TAKEN_WHOLE };

#define NOTE(taken, index) ((uint64_t)(taken) << 56 | (uint64_t)(index))
#define NOTE_TAKEN(note)   ((enum taken_for)((note) >> 56))
#define NOTE_INDEX(note)   ((size_t)((note) & (((uint64_t)1 << 56) - 1)))

struct reader {
    struct mt_snapshot *snapshot;
    struct mt_snapshot_frame **frames;
    size_t n_frames;
    size_t frames_room, stacks_room, blocks_room, segments_room, actions_room;
    int has_no_memory;
};

/* Room for one more. */
static int grow(struct reader *reader, void **items, size_t n, size_t *room, size_t item_bytes)
{
    if (n < *room)
        return 1;
    size_t more = *room ? 2 * *room : 64;
    void *grown = reallocarray(*items, more, item_bytes);
    if (!grown) {
        reader->has_no_memory = 1;
        return 0;
    }
    *items = grown;
    *room = more;
    return 1;
}

#define GROW(reader, list, n, room) grow(reader, (void **)&(list), n, &(room), sizeof *(list))

/* Whether a list is met for the first time. */
static int is_first(struct mt_pickle_list *list)
{
    if (!list || list->note)
        return 0;
    list->note = NOTE(TAKEN_WHOLE, 0);
    return 1;
}

static struct mt_pickle_list *dict_list(const struct mt_pickle_value *value)
{
    return value->kind == MT_PICKLE_DICT ? value->of.list : NULL;
}

static int ends_with(const struct mt_pickle_value *value, const char *end)
{
    size_t length = strlen(end);
    return value && value->kind == MT_PICKLE_TEXT && value->of.text.length >= length &&
           memcmp(value->of.text.at + value->of.text.length - length, end, length) == 0;
}

static uint16_t purpose_of(const struct mt_pickle_value *file,
                           const struct mt_pickle_value *function)
{
    for (size_t i = 1; i < N_PURPOSES; i++) {
        const struct mt_snapshot_purpose *purpose = &mt_snapshot_purposes[i];
        if (ends_with(file, purpose->file) &&
            (!purpose->function || mt_pickle_is_text(function, purpose->function)))
            return (uint16_t)i;
    }
    return 0;
}

#define TEXT_MOST 512u

static int text_length(const struct mt_pickle_value *value)
{
    if (!value || value->kind != MT_PICKLE_TEXT)
        return 0;
    return (int)(value->of.text.length < TEXT_MOST ? value->of.text.length : TEXT_MOST);
}

static const char *text_at(const struct mt_pickle_value *value)
{
    return text_length(value) ? value->of.text.at : "";
}

/* A frame of C++ has no line, and often no file. */
static char *frame_text(struct reader *reader, const struct mt_pickle_value *frame)
{
    const struct mt_pickle_value *name = mt_pickle_get(frame, "name");
    const struct mt_pickle_value *file = mt_pickle_get(frame, "filename");
    uint64_t line = mt_pickle_as_integer(mt_pickle_get(frame, "line"), 0);
    struct mt_arena *texts = &reader->snapshot->texts;
    if (!text_length(file) || mt_pickle_is_text(file, "??"))
        return mt_arena_printf(texts, "%.*s", text_length(name), text_at(name));
    return mt_arena_printf(texts, "%.*s (%.*s:%llu)", text_length(name), text_at(name),
                           text_length(file), text_at(file), (unsigned long long)line);
}

/* NULL where it is none, or memory ran out. */
static struct mt_snapshot_frame *frame_of(struct reader *reader,
                                          const struct mt_pickle_value *value)
{
    struct mt_pickle_list *list = dict_list(value);
    if (!list || (list->note && NOTE_TAKEN(list->note) != TAKEN_AS_FRAME))
        return NULL;
    if (list->note)
        return reader->frames[NOTE_INDEX(list->note)];
    if (!GROW(reader, reader->frames, reader->n_frames, reader->frames_room))
        return NULL;
    struct mt_snapshot_frame *frame = mt_arena_alloc(&reader->snapshot->texts, sizeof *frame);
    if (frame)
        frame->text = frame_text(reader, value);
    if (!frame || !frame->text) {
        reader->has_no_memory = 1;
        return NULL;
    }
    frame->purpose = purpose_of(mt_pickle_get(value, "filename"), mt_pickle_get(value, "name"));
    list->note = NOTE(TAKEN_AS_FRAME, reader->n_frames);
    reader->frames[reader->n_frames++] = frame;
    return frame;
}

static int fill_stack(struct reader *reader, const struct mt_pickle_list *list,
                      struct mt_snapshot_stack *stack)
{
    size_t most = list->n < MT_SNAPSHOT_FRAMES_MAX ? list->n : MT_SNAPSHOT_FRAMES_MAX;
    stack->frames = mt_arena_array(&reader->snapshot->texts, most + 1, sizeof *stack->frames);
    if (!stack->frames)
        return 0;
    for (size_t i = 0; i < most; i++) {
        const struct mt_snapshot_frame *frame = frame_of(reader, &list->items[i]);
        if (!frame) {
            reader->snapshot->n_left_out++;
            continue;
        }
        stack->frames[stack->n++] = frame;
        if (frame->purpose && (!stack->purpose || frame->purpose < stack->purpose))
            stack->purpose = frame->purpose;
    }
    return 1;
}

/* The number of the stack in a part's `frames`; 0 where it has none. */
static uint32_t stack_of(struct reader *reader, const struct mt_pickle_value *part)
{
    struct mt_snapshot *snapshot = reader->snapshot;
    struct mt_pickle_list *list = mt_pickle_as_list(mt_pickle_get(part, "frames"));
    if (!list || !list->n || (list->note && NOTE_TAKEN(list->note) != TAKEN_AS_STACK))
        return 0;
    if (list->note)
        return (uint32_t)NOTE_INDEX(list->note);
    struct mt_snapshot_stack stack = {0};
    if (snapshot->n_stacks >= UINT32_MAX ||
        !GROW(reader, snapshot->stacks, snapshot->n_stacks, reader->stacks_room) ||
        !fill_stack(reader, list, &stack)) {
        reader->has_no_memory = 1;
        return 0;
    }
    list->note = NOTE(TAKEN_AS_STACK, snapshot->n_stacks);
    snapshot->stacks[snapshot->n_stacks] = stack;
    return (uint32_t)snapshot->n_stacks++;
}

static int is_range(uint64_t address, uint64_t bytes)
{
    return address != MT_UNKNOWN && bytes != MT_UNKNOWN && address <= UINT64_MAX - bytes;
}

/* Whether `state` is one that is known. */
static int state_of(const struct mt_pickle_value *value, enum mt_snapshot_state *state)
{
    static const struct {
        const char *name;
        enum mt_snapshot_state state;
    } names[] = {{"active_allocated", MT_SNAPSHOT_ACTIVE},
                 {"active_pending_free", MT_SNAPSHOT_PENDING},
                 {"active_awaiting_free", MT_SNAPSHOT_PENDING},
                 {"inactive", MT_SNAPSHOT_INACTIVE}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mt_pickle_is_text(value, names[i].name)) {
            *state = names[i].state;
            return 1;
        }
    return 0;
}

/* Blocks follow each other in their segment; where one does not say its address it is next. */
static void take_block(struct reader *reader, const struct mt_pickle_value *value,
                       const struct mt_snapshot_segment *segment, uint64_t *next)
{
    struct mt_snapshot *snapshot = reader->snapshot;
    struct mt_snapshot_block block = {
        .address = mt_pickle_as_integer(mt_pickle_get(value, "address"), *next),
        .bytes = mt_pickle_as_integer(mt_pickle_get(value, "size"), MT_UNKNOWN),
    };
    block.requested_bytes =
        mt_pickle_as_integer(mt_pickle_get(value, "requested_size"), block.bytes);
    int is_right = state_of(mt_pickle_get(value, "state"), &block.state) &&
                   is_range(block.address, block.bytes) && block.address >= *next &&
                   block.address + block.bytes <= segment->address + segment->bytes;
    if (!is_right) {
        snapshot->n_left_out++;
        return;
    }
    *next = block.address + block.bytes;
    if (block.requested_bytes > block.bytes || block.requested_bytes == 0)
        block.requested_bytes = block.bytes;
    block.stack = stack_of(reader, value);
    if (GROW(reader, snapshot->blocks, snapshot->n_blocks, reader->blocks_room))
        snapshot->blocks[snapshot->n_blocks++] = block;
}

static int is_private(const struct mt_pickle_value *segment)
{
    const struct mt_pickle_list *pool =
        mt_pickle_as_list(mt_pickle_get(segment, "segment_pool_id"));
    int is = 0;
    for (size_t i = 0; pool && i < pool->n && i < 2; i++)
        is = is || mt_pickle_as_integer(&pool->items[i], 0) != 0;
    return is;
}

static int note_device(struct mt_snapshot *snapshot, uint64_t device)
{
    if (device >= MT_SNAPSHOT_DEVICES_MAX)
        return 0;
    if (device >= snapshot->n_devices)
        snapshot->n_devices = (size_t)device + 1;
    return 1;
}

static void take_segment(struct reader *reader, const struct mt_pickle_value *value)
{
    struct mt_snapshot *snapshot = reader->snapshot;
    uint64_t device = mt_pickle_as_integer(mt_pickle_get(value, "device"), 0);
    struct mt_snapshot_segment segment = {
        .address = mt_pickle_as_integer(mt_pickle_get(value, "address"), MT_UNKNOWN),
        .bytes = mt_pickle_as_integer(mt_pickle_get(value, "total_size"), MT_UNKNOWN),
        .allocated_bytes = mt_pickle_as_integer(mt_pickle_get(value, "allocated_size"), MT_UNKNOWN),
        .is_private = is_private(value),
        .first_block = snapshot->n_blocks,
    };
    if (!is_first(dict_list(value)) || !is_range(segment.address, segment.bytes) ||
        !note_device(snapshot, device) ||
        !GROW(reader, snapshot->segments, snapshot->n_segments, reader->segments_room)) {
        snapshot->n_left_out++;
        return;
    }
    segment.device = (uint32_t)device;
    struct mt_pickle_list *blocks = mt_pickle_as_list(mt_pickle_get(value, "blocks"));
    uint64_t next = segment.address;
    if (is_first(blocks))
        for (size_t i = 0; i < blocks->n; i++)
            take_block(reader, &blocks->items[i], &segment, &next);
    segment.n_blocks = snapshot->n_blocks - segment.first_block;
    snapshot->devices[device].has_segments = 1;
    snapshot->segments[snapshot->n_segments++] = segment;
}

/* Whether an action is one that changes what is held; others are passed over. */
static int action_of(const struct mt_pickle_value *value, enum mt_snapshot_action_kind *kind)
{
    static const struct {
        const char *name;
        enum mt_snapshot_action_kind kind;
    } names[] = {{"alloc", MT_SNAPSHOT_ALLOC},
                 {"free_completed", MT_SNAPSHOT_FREE},
                 {"segment_alloc", MT_SNAPSHOT_SEGMENT_TAKEN},
                 {"segment_map", MT_SNAPSHOT_SEGMENT_TAKEN},
                 {"segment_free", MT_SNAPSHOT_SEGMENT_GIVEN},
                 {"segment_unmap", MT_SNAPSHOT_SEGMENT_GIVEN},
                 {"oom", MT_SNAPSHOT_OOM}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mt_pickle_is_text(value, names[i].name)) {
            *kind = names[i].kind;
            return 1;
        }
    return 0;
}

static void take_action(struct reader *reader, const struct mt_pickle_value *value)
{
    struct mt_snapshot *snapshot = reader->snapshot;
    struct mt_snapshot_action action;
    if (!is_first(dict_list(value))) {
        snapshot->n_left_out++;
        return;
    }
    if (!action_of(mt_pickle_get(value, "action"), &action.kind))
        return;
    const char *where = action.kind == MT_SNAPSHOT_OOM ? "device_free" : "addr";
    action.address = mt_pickle_as_integer(mt_pickle_get(value, where), MT_UNKNOWN);
    action.bytes = mt_pickle_as_integer(mt_pickle_get(value, "size"), MT_UNKNOWN);
    action.time_us = mt_pickle_as_integer(mt_pickle_get(value, "time_us"), 0);
    action.stack = stack_of(reader, value);
    if (action.kind != MT_SNAPSHOT_OOM && !is_range(action.address, action.bytes)) {
        snapshot->n_left_out++;
        return;
    }
    if (GROW(reader, snapshot->actions, snapshot->n_actions, reader->actions_room))
        snapshot->actions[snapshot->n_actions++] = action;
}

static void take_history(struct reader *reader, struct mt_pickle_list *history, size_t device)
{
    struct mt_snapshot *snapshot = reader->snapshot;
    if (!is_first(history) || !history->n || !note_device(snapshot, device)) {
        snapshot->n_left_out += !history || history->n;
        return;
    }
    snapshot->devices[device].first_action = snapshot->n_actions;
    for (size_t i = 0; i < history->n; i++)
        take_action(reader, &history->items[i]);
    snapshot->devices[device].n_actions =
        snapshot->n_actions - snapshot->devices[device].first_action;
}

/* PyTorch has the list of segments at "segments"; before 2.1 the snapshot was that list. */
static int take_all(struct reader *reader, const struct mt_pickle_value *root)
{
    struct mt_pickle_list *segments = mt_pickle_as_list(mt_pickle_get(root, "segments"));
    struct mt_pickle_list *histories = mt_pickle_as_list(mt_pickle_get(root, "device_traces"));
    if (!segments)
        segments = mt_pickle_as_list(root);
    if (!segments)
        return 0;
    if (is_first(segments))
        for (size_t i = 0; i < segments->n; i++)
            take_segment(reader, &segments->items[i]);
    for (size_t i = 0; histories && i < histories->n; i++)
        take_history(reader, mt_pickle_as_list(&histories->items[i]), i);
    return 1;
}

int mt_snapshot_read(const void *bytes, size_t length, const char *name,
                     struct mt_snapshot **snapshot, struct mt_error *error)
{
    struct mt_pickle *pickle;
    struct reader reader = {0};
    int result = mt_pickle_read(bytes, length, name, &pickle, error);
    if (result < 0)
        return result;
    reader.snapshot = calloc(1, sizeof *reader.snapshot);
    if (reader.snapshot) {
        reader.snapshot->path = strdup(name);
        reader.has_no_memory = !reader.snapshot->path || /* stack 0 is nobody's */
                               !GROW(&reader, reader.snapshot->stacks, 0, reader.stacks_room);
    }
    if (!reader.snapshot || reader.has_no_memory) {
        reader.has_no_memory = 1;
    } else {
        reader.snapshot->stacks[0] = (struct mt_snapshot_stack){0};
        reader.snapshot->n_stacks = 1;
        if (!take_all(&reader, mt_pickle_root(pickle)))
            result = mt_fail(error, MT_EFORMAT, 0,
                             "%s: a pickle, but no snapshot of torch.cuda.memory._dump_snapshot()",
                             name);
    }
    mt_pickle_destroy(pickle);
    free(reader.frames);
    if (reader.has_no_memory)
        result = mt_out_of_memory_for(error, name);
    if (result < 0)
        mt_snapshot_close(reader.snapshot);
    else
        *snapshot = reader.snapshot;
    return result;
}

void mt_snapshot_close(struct mt_snapshot *snapshot)
{
    if (!snapshot)
        return;
    mt_arena_finish(&snapshot->texts);
    free(snapshot->segments);
    free(snapshot->blocks);
    free(snapshot->actions);
    free(snapshot->stacks);
    free(snapshot->path);
    free(snapshot);
}

int mt_snapshot_is_file(const char *path)
{
    struct stat status;
    unsigned char begin[2] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 0;
    int is = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
             pread(fd, begin, sizeof begin, 0) == sizeof begin && begin[0] == 0x80 && begin[1] >= 2;
    close(fd);
    return is;
}

/* Reads what `fd` has, which may be no regular file. */
static int read_whole(int fd, size_t expected, unsigned char **bytes, size_t *length)
{
    size_t room = expected + 1;
    ssize_t n;
    *bytes = malloc(room);
    *length = 0;
    while (*bytes && (n = TEMP_FAILURE_RETRY(read(fd, *bytes + *length, room - *length))) != 0) {
        if (n < 0)
            return -errno;
        *length += (size_t)n;
        if (*length < room)
            continue;
        room += room / 2 + 65536;
        unsigned char *grown = realloc(*bytes, room);
        if (!grown)
            return -ENOMEM;
        *bytes = grown;
    }
    return *bytes ? 0 : -ENOMEM;
}

int mt_snapshot_open(const char *path, struct mt_snapshot **snapshot, struct mt_error *error)
{
    struct stat status;
    unsigned char *bytes = NULL;
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0) {
        int failed = errno;
        if (fd >= 0)
            close(fd);
        return mt_fail_errno(error, failed, "cannot open %s", path);
    }
    int failed =
        read_whole(fd, S_ISREG(status.st_mode) ? (size_t)status.st_size : 0, &bytes, &length);
    close(fd);
    int result = failed ? mt_fail_errno(error, -failed, "cannot read %s", path)
                        : mt_snapshot_read(bytes, length, path, snapshot, error);
    free(bytes);
    return result;
}
