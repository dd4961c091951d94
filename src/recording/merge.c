/* SPDX-License-Identifier: MIT */
/* Merging the streams of a file by time. A stream takes memory from its first event to its last;
 * where many run at a time, each has a small window of its block only. */
#include <stdlib.h>

#include <memtally/error_code.h>

#include "recording/reader.h"
#include "recording/unpack.h"

#define WINDOWS_BYTES ((size_t)64 << 20) /* of all streams, as long as they are not too many */
#define WINDOW_LEAST  ((size_t)4096)

/* One stream of a merge with its next event. */
struct lane {
    struct mt_cursor cursor;
    struct mt_event event;
    int began;
};

/* A lane's place in the order. A stream that has not begun has no event before its block's begin,
 * and has to begin before any other's event of that time is given out. */
struct turn {
    uint64_t ticks;
    uint64_t order; /* of those at one time: what begins, what ends, the others; then by stream */
    struct lane *lane;
};

/* Invariant: heap[0, n) is a binary heap of turns by comes_before(). */
struct mt_merge {
    struct mt_frames *frames; /* of a packed file, which was merged before; else NULL */
    struct lane *lanes;
    struct turn *heap;
    size_t n;
    int given; /* the event of heap[0] was given out, and its lane has to go on */
    int failed;
    uint64_t blocks_bad;
    uint64_t blocks_open;
};

enum order { ORDER_BEGINS = 0, ORDER_FREES = 1, ORDER_OTHERS = 2 };

static int is_free(const struct mt_event *event)
{
    return event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE ||
           event->op == MT_EVENT_MUNMAP || event->op == MT_EVENT_BUFFER_FREE;
}

static struct turn turn_of(struct lane *lane, enum order order, uint64_t ticks, uint32_t stream)
{
    return (struct turn){ticks, (uint64_t)order << 32 | stream, lane};
}

static int comes_before(const struct turn *a, const struct turn *b)
{
    return a->ticks != b->ticks ? a->ticks < b->ticks : a->order < b->order;
}

/* Puts `turn` where `at` is, or below. */
static void sift_down(struct mt_merge *merge, size_t at, struct turn turn)
{
    struct turn *heap = merge->heap;
    for (size_t child; (child = 2 * at + 1) < merge->n; at = child) {
        if (child + 1 < merge->n && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(&heap[child], &turn))
            break;
        heap[at] = heap[child];
    }
    heap[at] = turn;
}

static size_t count_streams(const struct mt_record_file *file)
{
    size_t n = 0;
    for (size_t i = 0; i < file->n_blocks; i++)
        n += i == 0 || file->blocks[i].header.stream != file->blocks[i - 1].header.stream;
    return n;
}

static void fill_lanes(struct mt_merge *merge, const struct mt_record_file *file, size_t n_streams)
{
    for (size_t i = 0; i < file->n_blocks; i++)
        merge->blocks_open += (uint64_t)file->blocks[i].open;
    size_t window = n_streams ? WINDOWS_BYTES / n_streams : 0;
    size_t first = 0;
    while (first < file->n_blocks) {
        size_t end = first + 1;
        struct lane *lane = &merge->lanes[merge->n];
        const struct mt_block_header *header = &file->blocks[first].header;
        while (end < file->n_blocks && file->blocks[end].header.stream == header->stream)
            end++;
        mt_cursor_init(&lane->cursor, file, first, end);
        if (window < lane->cursor.most_bytes)
            lane->cursor.most_bytes = window < WINDOW_LEAST ? WINDOW_LEAST : window;
        merge->heap[merge->n++] = turn_of(lane, ORDER_BEGINS, header->start_ticks, header->stream);
        first = end;
    }
    for (size_t at = merge->n / 2; at-- > 0;)
        sift_down(merge, at, merge->heap[at]);
}

int mt_merge_create(const struct mt_record_file *file, struct mt_merge **merge)
{
    int packed = (file->header.flags & MT_FILE_PACKED) != 0;
    size_t n = packed ? 0 : count_streams(file);
    struct mt_merge *made = calloc(1, sizeof *made);
    if (made) {
        made->lanes = calloc(n + 1, sizeof *made->lanes);
        made->heap = calloc(n + 1, sizeof *made->heap);
    }
    if (!made || !made->lanes || !made->heap ||
        (packed && mt_frames_create(file, &made->frames) < 0)) {
        mt_merge_destroy(made);
        return MT_ENOMEM;
    }
    if (!packed)
        fill_lanes(made, file, n);
    *merge = made;
    return 0;
}

void mt_merge_destroy(struct mt_merge *merge)
{
    if (!merge)
        return;
    for (size_t i = 0; i < merge->n; i++)
        mt_cursor_finish(&merge->heap[i].lane->cursor);
    mt_frames_destroy(merge->frames);
    free(merge->lanes);
    free(merge->heap);
    free(merge);
}

void mt_merge_skip_blocks(struct mt_merge *merge)
{
    if (merge->frames)
        mt_frames_skip_blocks(merge->frames);
}

/* Goes on to the next event of the stream whose turn it was. */
static void go_on(struct mt_merge *merge)
{
    struct lane *lane = merge->heap[0].lane;
    if (mt_cursor_next(&lane->cursor, &lane->event)) {
        enum order order = is_free(&lane->event) ? ORDER_FREES : ORDER_OTHERS;
        lane->began = 1;
        sift_down(merge, 0, turn_of(lane, order, lane->event.ticks, lane->event.stream));
        return;
    }
    merge->failed = lane->cursor.failed;
    merge->blocks_bad += lane->cursor.blocks_bad;
    mt_cursor_finish(&lane->cursor);
    if (--merge->n)
        sift_down(merge, 0, merge->heap[merge->n]);
}

int mt_merge_next(struct mt_merge *merge, struct mt_event *event)
{
    if (merge->frames)
        return mt_frames_next(merge->frames, event, NULL);
    if (merge->given && !merge->failed)
        go_on(merge);
    merge->given = 0;
    while (!merge->failed && merge->n && !merge->heap[0].lane->began)
        go_on(merge);
    if (merge->failed || !merge->n)
        return 0;
    *event = merge->heap[0].lane->event;
    merge->given = 1;
    return 1;
}

int mt_merge_failed(const struct mt_merge *merge)
{
    return merge->frames ? mt_frames_failed(merge->frames) : merge->failed;
}

uint64_t mt_merge_blocks_bad(const struct mt_merge *merge)
{
    uint64_t n = merge->frames ? mt_frames_broken(merge->frames) : merge->blocks_bad;
    for (size_t i = 0; i < merge->n; i++)
        n += merge->heap[i].lane->cursor.blocks_bad;
    return n;
}

uint64_t mt_merge_blocks_open(const struct mt_merge *merge)
{
    return merge->frames ? mt_frames_blocks_open(merge->frames) : merge->blocks_open;
}
