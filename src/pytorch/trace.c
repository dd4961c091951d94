/* SPDX-License-Identifier: MIT */
/* Reading a trace of PyTorch's allocator line by line. Knows no file. */
#include "pytorch/trace.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/bisect.h"

/* Times that PyTorch gives are of another clock and whole microseconds. */
#define CLOCK_NS 100000u

/* What is left of a line. */
struct cursor {
    const char *at;
    const char *end;
    int is_bad;
};

static void skip_blank(struct cursor *cursor)
{
    if (cursor->at < cursor->end && *cursor->at == ' ')
        cursor->at++;
    else
        cursor->is_bad = 1;
}

static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

static uint64_t take_number(struct cursor *cursor, unsigned base)
{
    uint64_t value = 0;
    skip_blank(cursor);
    const char *first = cursor->at;
    for (; cursor->at < cursor->end && *cursor->at != ' '; cursor->at++) {
        unsigned digit = digit_of(*cursor->at);
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            cursor->is_bad = 1;
    }
    cursor->is_bad |= cursor->at == first;
    return value;
}

static uint64_t take_decimal(struct cursor *cursor)
{
    return take_number(cursor, 10);
}

static uint64_t take_address(struct cursor *cursor)
{
    return take_number(cursor, 16);
}

/* "14.99", whatever the locale has for a point. */
static double take_value(struct cursor *cursor)
{
    double value = 0;
    double unit = 0;
    skip_blank(cursor);
    const char *first = cursor->at;
    for (; cursor->at < cursor->end && *cursor->at != ' '; cursor->at++) {
        unsigned digit = digit_of(*cursor->at);
        if (*cursor->at == '.' && unit == 0)
            unit = 1;
        else if (digit > 9)
            cursor->is_bad = 1;
        else
            value = unit > 0 ? value + digit * (unit /= 10) : value * 10 + digit;
    }
    cursor->is_bad |= cursor->at == first;
    return value;
}

/* A word, borrowed from the line. */
static size_t take_word(struct cursor *cursor, const char **word)
{
    skip_blank(cursor);
    *word = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != ' ')
        cursor->at++;
    cursor->is_bad |= cursor->at == *word;
    return (size_t)(cursor->at - *word);
}

static size_t take_rest(struct cursor *cursor, const char **text)
{
    skip_blank(cursor);
    *text = cursor->at;
    cursor->is_bad |= cursor->at == cursor->end;
    return (size_t)(cursor->end - cursor->at);
}

static enum mt_category take_category(struct cursor *cursor)
{
    const char *word;
    char name[32] = "";
    size_t length = take_word(cursor, &word);
    if (length >= sizeof name) {
        cursor->is_bad = 1;
        return MT_CATEGORY_NONE;
    }
    memcpy(name, word, length);
    enum mt_category category = mt_category_by_name(name);
    cursor->is_bad |= !category;
    return category;
}

static uint32_t take_device(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t device = take_decimal(cursor);
    if (device >= MT_TORCH_DEVICES_MAX) {
        cursor->is_bad = 1;
        return 0;
    }
    if (!cursor->is_bad && device >= process->n_devices)
        process->n_devices = (uint32_t)device + 1;
    return (uint32_t)device;
}

uint16_t mt_torch_name(struct mt_torch_process *process, const char *text, size_t length)
{
    for (size_t i = 0; i < process->n_names; i++)
        if (strlen(process->names[i]) == length && memcmp(process->names[i], text, length) == 0)
            return (uint16_t)i;
    if (process->n_names == MT_TORCH_NAMES_MAX)
        return 0;
    const char *name = mt_arena_copy(&process->texts, text, length);
    process->out_of_memory |= !name;
    if (!name)
        return 0;
    process->names[process->n_names++] = name;
    return (uint16_t)(process->n_names - 1);
}

/* The report of a phase on a device; NULL where there are too many. */
static struct mt_torch_phase *report_of(struct mt_torch_process *process, uint32_t span,
                                        uint32_t device)
{
    uint32_t *report = &process->spans.at[span].report[device];
    return *report == MT_TORCH_NONE ? NULL : &process->phases.at[*report];
}

