/* SPDX-License-Identifier: MIT */
/* Finding the frames of a packed recording, and stepping through their events one frame after the
 * other. Must not know what the events are about. */
#include "recording/unpack.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/array.h"
#include "base/invariant.h"
#include "recording/blocks.h"
#include "recording/frame.h"

/* How often a frame is searched for behind a damaged one; each try may check a whole one. */
#define MAX_TRIES 65536u

/* Where a stream stands. */
struct lane {
    uint32_t stream;
    uint32_t is_used;
    uint32_t sequence; /* of its block */
    uint32_t torn;     /* something is missing; not yet at the next picture */
    size_t frame;      /* that named it last, + 1 */
    size_t block;      /* how many began before its own, in all streams */
};

/* Invariant: n_places is 0 or a power of two, and at least twice n_lanes. */
struct mt_frames {
    const struct mt_record_file *file;
    struct mt_frame_reader *reader;
    uint8_t *bytes; /* of a frame as it lies in the file */
    size_t room;
    size_t frame;      /* the one being read, + 1 */
    size_t lost_frame; /* the last before which or in which something was lost, + 1 */
    int is_open;
    struct lane *lanes;
    size_t n_lanes;
    size_t n_places;
    struct lane *lane; /* of the last event */
    int failed;
    size_t n_blocks; /* that began so far */
    size_t n_open;   /* of them those that their writer did not finish */
    size_t n_broken; /* frames that broke the grammar */
};

int mt_frames_create(const struct mt_record_file *file, struct mt_frames **frames)
{
    struct mt_frames *made = calloc(1, sizeof *made);
    if (!made || mt_frame_reader_create(&made->reader) < 0) {
        free(made);
        return MT_ENOMEM;
    }
    made->file = file;
    *frames = made;
    return 0;
}

void mt_frames_destroy(struct mt_frames *frames)
{
    if (!frames)
        return;
    mt_frame_reader_destroy(frames->reader);
    free(frames->bytes);
    free(frames->lanes);
    free(frames);
}

void mt_frames_skip_blocks(struct mt_frames *frames)
{
    mt_frame_skip_blocks(frames->reader);
}

int mt_frames_failed(const struct mt_frames *frames)
{
    return frames->failed;
}

size_t mt_frames_broken(const struct mt_frames *frames)
{
    return frames->n_broken;
}

size_t mt_frames_blocks_open(const struct mt_frames *frames)
{
    return frames->n_open;
}

static struct lane *place_of(const struct mt_frames *frames, uint32_t stream)
{
    size_t at = (stream * 0x9e3779b1u >> 4) & (frames->n_places - 1);
    while (frames->lanes[at].is_used && frames->lanes[at].stream != stream)
        at = (at + 1) & (frames->n_places - 1);
    return &frames->lanes[at];
}

static int grow_lanes(struct mt_frames *frames)
{
    struct lane *old = frames->lanes;
    size_t n = frames->n_places;
    if (2 * (frames->n_lanes + 1) <= n)
        return 0;
    frames->lanes = calloc(n ? 2 * n : 64, sizeof *old);
    if (!frames->lanes) {
        frames->lanes = old;
        return MT_ENOMEM;
    }
    frames->n_places = n ? 2 * n : 64;
    for (size_t i = 0; i < n; i++)
        if (old[i].is_used)
            *place_of(frames, old[i].stream) = old[i];
    MT_HOLDS((frames->n_places & (frames->n_places - 1)) == 0 &&
             frames->n_places >= 2 * frames->n_lanes);
    free(old);
    return 0;
}

/* Reads the frame at `offset` into *bytes, of which *room are there. Returns its length, 0 where
 * none begins there or it is damaged, MT_ENOMEM or MT_EIO. */
