/* SPDX-License-Identifier: MIT */
/* Splitting a driver's allocation into what PyTorch's allocator had in it. */
#include "pytorch/torch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bisect.h"
#include "base/error.h"
#include "pytorch/trace.h"

#define PROCESSES_MAX 256u
#define CHUNK_BYTES   65536u
#define TRACES_BYTES  (UINT64_C(1) << 30) /* that are read of all traces together */

/* What lives at one moment in one process, by address. */
struct moment {
    const struct mt_torch_process *process; /* NULL: none was looked at */
    uint64_t time_ns;
    size_t n;
    uint32_t *blocks;
    size_t capacity;
};

/* The last answer of mt_torch_peak(), which we call for each segment of a device. */
struct last_peak {
    const struct mt_torch_process *process; /* NULL: none yet */
    uint32_t device;
    uint64_t at_ns, from_ns, to_ns;
    struct mt_torch_moments moments;
};

struct mt_torch {
    struct mt_torch_process *processes;
    size_t n_processes;
    uint64_t left_bytes;  /* of the traces, that may still be read */
    struct moment moment; /* that an allocation is divided as at */
    struct moment rest;   /* and what was free then */
    struct last_peak last_peak;
};

/* Lines of a file, in pieces as they are read. */
struct lines {
    struct mt_torch_process *process;
    char line[MT_TORCH_LINE_BYTES];
    size_t length;
    int is_too_long;
};

static void take_bytes(struct lines *lines, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            if (lines->is_too_long)
                lines->process->n_skipped++;
            else
                mt_torch_line(lines->process, lines->line, lines->length);
            lines->length = 0;
            lines->is_too_long = 0;
        } else if (lines->length < sizeof lines->line) {
            lines->line[lines->length++] = bytes[i];
        } else {
            lines->is_too_long = 1;
        }
    }
}

/* A trace to read from; -1 where it is none. The rehearsed program can put anything there, also
 * what has no end or keeps a reader waiting. */
static int open_trace(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)))
        return fd;
    close(fd);
    return -1;
}

/* The last line of a process that was killed has no end and is left out. Takes from `left_bytes`
 * what was read. */
static int read_trace(const char *path, struct mt_torch_process *process, uint64_t *left_bytes,
                      struct mt_error *error)
{
    int fd = open_trace(path);
    struct lines lines = {.process = process};
    char *chunk = malloc(CHUNK_BYTES);
    ssize_t n = 0;
    process->n_lost += fd < 0;
    while (chunk && fd >= 0 && (n = TEMP_FAILURE_RETRY(read(fd, chunk, CHUNK_BYTES))) > 0) {
        if ((uint64_t)n > *left_bytes) {
            process->n_lost++;
            break;
        }
        *left_bytes -= (uint64_t)n;
        take_bytes(&lines, chunk, (size_t)n);
    }
    if (fd >= 0)
        close(fd);
    int has_no_memory = !chunk || process->out_of_memory;
    free(chunk);
    mt_torch_finish(process);
    if (has_no_memory)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    return n < 0 ? mt_fail(error, MT_EIO, MT_NO_OFFSET, "cannot read %s", path) : 0;
}

/* The process whose trace a file is by its name, 0 where it is none. */
static uint32_t pid_of(const char *name)
{
    char *end;
    if (strncmp(name, "torch-", 6) != 0 || name[6] < '0' || name[6] > '9')
        return 0;
    unsigned long pid = strtoul(name + 6, &end, 10);
    return strcmp(end, ".trace") == 0 && pid <= INT32_MAX ? (uint32_t)pid : 0;
}

static int add_process(struct mt_torch *torch, const char *directory, const char *name,
                       struct mt_error *error)
{
    char path[4096];
    uint32_t pid = pid_of(name);
    if (!pid || torch->n_processes == PROCESSES_MAX)
        return 0;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s: the path is too long", directory);
    struct mt_torch_process *process = &torch->processes[torch->n_processes++];
    process->pid = pid;
    return read_trace(path, process, &torch->left_bytes, error);
}

static int by_pid(const void *a, const void *b)
{
    uint32_t one = ((const struct mt_torch_process *)a)->pid;
    uint32_t other = ((const struct mt_torch_process *)b)->pid;
    return one < other ? -1 : one > other;
}