static void open_report(struct mt_torch_process *process, uint32_t index, uint32_t device)
{
    struct mt_torch_span *span = &process->spans.at[index];
    if (process->phases.n >= MT_TORCH_PHASES_MAX)
        return;
    if (!MT_TORCH_ROOM(process->phases)) {
        process->out_of_memory = 1;
        return;
    }
    span->report[device] = (uint32_t)process->phases.n;
    process->phases.at[process->phases.n++] = (struct mt_torch_phase){
        .pid = process->pid,
        .device = device,
        .name = process->names[span->name],
        .category = (enum mt_category)span->category,
        .begin_ns = span->begin_ns,
        .end_ns = UINT64_MAX,
        .begin_bytes = process->block_bytes[device],
        .end_bytes = process->block_bytes[device],
        .peak_bytes = process->block_bytes[device],
        .peak_segment_bytes = process->segment_bytes[device],
    };
}

/* More is there now than before: the phases in hand may be at their peak. */
static void note_peaks(struct mt_torch_process *process, uint32_t device)
{
    for (size_t i = 0; i < process->n_open; i++) {
        if (!report_of(process, process->open[i], device))
            open_report(process, process->open[i], device);
        struct mt_torch_phase *report = report_of(process, process->open[i], device);
        if (!report)
            continue;
        if (process->block_bytes[device] > report->peak_bytes)
            report->peak_bytes = process->block_bytes[device];
        if (process->segment_bytes[device] > report->peak_segment_bytes)
            report->peak_segment_bytes = process->segment_bytes[device];
    }
}

static void add_bytes(uint64_t *sum, uint64_t bytes)
{
    if (__builtin_add_overflow(*sum, bytes, sum))
        *sum = UINT64_MAX;
}

static void remove_bytes(uint64_t *sum, uint64_t bytes)
{
    *sum -= bytes < *sum ? bytes : *sum;
}

static void end_block(struct mt_torch_process *process, uint32_t index, uint64_t time_ns)
{
    struct mt_torch_block *block = &process->blocks.at[index];
    block->end_ns = time_ns > block->begin_ns ? time_ns : block->begin_ns;
    remove_bytes(&process->block_bytes[block->device], block->bytes);
    mt_torch_map_remove(&process->live_blocks, block->address);
}

static void end_segment(struct mt_torch_process *process, uint32_t index, uint64_t time_ns)
{
    struct mt_torch_segment *segment = &process->segments.at[index];
    segment->end_ns = time_ns > segment->begin_ns ? time_ns : segment->begin_ns;
    remove_bytes(&process->segment_bytes[segment->device], segment->bytes);
    mt_torch_map_remove(&process->live_segments, segment->address);
}

/* Whether there is no room for what a line says, which is otherwise right. */
static int is_lost(struct mt_torch_process *process, const struct cursor *cursor, size_t n)
{
    int has_no_room = !cursor->is_bad && n >= MT_TORCH_BLOCKS_MAX;
    process->n_lost += has_no_room != 0;
    return has_no_room;
}

/* PyTorch gives memory out in units of 512 bytes. */
static uint64_t rounded(uint64_t bytes)
{
    return bytes > UINT64_MAX - 511 ? bytes : (bytes + 511) & ~UINT64_C(511);
}

/* Where something lives at the address already, its end was not seen. */
static void read_block(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_block block = {.end_ns = UINT64_MAX, .phase = MT_TORCH_NONE};
    block.device = take_device(process, cursor);
    block.begin_ns = take_decimal(cursor);
    block.address = take_address(cursor);
    block.bytes = rounded(take_decimal(cursor));
    uint64_t end;
    cursor->is_bad |= __builtin_add_overflow(block.address, block.bytes, &end);
    if (is_lost(process, cursor, process->blocks.n) || cursor->is_bad)
        return;
    uint32_t old = mt_torch_map_get(&process->live_blocks, block.address);
    if (old != MT_TORCH_NONE)
        end_block(process, old, block.begin_ns);
    if (process->n_open)
        block.phase = process->open[process->n_open - 1];
    if (!MT_TORCH_ROOM(process->blocks) ||
        !mt_torch_map_put(&process->live_blocks, block.address, (uint32_t)process->blocks.n)) {
        process->out_of_memory = 1;
        return;
    }
    process->blocks.at[process->blocks.n++] = block;
    add_bytes(&process->block_bytes[block.device], block.bytes);
    note_peaks(process, block.device);
}