static long read_frame(const struct mt_record_file *file, uint64_t offset, uint8_t **bytes,
                       size_t *room)
{
    struct mt_frame_header header;
    long n = mt_file_read(file, offset, &header, sizeof header);
    if (n < 0)
        return MT_EIO;
    uint64_t length = (size_t)n == sizeof header ? mt_frame_length(&header) : 0;
    if (!length || length > file->file_bytes - offset)
        return 0;
    if (length > *room) {
        free(*bytes);
        *room = 0;
        *bytes = malloc(length);
        if (!*bytes)
            return MT_ENOMEM;
        *room = length;
    }
    n = mt_file_read(file, offset, *bytes, length);
    if (n < 0)
        return MT_EIO;
    return (long)mt_frame_check(*bytes, (size_t)n);
}

/* What comes behind this frame does not go on from what came before it. */
static void note_broken(struct mt_frames *frames)
{
    frames->n_broken++;
    frames->lost_frame = frames->frame + 1;
}

/* Goes to the next frame. Returns 0 behind the last, and where it failed. */
static int next_frame(struct mt_frames *frames)
{
    const struct mt_record_file *file = frames->file;
    if (frames->frame == file->n_frames)
        return 0;
    const struct mt_frame_place *place = &file->frames[frames->frame++];
    long length = read_frame(file, place->offset, &frames->bytes, &frames->room);
    if (length <= 0) {
        frames->failed = length < 0 ? (int)length : MT_EIO;
        return 0;
    }
    if (place->after_loss)
        frames->lost_frame = frames->frame;
    int opened = mt_frame_open(frames->reader, frames->bytes);
    frames->failed = opened < 0 ? opened : 0;
    frames->is_open = opened > 0;
    if (opened == 0)
        note_broken(frames);
    return opened >= 0;
}

/* A block begins, or goes on: a stream of which something is missing is torn. Returns 0, -1 where
 * that is no block of the stream, or MT_ENOMEM. */
static int enter_block(struct mt_frames *frames, const struct mt_event *event)
{
    struct mt_block_header header;
    memcpy(&header, event->bytes, sizeof header);
    if (header.stream != event->stream)
        return -1;
    if (grow_lanes(frames) < 0)
        return MT_ENOMEM;
    int goes_on = (uint32_t)event->op == MT_FRAME_MORE;
    struct lane *lane = place_of(frames, event->stream);
    int is_begun = !lane->is_used && !goes_on;
    int follows = lane->is_used && header.sequence == lane->sequence + (uint32_t)!goes_on &&
                  lane->frame >= frames->lost_frame;
    if (!is_begun && !follows)
        lane->torn = 1;
    if (!goes_on || !follows) {
        lane->block = frames->n_blocks++;
        frames->n_open += header.sealed != MT_BLOCK_SEALED;
    }
    frames->n_lanes += !lane->is_used;
    lane->stream = event->stream;
    lane->is_used = 1;
    lane->sequence = header.sequence;
    lane->frame = frames->frame;
    frames->lane = lane;
    return 0;
}

/* Whether the event is of a stream that the frame has named, and not of a picture part of which is
 * missing. Returns -1, 0 or 1. */
static int check_event(struct mt_frames *frames, struct mt_event *event)
{
    if (!frames->lane || frames->lane->stream != event->stream)
        frames->lane = frames->n_places ? place_of(frames, event->stream) : NULL;
    struct lane *lane = frames->lane;
    if (!lane || !lane->is_used || lane->frame != frames->frame)
        return -1;
    event->block = lane->block;
    if (event->op == MT_EVENT_PICTURE_BEGIN)
        lane->torn = 0;
    return !(lane->torn &&
             (event->op == MT_EVENT_PICTURE_TEXT || event->op == MT_EVENT_PICTURE_RUNS ||
              event->op == MT_EVENT_PICTURE_END));
}