int mt_torch_open(const char *directory, struct mt_torch **torch, struct mt_error *error)
{
    struct mt_torch *made = calloc(1, sizeof *made);
    if (made)
        made->processes = calloc(PROCESSES_MAX, sizeof *made->processes);
    if (!made || !made->processes) {
        mt_torch_close(made);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    }
    made->left_bytes = TRACES_BYTES;
    DIR *folder = opendir(directory);
    int result = folder ? 0 : mt_fail_errno(error, errno, "%s", directory);
    const struct dirent *entry;
    while (result == 0 && (entry = readdir(folder)))
        result = add_process(made, directory, entry->d_name, error);
    if (folder)
        closedir(folder);
    if (result < 0) {
        mt_torch_close(made);
        return result;
    }
    qsort(made->processes, made->n_processes, sizeof *made->processes, by_pid);
    *torch = made;
    return 0;
}

void mt_torch_close(struct mt_torch *torch)
{
    if (!torch)
        return;
    for (size_t i = 0; i < torch->n_processes; i++)
        mt_torch_free(&torch->processes[i]);
    free(torch->processes);
    free(torch->moment.blocks);
    free(torch->rest.blocks);
    free(torch);
}

static struct mt_torch_process *process_of(const struct mt_torch *torch, uint32_t pid)
{
    struct mt_torch_process key = {.pid = pid};
    return bsearch(&key, torch->processes, torch->n_processes, sizeof key, by_pid);
}

void mt_torch_usage(struct mt_torch *torch, uint32_t pid, uint64_t address, uint64_t bytes,
                    uint64_t time_ns, enum mt_category category, const char *name)
{
    struct mt_torch_process *process = process_of(torch, pid);
    struct mt_torch_block *block =
        process && bytes ? mt_torch_block_at(process, address, time_ns, bytes) : NULL;
    if (!block)
        return;
    block->is_told = 1;
    block->category = (uint8_t)category;
    block->name = mt_torch_name(process, name, strlen(name));
}

static int has_address(const struct mt_torch_segment *segment, uint64_t address)
{
    return address - segment->address < segment->bytes;
}

/* How many segments come before a place and a time, by their order. */
static size_t segments_up_to(const struct mt_torch_process *process, uint64_t address,
                             uint64_t time_ns)
{
    struct mt_bisect place = {.end = process->segments.n};
    while (mt_bisect_next(&place)) {
        const struct mt_torch_segment *segment = &process->segments.at[place.middle];
        mt_bisect_turn(&place, segment->address < address ||
                                   (segment->address == address && segment->begin_ns <= time_ns));
    }
    return place.first;
}

/* The last segment that begins at or below an address; one that lives at `time_ns` where there is
 * such a one. PyTorch notes a segment some microseconds after the driver has made it. */
static const struct mt_torch_segment *segment_at(const struct mt_torch_process *process,
                                                 uint64_t address, uint64_t time_ns)
{
    size_t end = segments_up_to(process, address, UINT64_MAX);
    if (!end)
        return NULL;
    uint64_t start = process->segments.at[end - 1].address;
    size_t later = segments_up_to(process, start, time_ns);
    const struct mt_torch_segment *segments = process->segments.at;
    const struct mt_torch_segment *found =
        later < end && has_address(&segments[later], address) ? &segments[later] : NULL;
    if (later && segments[later - 1].address == start &&
        has_address(&segments[later - 1], address) &&
        (!found || segments[later - 1].end_ns > time_ns))
        found = &segments[later - 1];
    return found;
}

static int is_private_at(const struct mt_torch_segment *segment, uint64_t time_ns)
{
    return segment && segment->is_private && time_ns < segment->private_end_ns;
}

int mt_torch_has(const struct mt_torch *torch, uint32_t pid, uint64_t address)
{
    const struct mt_torch_process *process = process_of(torch, pid);
    return process && segment_at(process, address, UINT64_MAX) != NULL;
}