static void read_segment(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_segment segment = {.end_ns = UINT64_MAX, .private_end_ns = UINT64_MAX};
    segment.device = take_device(process, cursor);
    segment.begin_ns = take_decimal(cursor);
    segment.address = take_address(cursor);
    segment.bytes = take_decimal(cursor);
    uint64_t end;
    cursor->is_bad |= __builtin_add_overflow(segment.address, segment.bytes, &end);
    if (is_lost(process, cursor, process->segments.n) || cursor->is_bad)
        return;
    uint32_t old = mt_torch_map_get(&process->live_segments, segment.address);
    if (old != MT_TORCH_NONE)
        end_segment(process, old, segment.begin_ns);
    if (!MT_TORCH_ROOM(process->segments) ||
        !mt_torch_map_put(&process->live_segments, segment.address,
                          (uint32_t)process->segments.n)) {
        process->out_of_memory = 1;
        return;
    }
    process->segments.at[process->segments.n++] = segment;
    add_bytes(&process->segment_bytes[segment.device], segment.bytes);
    note_peaks(process, segment.device);
}

static void read_end(struct mt_torch_process *process, struct cursor *cursor, int is_segment)
{
    take_device(process, cursor);
    uint64_t time_ns = take_decimal(cursor);
    uint64_t address = take_address(cursor);
    if (cursor->is_bad)
        return;
    uint32_t index =
        mt_torch_map_get(is_segment ? &process->live_segments : &process->live_blocks, address);
    if (index == MT_TORCH_NONE)
        process->n_skipped++;
    else if (is_segment)
        end_segment(process, index, time_ns);
    else
        end_block(process, index, time_ns);
}

static void read_private(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t address = take_address(cursor);
    uint32_t index = mt_torch_map_get(&process->live_segments, address);
    if (cursor->is_bad || index == MT_TORCH_NONE)
        return;
    process->segments.at[index].is_private = 1;
    process->segments.at[index].private_end_ns = UINT64_MAX;
}

static void read_private_end(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t time_ns = take_decimal(cursor);
    uint64_t address = take_address(cursor);
    uint32_t index = mt_torch_map_get(&process->live_segments, address);
    if (!cursor->is_bad && index != MT_TORCH_NONE)
        process->segments.at[index].private_end_ns = time_ns;
}

static void read_rest_of_block(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t address = take_address(cursor);
    uint64_t bytes = take_decimal(cursor);
    uint32_t index = mt_torch_map_get(&process->live_blocks, address);
    if (cursor->is_bad || index == MT_TORCH_NONE || bytes > UINT64_MAX - address)
        return;
    struct mt_torch_block *block = &process->blocks.at[index];
    remove_bytes(&process->block_bytes[block->device], block->bytes);
    block->bytes = bytes;
    add_bytes(&process->block_bytes[block->device], bytes);
    note_peaks(process, block->device);
}

static void read_told(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_told told = {.time_ns = take_decimal(cursor)};
    const char *text;
    told.address = take_address(cursor);
    told.category = (uint8_t)take_category(cursor);
    size_t length = take_rest(cursor, &text);
    if (is_lost(process, cursor, process->told.n) || cursor->is_bad)
        return;
    told.name = mt_torch_name(process, text, length);
    if (MT_TORCH_ROOM(process->told))
        process->told.at[process->told.n++] = told;
    else
        process->out_of_memory = 1;
}