int mt_frames_next(struct mt_frames *frames, struct mt_event *event, struct mt_block_header *begun)
{
    while (!frames->failed) {
        int is_block;
        if (!frames->is_open) {
            if (!next_frame(frames))
                return 0;
            continue;
        }
        int result = mt_frame_next(frames->reader, event, &is_block);
        if (result > 0) {
            const size_t n_blocks = frames->n_blocks;
            result = is_block ? enter_block(frames, event) : check_event(frames, event);
            if (is_block && begun && frames->n_blocks > n_blocks)
                memcpy(begun, event->bytes, sizeof *begun);
            if (result > 0)
                return 1;
            if (result == 0)
                continue;
        }
        frames->is_open = 0;
        frames->failed = result == MT_ENOMEM ? MT_ENOMEM : 0;
        if (result < 0 && !frames->failed)
            note_broken(frames);
    }
    return 0;
}

static int add_frame(struct mt_record_file *file, size_t *room, const struct mt_frame_place *place)
{
    if (mt_array_reserve(file->frames, file->n_frames, *room, 16) < 0)
        return MT_ENOMEM;
    file->frames[file->n_frames++] = *place;
    return 0;
}

/* Where the next frame may begin, at or after `from`; the file's end where nothing looks like one.
 */
static uint64_t search_frame(const struct mt_record_file *file, uint64_t from)
{
    static const uint32_t magic = MT_FRAME_MAGIC;
    uint8_t bytes[4096];
    for (; from < file->file_bytes; from += sizeof bytes - sizeof magic) {
        long length = mt_file_read(file, from, bytes, sizeof bytes);
        if (length < (long)sizeof magic)
            break;
        const uint8_t *found = memmem(bytes, (size_t)length, &magic, sizeof magic);
        if (found)
            return from + (uint64_t)(found - bytes);
    }
    return file->file_bytes;
}

/* Lists the frames whose checksum holds. */
static int list_frames(struct mt_record_file *file)
{
    uint8_t *bytes = NULL;
    size_t room = 0, list_room = 0;
    unsigned tries = MAX_TRIES;
    int result = 0, was_damaged = 0;
    for (uint64_t at = file->header.header_bytes; at < file->file_bytes && tries && result == 0;) {
        long length = read_frame(file, at, &bytes, &room);
        if (length < 0) {
            result = (int)length;
        } else if (length) {
            const struct mt_frame_place place = {at, was_damaged};
            result = add_frame(file, &list_room, &place);
            at += (uint64_t)length;
            was_damaged = 0;
        } else {
            if (!was_damaged)
                mt_note_bad(file, at);
            was_damaged = 1;
            at = search_frame(file, at + 1);
            tries--;
        }
    }
    free(bytes);
    return result;
}

/* `blocks_backed` says how many frames there were. */
static void note_lost(struct mt_record_file *file)
{
    uint64_t n_backed = file->header.blocks_backed;
    uint64_t n_lost = n_backed > file->n_frames ? n_backed - file->n_frames : 0;
    while (file->blocks_bad < n_lost && file->blocks_bad < UINT32_MAX)
        mt_note_bad(file, file->file_bytes);
}

/* The last event is in the last frame. Where the header does not say when the process ended, the
 * clock is known by moments that may be in any. */
static int find_last_times(struct mt_record_file *file)
{
    int says_end = file->header.end_ticks && file->header.end_monotonic_ns;
    struct mt_frames *frames;
    struct mt_event event;
    struct mt_block_header begun = {0};
    int result = mt_frames_create(file, &frames);
    if (result < 0)
        return result;
    if (says_end && file->n_frames)
        frames->frame = file->n_frames - 1;
    for (size_t n_blocks = 0; mt_frames_next(frames, &event, &begun);) {
        if (frames->n_blocks > n_blocks)
            mt_note_pair(file, begun.clock_ticks, begun.clock_monotonic_ns);
        n_blocks = frames->n_blocks;
        mt_note_time(file, &event);
    }
    result = frames->failed;
    mt_frames_destroy(frames);
    return result;
}

int mt_find_frames(struct mt_record_file *file)
{
    int result = list_frames(file);
    if (result < 0)
        return result;
    note_lost(file);
    file->n_blocks = file->header.next_block;
    return find_last_times(file);
}