int mt_torch_has_of(const struct mt_torch *torch, uint32_t pid, uint32_t device, uint64_t address)
{
    const struct mt_torch_process *process = process_of(torch, pid);
    const struct mt_torch_segment *segment =
        process ? segment_at(process, address, UINT64_MAX) : NULL;
    return segment && segment->device == device;
}

static int lives(const struct mt_torch_block *block, uint64_t time_ns)
{
    return block->begin_ns <= time_ns && block->end_ns > time_ns;
}

struct change {
    uint64_t time_ns;
    uint64_t bytes;
    int is_end;
};

static int by_time(const void *a, const void *b)
{
    const struct change *one = a;
    const struct change *other = b;
    if (one->time_ns != other->time_ns)
        return one->time_ns < other->time_ns ? -1 : 1;
    return other->is_end - one->is_end;
}

/* What changes on a device in a span, in the order of time; `bytes` is what is there at first. */
static size_t find_changes(const struct mt_torch_process *process, uint32_t device,
                           uint64_t from_ns, uint64_t to_ns, struct change *changes,
                           uint64_t *bytes)
{
    size_t n = 0;
    *bytes = 0;
    for (size_t i = 0; i < process->blocks.n; i++) {
        const struct mt_torch_block *block = &process->blocks.at[i];
        if (block->device != device)
            continue;
        if (lives(block, from_ns))
            *bytes += block->bytes;
        if (block->begin_ns > from_ns && block->begin_ns <= to_ns)
            changes[n++] = (struct change){block->begin_ns, block->bytes, 0};
        if (block->end_ns > from_ns && block->end_ns <= to_ns)
            changes[n++] = (struct change){block->end_ns, block->bytes, 1};
    }
    qsort(changes, n, sizeof *changes, by_time);
    return n;
}

/* Gathers what lives at a moment, unless it was just asked for. */
static int look_at(struct moment *moment, const struct mt_torch_process *process, uint64_t time_ns)
{
    if (moment->process == process && moment->time_ns == time_ns)
        return 0;
    moment->process = NULL;
    if (moment->capacity < process->blocks.n) {
        uint32_t *blocks = reallocarray(moment->blocks, process->blocks.n, sizeof *blocks);
        if (!blocks)
            return MT_ENOMEM;
        moment->blocks = blocks;
        moment->capacity = process->blocks.n;
    }
    moment->n = 0;
    for (size_t i = 0; i < process->blocks.n; i++)
        if (lives(&process->blocks.at[i], time_ns))
            moment->blocks[moment->n++] = (uint32_t)i;
    moment->process = process;
    moment->time_ns = time_ns;
    return 0;
}

/* The first block that ends past `address`; blocks that live at one time do not overlap. */
static size_t first_past(const struct moment *moment, uint64_t address)
{
    struct mt_bisect place = {.end = moment->n};
    while (mt_bisect_next(&place)) {
        const struct mt_torch_block *block =
            &moment->process->blocks.at[moment->blocks[place.middle]];
        mt_bisect_turn(&place, block->address + block->bytes <= address);
    }
    return place.first;
}

/* What a block is for, by the first of these: a library's word, the phase that kept it, its
 * segment's pool, the phase that made it. A phase is of all threads, and its function may keep
 * other things, too. */
static struct mt_torch_piece use_of(const struct mt_torch_process *process,
                                    const struct mt_torch_block *block, int is_private)
{
    const struct mt_torch_span *span =
        block->phase == MT_TORCH_NONE ? NULL : &process->spans.at[block->phase];
    int is_kept = span && block->end_ns > span->end_ns;
    if (block->is_told)
        return (struct mt_torch_piece){.category = (enum mt_category)block->category,
                                       .provenance = MT_PROVENANCE_EXACT,
                                       .name = process->names[block->name]};
    if (is_kept && span->category != MT_CATEGORY_ACTIVATIONS)
        return (struct mt_torch_piece){.category = (enum mt_category)span->category,
                                       .provenance = MT_PROVENANCE_DERIVED,
                                       .name = process->names[span->name]};
    if (is_private)
        return (struct mt_torch_piece){.category = MT_CATEGORY_GRAPHS,
                                       .provenance = MT_PROVENANCE_EXACT,
                                       .name = "private pool"};
    return (struct mt_torch_piece){.category = MT_CATEGORY_ACTIVATIONS,
                                   .provenance = MT_PROVENANCE_DERIVED,
                                   .name = span ? process->names[span->name] : "tensors"};
}