static void read_begin(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_span span = {.end_ns = UINT64_MAX};
    const char *text;
    span.begin_ns = take_decimal(cursor);
    uint64_t number = take_decimal(cursor);
    span.category = (uint8_t)take_category(cursor);
    size_t length = take_rest(cursor, &text);
    cursor->is_bad |= process->n_open == MT_TORCH_OPEN_MAX;
    cursor->is_bad |= process->spans.n >= MT_TORCH_PHASES_MAX;
    if (cursor->is_bad)
        return;
    span.name = mt_torch_name(process, text, length);
    memset(span.report, 0xff, sizeof span.report);
    if (process->out_of_memory || !MT_TORCH_ROOM(process->spans)) {
        process->out_of_memory = 1;
        return;
    }
    uint32_t index = (uint32_t)process->spans.n++;
    process->spans.at[index] = span;
    process->open[process->n_open] = index;
    process->open_number[process->n_open++] = number;
    for (uint32_t device = 0; device < process->n_devices; device++)
        open_report(process, index, device);
}

static void end_span(struct mt_torch_process *process, uint32_t index, uint64_t time_ns)
{
    process->spans.at[index].end_ns = time_ns;
    for (uint32_t device = 0; device < MT_TORCH_DEVICES_MAX; device++) {
        struct mt_torch_phase *report = report_of(process, index, device);
        if (!report)
            continue;
        report->end_ns = time_ns;
        report->end_bytes = process->block_bytes[device];
    }
}

/* Threads may end their phases in another order than they began them. */
static void read_done(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t time_ns = take_decimal(cursor);
    uint64_t number = take_decimal(cursor);
    for (size_t i = process->n_open; !cursor->is_bad && i-- > 0;) {
        if (process->open_number[i] != number)
            continue;
        end_span(process, process->open[i], time_ns);
        process->n_open--;
        memmove(&process->open[i], &process->open[i + 1],
                (process->n_open - i) * sizeof *process->open);
        memmove(&process->open_number[i], &process->open_number[i + 1],
                (process->n_open - i) * sizeof *process->open_number);
        return;
    }
    cursor->is_bad = 1;
}

static void read_figure(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_figure figure = {.pid = process->pid, .time_ns = take_decimal(cursor)};
    const char *unit;
    const char *name;
    figure.value = take_value(cursor);
    size_t unit_length = take_word(cursor, &unit);
    size_t length = take_rest(cursor, &name);
    cursor->is_bad |= process->figures.n >= MT_TORCH_SAID_MAX;
    if (cursor->is_bad)
        return;
    figure.unit = mt_arena_copy(&process->texts, unit, unit_length);
    figure.name = mt_arena_copy(&process->texts, name, length);
    if (figure.unit && figure.name && MT_TORCH_ROOM(process->figures))
        process->figures.at[process->figures.n++] = figure;
    else
        process->out_of_memory = 1;
}

static void read_note(struct mt_torch_process *process, struct cursor *cursor)
{
    const char *text;
    take_decimal(cursor);
    size_t length = take_rest(cursor, &text);
    cursor->is_bad |= process->notes.n >= MT_TORCH_SAID_MAX;
    if (cursor->is_bad)
        return;
    struct mt_torch_note note = {process->pid, mt_arena_copy(&process->texts, text, length)};
    if (note.text && MT_TORCH_ROOM(process->notes))
        process->notes.at[process->notes.n++] = note;
    else
        process->out_of_memory = 1;
}

static void read_asker(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_asker asker = {.pid = process->pid, .time_ns = take_decimal(cursor)};
    const char *text;
    uint32_t device = take_device(process, cursor);
    asker.bytes = take_decimal(cursor);
    size_t length = take_rest(cursor, &text);
    cursor->is_bad |= process->askers.n >= MT_TORCH_SAID_MAX;
    if (cursor->is_bad)
        return;
    note_peaks(process, device); /* perhaps the first thing that is seen of the device */
    asker.stack = mt_arena_copy(&process->texts, text, length);
    if (asker.stack && MT_TORCH_ROOM(process->askers))
        process->askers.at[process->askers.n++] = asker;
    else
        process->out_of_memory = 1;
}

/* PyTorch starts to count anew where the program asks for it. */
static void read_most(struct mt_torch_process *process, struct cursor *cursor)
{
    uint32_t device = take_device(process, cursor);
    take_decimal(cursor);
    uint64_t allocated = take_decimal(cursor);
    uint64_t reserved = take_decimal(cursor);
    struct mt_torch_most *most = &process->most[device];
    if (cursor->is_bad)
        return;
    if (allocated > most->allocated_bytes)
        most->allocated_bytes = allocated;
    if (reserved > most->reserved_bytes)
        most->reserved_bytes = reserved;
    most->device = device;
    most->pid = process->pid;
}

/* A number, or "-" for one that is not known. */
static uint64_t take_count(struct cursor *cursor)
{
    if (cursor->end - cursor->at >= 2 && cursor->at[0] == ' ' && cursor->at[1] == '-' &&
        (cursor->end - cursor->at == 2 || cursor->at[2] == ' ')) {
        cursor->at += 2;
        return MT_UNKNOWN;
    }
    return take_decimal(cursor);
}

/* What the allocator had when the last one of a device was captured. */
static void note_graph(struct mt_torch_process *process, const struct mt_torch_graph *graph)
{
    struct mt_torch_most *most = &process->most[graph->device];
    most->has_graphs = 1;
    most->last_allocated_bytes = graph->allocated_bytes;
    most->last_reserved_bytes = graph->reserved_bytes;
    if (graph->allocated_bytes > most->allocated_bytes)
        most->allocated_bytes = graph->allocated_bytes;
    if (graph->reserved_bytes > most->reserved_bytes)
        most->reserved_bytes = graph->reserved_bytes;
    most->device = graph->device;
    most->pid = process->pid;
    if (graph->time_ns >= process->last_graph_ns)
        process->last_graph_ns = graph->time_ns;
}

static void read_graph(struct mt_torch_process *process, struct cursor *cursor)
{
    struct mt_torch_graph graph = {.pid = process->pid,
                                   .end_ns = UINT64_MAX,
                                   .host_bytes = MT_UNKNOWN,
                                   .expected = MT_UNKNOWN,
                                   .begin_ns = MT_UNKNOWN,
                                   .used_bytes = MT_UNKNOWN};
    const char *kind;
    graph.device = take_device(process, cursor);
    graph.time_ns = take_decimal(cursor);
    graph.number = take_decimal(cursor);
    graph.pool_bytes = take_decimal(cursor);
    graph.driver_bytes = take_decimal(cursor);
    graph.nodes = take_count(cursor);
    graph.allocated_bytes = take_decimal(cursor);
    graph.reserved_bytes = take_decimal(cursor);
    graph.batch = take_count(cursor);
    graph.tokens = take_count(cursor);
    graph.draft = take_count(cursor);
    size_t length = take_word(cursor, &kind);
    cursor->is_bad |= cursor->at != cursor->end || process->graphs.n >= MT_TORCH_GRAPHS_MAX;
    if (cursor->is_bad)
        return;
    note_peaks(process, graph.device); /* perhaps the first thing that is seen of the device */
    graph.kind = process->names[mt_torch_name(process, kind, length)];
    if (!MT_TORCH_ROOM(process->graphs) ||
        !mt_torch_map_put(&process->graphs_by_number, graph.number, (uint32_t)process->graphs.n)) {
        process->out_of_memory = 1;
        return;
    }
    process->graphs.at[process->graphs.n++] = graph;
    note_graph(process, &graph);
}

static struct mt_torch_graph *graph_of(struct mt_torch_process *process, uint64_t number)
{
    uint32_t index = mt_torch_map_get(&process->graphs_by_number, number);
    return index == MT_TORCH_NONE ? NULL : &process->graphs.at[index];
}

static void read_graph_gone(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t time_ns = take_decimal(cursor);
    uint64_t number = take_decimal(cursor);
    struct mt_torch_graph *graph = cursor->is_bad ? NULL : graph_of(process, number);
    if (graph && graph->end_ns == UINT64_MAX)
        graph->end_ns = time_ns;
}

static void read_more_of_graph(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t number = take_decimal(cursor);
    uint64_t host_bytes = take_decimal(cursor);
    uint64_t pool = take_decimal(cursor);
    uint64_t expected = take_count(cursor);
    cursor->is_bad |= cursor->at != cursor->end;
    struct mt_torch_graph *graph = cursor->is_bad ? NULL : graph_of(process, number);
    if (!graph)
        return;
    graph->host_bytes = host_bytes;
    graph->expected = expected;
    graph->pool = pool;
}