/* When the last block of a device was made that is no later than `to_ns`, if that is past `at_ns`:
 * the driver gives out memory a little before PyTorch makes the block that it is for. */
static uint64_t last_made(const struct mt_torch_process *process, uint32_t device, uint64_t at_ns,
                          uint64_t to_ns)
{
    uint64_t last_ns = at_ns;
    for (size_t i = 0; i < process->blocks.n; i++) {
        const struct mt_torch_block *block = &process->blocks.at[i];
        if (block->device == device && block->begin_ns <= to_ns && block->begin_ns > last_ns)
            last_ns = block->begin_ns;
    }
    return last_ns;
}

/* The first moment at which most was in blocks. */
static uint64_t find_fullest(const struct mt_torch_process *process, uint32_t device,
                             uint64_t from_ns, uint64_t to_ns)
{
    struct change *changes = calloc(2 * process->blocks.n + 1, sizeof *changes);
    uint64_t fullest_ns = from_ns;
    uint64_t bytes;
    if (!changes)
        return from_ns;
    size_t n = find_changes(process, device, from_ns, to_ns, changes, &bytes);
    uint64_t most = bytes;
    for (size_t i = 0; i < n; i++) {
        bytes = changes[i].is_end ? bytes - changes[i].bytes : bytes + changes[i].bytes;
        if (bytes <= most)
            continue;
        most = bytes;
        fullest_ns = changes[i].time_ns;
    }
    free(changes);
    return fullest_ns;
}

/* What a block is for if that stays: weights, caches, what training keeps; NONE for activations. */
static enum mt_category kept_as(const struct mt_torch_process *process,
                                const struct mt_torch_block *block, uint64_t time_ns)
{
    const struct mt_torch_segment *segment = segment_at(process, block->address, time_ns);
    enum mt_category category = use_of(process, block, is_private_at(segment, time_ns)).category;
    return category == MT_CATEGORY_ACTIVATIONS ? MT_CATEGORY_NONE : category;
}

/* Gives blocks that were not there at the fullest moment a share of what the last one has more of
 * their kind. Blocks in later segments come first, because nothing else was there. */
static void share_late(struct mt_torch_process *process, uint32_t device,
                       const struct mt_torch_moments *moments, uint64_t more[MT_CATEGORY_END],
                       int of_late_segments)
{
    for (size_t i = 0; i < process->blocks.n; i++) {
        struct mt_torch_block *block = &process->blocks.at[i];
        if (block->device != device || !lives(block, moments->last_ns) ||
            lives(block, moments->fullest_ns))
            continue;
        const struct mt_torch_segment *segment =
            segment_at(process, block->address, moments->last_ns);
        if ((segment && segment->begin_ns > moments->fullest_ns) != of_late_segments)
            continue;
        uint64_t *left = &more[kept_as(process, block, moments->last_ns)];
        block->late_bytes = block->bytes < *left ? block->bytes : *left;
        *left -= block->late_bytes;
    }
}

static void find_late(struct mt_torch_process *process, uint32_t device,
                      const struct mt_torch_moments *moments)
{
    uint64_t at_fullest[MT_CATEGORY_END] = {0};
    uint64_t more[MT_CATEGORY_END] = {0};
    for (size_t i = 0; i < process->blocks.n; i++) {
        struct mt_torch_block *block = &process->blocks.at[i];
        if (block->device != device)
            continue;
        block->late_bytes = 0;
        if (lives(block, moments->fullest_ns))
            at_fullest[kept_as(process, block, moments->fullest_ns)] += block->bytes;
        if (lives(block, moments->last_ns))
            more[kept_as(process, block, moments->last_ns)] += block->bytes;
    }
    for (size_t i = 0; i < MT_CATEGORY_END; i++)
        more[i] -= at_fullest[i] < more[i] ? at_fullest[i] : more[i];
    more[MT_CATEGORY_NONE] = 0;
    /* One that grows is made anew for each token, old and new side by side for a while. */
    if (at_fullest[MT_CATEGORY_KV_CACHE])
        more[MT_CATEGORY_KV_CACHE] = 0;
    share_late(process, device, moments, more, 1);
    share_late(process, device, moments, more, 0);
}

struct mt_torch_moments mt_torch_peak(struct mt_torch *torch, uint32_t pid, uint64_t address,
                                      uint64_t at_ns, uint64_t from_ns, uint64_t to_ns)
{
    struct mt_torch_process *process = process_of(torch, pid);
    const struct mt_torch_segment *segment = process ? segment_at(process, address, at_ns) : NULL;
    struct last_peak *last = &torch->last_peak;
    if (!segment)
        return (struct mt_torch_moments){at_ns, at_ns};
    uint32_t device = segment->device;
    if (last->process != process || last->device != device || last->at_ns != at_ns ||
        last->from_ns != from_ns || last->to_ns != to_ns) {
        *last = (struct last_peak){
            process,
            device,
            at_ns,
            from_ns,
            to_ns,
            {find_fullest(process, device, from_ns, to_ns), last_made(process, device, at_ns, to_ns)}};
        find_late(process, device, &last->moments);
    }
    return last->moments;
}

/* Adds to a piece that is alike, or makes one; the last one takes what there is no room for. */
static void add_piece(struct mt_torch_piece *pieces, size_t *n, struct mt_torch_piece piece)
{
    size_t i = 0;
    while (i < *n &&
           (pieces[i].category != piece.category || pieces[i].provenance != piece.provenance ||
            strcmp(pieces[i].name, piece.name) != 0))
        i++;
    if (i == MT_TORCH_PIECES_MAX) {
        i = MT_TORCH_PIECES_MAX - 1;
        pieces[i].name = "others";
        pieces[i].provenance = MT_PROVENANCE_DERIVED;
    }
    if (i == *n) {
        pieces[(*n)++] = piece;
        return;
    }
    pieces[i].bytes += piece.bytes;
    pieces[i].count += piece.count;
}

static int by_bytes(const void *a, const void *b)
{
    const struct mt_torch_piece *one = a;
    const struct mt_torch_piece *other = b;
    if (one->bytes != other->bytes)
        return one->bytes > other->bytes ? -1 : 1;
    return strcmp(one->name, other->name);
}

/* What is held free: a graph's pool gives nothing to others as long as the graph is there. */
static struct mt_torch_piece rest_of(uint64_t bytes, int is_private)
{
    return (struct mt_torch_piece){.category = is_private ? MT_CATEGORY_GRAPHS : MT_CATEGORY_CACHED,
                                   .provenance = MT_PROVENANCE_EXACT,
                                   .bytes = bytes,
                                   .count = 1,
                                   .name = is_private ? "private pool" : "free in segments"};
}

/* What one allocation is divided into. */
struct division {
    const struct mt_torch_process *process;
    const struct mt_torch_segment *segment;
    const struct moment *moment;
    const struct moment *rest; /* divides what is free at `moment`; NULL: that is free */
    struct mt_torch_piece *pieces;
    size_t n;
};

/* Divides a range by the blocks of a moment, and what is free then as at the other moment. */
static void divide(struct division *division, const struct moment *moment, uint64_t at,
                   uint64_t end)
{
    int is_rest = moment && moment != division->moment;
    int is_private = is_private_at(division->segment, division->moment->time_ns);
    for (size_t i = moment ? first_past(moment, at) : 0; moment && i < moment->n; i++) {
        const struct mt_torch_block *block = &division->process->blocks.at[moment->blocks[i]];
        uint64_t block_end = block->address + block->bytes;
        if (block->address >= end)
            break;
        uint64_t first = block->address > at ? block->address : at;
        uint64_t last = block_end < end ? block_end : end;
        struct mt_torch_piece piece = use_of(division->process, block, is_private);
        if (is_rest && last > block->address + block->late_bytes)
            last = block->address + block->late_bytes;
        if (last <= first)
            continue;
        piece.bytes = last - first;
        piece.count = 1;
        add_piece(division->pieces, &division->n, piece);
        if (first > at)
            divide(division, is_rest ? NULL : division->rest, at, first);
        at = last;
    }
    if (at >= end)
        return;
    if (moment == division->moment && division->rest)
        divide(division, division->rest, at, end);
    else
        add_piece(division->pieces, &division->n, rest_of(end - at, is_private));
}