static void read_moment_of_graph(struct mt_torch_process *process, struct cursor *cursor)
{
    uint64_t number = take_decimal(cursor);
    uint64_t begin_ns = take_decimal(cursor);
    uint64_t used_bytes = take_decimal(cursor);
    uint64_t is_late = take_decimal(cursor);
    cursor->is_bad |= cursor->at != cursor->end;
    struct mt_torch_graph *graph = cursor->is_bad ? NULL : graph_of(process, number);
    if (!graph || begin_ns > graph->time_ns)
        return;
    graph->begin_ns = begin_ns;
    graph->used_bytes = used_bytes;
    graph->is_late = is_late != 0;
}

static void read_by_letter(struct mt_torch_process *process, struct cursor *cursor, char letter)
{
    switch (letter) {
    case 'a':
        read_block(process, cursor);
        break;
    case 's':
        read_segment(process, cursor);
        break;
    case 'f':
    case 'e':
        read_end(process, cursor, letter == 'e');
        break;
    case 'p':
        read_private(process, cursor);
        break;
    case 'q':
        read_private_end(process, cursor);
        break;
    case 'r':
        read_rest_of_block(process, cursor);
        break;
    case 'h':
        read_told(process, cursor);
        break;
    case 'b':
        read_begin(process, cursor);
        break;
    case 'd':
        read_done(process, cursor);
        break;
    case 'g':
        read_figure(process, cursor);
        break;
    case 'n':
        read_note(process, cursor);
        break;
    case 'o':
        read_asker(process, cursor);
        break;
    case 'm':
        read_most(process, cursor);
        break;
    case 'x':
        read_graph(process, cursor);
        break;
    case 'y':
        read_graph_gone(process, cursor);
        break;
    case 'z':
        read_more_of_graph(process, cursor);
        break;
    case 'w':
        read_moment_of_graph(process, cursor);
        break;
    default:
        break;
    }
}

void mt_torch_line(struct mt_torch_process *process, const char *line, size_t length)
{
    struct cursor cursor = {line, line + length, 0};
    if (!process->n_names)
        mt_torch_name(process, "", 0);
    if (process->out_of_memory || !length)
        return;
    cursor.is_bad = length > MT_TORCH_LINE_BYTES || memchr(line, '\0', length) != NULL;
    char letter = *cursor.at++;
    if (!cursor.is_bad && (cursor.at == cursor.end || *cursor.at == ' '))
        read_by_letter(process, &cursor, letter);
    process->n_skipped += cursor.is_bad != 0;
}

static int by_address(const void *a, const void *b)
{
    const struct mt_torch_block *one = a;
    const struct mt_torch_block *other = b;
    if (one->address != other->address)
        return one->address < other->address ? -1 : 1;
    if (one->begin_ns != other->begin_ns)
        return one->begin_ns < other->begin_ns ? -1 : 1;
    return one->end_ns < other->end_ns ? -1 : one->end_ns > other->end_ns;
}

static int segments_by_address(const void *a, const void *b)
{
    const struct mt_torch_segment *one = a;
    const struct mt_torch_segment *other = b;
    if (one->address != other->address)
        return one->address < other->address ? -1 : 1;
    return one->begin_ns < other->begin_ns ? -1 : one->begin_ns > other->begin_ns;
}

/* Blocks up to `address` and `time_ns`, by their order. */
static size_t count_up_to(const struct mt_torch_process *process, uint64_t address,
                          uint64_t time_ns)
{
    struct mt_bisect place = {.end = process->blocks.n};
    while (mt_bisect_next(&place)) {
        const struct mt_torch_block *block = &process->blocks.at[place.middle];
        mt_bisect_turn(&place, block->address < address ||
                                   (block->address == address && block->begin_ns <= time_ns));
    }
    return place.first;
}

/* How far a block's life is from a time; 0 while it lives. */
static uint64_t distance(const struct mt_torch_block *block, uint64_t time_ns)
{
    if (block->begin_ns > time_ns)
        return block->begin_ns - time_ns;
    return block->end_ns > time_ns ? 0 : time_ns - block->end_ns + 1;
}