int mt_torch_pieces(struct mt_torch *torch, uint32_t pid, uint64_t address, uint64_t bytes,
                    const struct mt_torch_moments *moments,
                    struct mt_torch_piece pieces[MT_TORCH_PIECES_MAX])
{
    const struct mt_torch_process *process = process_of(torch, pid);
    const struct mt_torch_segment *segment =
        process ? segment_at(process, address, moments->last_ns) : NULL;
    int is_one = moments->fullest_ns == moments->last_ns;
    if (!segment || !bytes || bytes > UINT64_MAX - address)
        return 0;
    if (look_at(&torch->moment, process, moments->fullest_ns) < 0 ||
        (!is_one && look_at(&torch->rest, process, moments->last_ns) < 0))
        return MT_ENOMEM;
    struct division division = {.process = process,
                                .segment = segment,
                                .moment = &torch->moment,
                                .rest = is_one ? NULL : &torch->rest,
                                .pieces = pieces};
    divide(&division, division.moment, address, address + bytes);
    qsort(pieces, division.n, sizeof *pieces, by_bytes);
    return (int)division.n;
}

/* The item of an index that runs over all processes. */
#define ITEM_AT(list)                                                                              \
    do {                                                                                           \
        for (size_t i = 0; i < torch->n_processes; i++) {                                          \
            if (index < torch->processes[i].list.n)                                                \
                return &torch->processes[i].list.at[index];                                        \
            index -= torch->processes[i].list.n;                                                   \
        }                                                                                          \
    } while (0)

const struct mt_torch_phase *mt_torch_phase_at(const struct mt_torch *torch, size_t index)
{
    ITEM_AT(phases);
    return NULL;
}

const struct mt_torch_figure *mt_torch_figure_at(const struct mt_torch *torch, size_t index)
{
    ITEM_AT(figures);
    return NULL;
}

const struct mt_torch_note *mt_torch_note_at(const struct mt_torch *torch, size_t index)
{
    ITEM_AT(notes);
    return NULL;
}

const struct mt_torch_asker *mt_torch_asker_at(const struct mt_torch *torch, size_t index)
{
    ITEM_AT(askers);
    return NULL;
}

const struct mt_torch_graph *mt_torch_graph_at(const struct mt_torch *torch, size_t index)
{
    ITEM_AT(graphs);
    return NULL;
}

uint64_t mt_torch_last_graph_ns(const struct mt_torch *torch, uint32_t pid)
{
    const struct mt_torch_process *process = process_of(torch, pid);
    return process ? process->last_graph_ns : 0;
}

const struct mt_torch_most *mt_torch_most_at(const struct mt_torch *torch, size_t index)
{
    for (size_t i = 0; i < torch->n_processes; i++)
        for (size_t k = 0; k < torch->processes[i].n_devices; k++)
            if (torch->processes[i].most[k].reserved_bytes && index-- == 0)
                return &torch->processes[i].most[k];
    return NULL;
}

uint64_t mt_torch_lost(const struct mt_torch *torch)
{
    uint64_t n = 0;
    for (size_t i = 0; i < torch->n_processes; i++)
        n += torch->processes[i].n_lost;
    return n;
}

int mt_torch_life_at(const struct mt_torch *torch, uint32_t pid, size_t number,
                     struct mt_torch_life *life)
{
    const struct mt_torch_process *process = process_of(torch, pid);
    if (!process || number >= process->blocks.n)
        return 0;
    const struct mt_torch_block *block = &process->blocks.at[number];
    const struct mt_torch_segment *segment = segment_at(process, block->address, block->begin_ns);
    int is_private = is_private_at(segment, block->begin_ns);
    const struct mt_torch_piece use = use_of(process, block, is_private);
    *life = (struct mt_torch_life){block->address, block->bytes, block->begin_ns, block->end_ns,
                                   use.category,   use.name,     block->device,   is_private};
    return 1;
}