struct mt_torch_block *mt_torch_block_at(struct mt_torch_process *process, uint64_t address,
                                         uint64_t time_ns, uint64_t bytes)
{
    uint64_t latest = time_ns < UINT64_MAX - CLOCK_NS ? time_ns + CLOCK_NS : UINT64_MAX;
    struct mt_torch_block *nearest = NULL;
    for (size_t i = count_up_to(process, address, latest); i-- > 0;) {
        struct mt_torch_block *block = &process->blocks.at[i];
        uint64_t far_ns = distance(block, time_ns);
        if (block->address != address || (block->begin_ns < time_ns && far_ns > CLOCK_NS))
            break;
        if (block->bytes >= bytes && (!nearest || far_ns < distance(nearest, time_ns)))
            nearest = block;
    }
    return nearest;
}

/* Graphs of each device, by their numbers in the list: those of device d from first[d] up to
 * first[d + 1], in the order of the list. */
struct by_device {
    uint32_t first[MT_TORCH_DEVICES_MAX + 1];
    uint32_t *index;
};

static int sort_by_device(const struct mt_torch_process *process, struct by_device *sorted)
{
    uint32_t next[MT_TORCH_DEVICES_MAX];
    *sorted = (struct by_device){.index = calloc(process->graphs.n + 1, sizeof *sorted->index)};
    if (!sorted->index)
        return 0;
    for (size_t i = 0; i < process->graphs.n; i++)
        sorted->first[process->graphs.at[i].device + 1]++;
    for (size_t i = 0; i < MT_TORCH_DEVICES_MAX; i++) {
        sorted->first[i + 1] += sorted->first[i];
        next[i] = sorted->first[i];
    }
    for (size_t i = 0; i < process->graphs.n; i++)
        sorted->index[next[process->graphs.at[i].device]++] = (uint32_t)i;
    return 1;
}

/* A segment of a private pool is the next graph's whose capture ended. */
static void give_to_graph(struct mt_torch_process *process, const struct by_device *sorted,
                          const struct mt_torch_segment *segment)
{
    size_t first = sorted->first[segment->device], end = sorted->first[segment->device + 1];
    const size_t all = end;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (process->graphs.at[sorted->index[middle]].time_ns < segment->begin_ns)
            first = middle + 1;
        else
            end = middle;
    }
    if (first < all)
        add_bytes(&process->graphs.at[sorted->index[first]].private_bytes, segment->bytes);
}

static void give_to_graphs(struct mt_torch_process *process)
{
    struct by_device sorted;
    if (!sort_by_device(process, &sorted)) {
        process->out_of_memory = 1;
        return;
    }
    for (size_t i = 0; i < process->segments.n; i++)
        if (process->segments.at[i].is_private)
            give_to_graph(process, &sorted, &process->segments.at[i]);
    free(sorted.index);
}

void mt_torch_finish(struct mt_torch_process *process)
{
    if (process->graphs.n)
        give_to_graphs(process);
    if (process->blocks.n)
        qsort(process->blocks.at, process->blocks.n, sizeof *process->blocks.at, by_address);
    if (process->segments.n)
        qsort(process->segments.at, process->segments.n, sizeof *process->segments.at,
              segments_by_address);
    for (size_t i = 0; i < process->told.n; i++) {
        const struct mt_torch_told *told = &process->told.at[i];
        struct mt_torch_block *block = mt_torch_block_at(process, told->address, told->time_ns, 0);
        if (!block)
            continue;
        block->is_told = 1;
        block->category = told->category;
        block->name = told->name;
    }
}

void mt_torch_free(struct mt_torch_process *process)
{
    free(process->blocks.at);
    free(process->segments.at);
    free(process->told.at);
    free(process->spans.at);
    free(process->phases.at);
    free(process->figures.at);
    free(process->notes.at);
    free(process->askers.at);
    free(process->graphs.at);
    free(process->graphs_by_number.slots);
    free(process->live_blocks.slots);
    free(process->live_segments.slots);
    mt_arena_finish(&process->texts);
}
