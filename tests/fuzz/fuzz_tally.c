/* SPDX-License-Identifier: MIT */
/* Tallies of events that no program made. The bytes are the events of up to four files: a process,
 * a fork of it, another program of the same process, and their watcher. The first byte says which
 * of them there are and how they are recorded; each but the last has its length before it, in two
 * bytes. Every tally adds up, and a refusal says why. */
#include "recording_image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/history.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

#define BEGIN_TICKS 1000
#define END_TICKS   1000000000
#define PAGE_BYTES  4096
#define MOST_EVENTS (MT_BLOCK_BYTES - sizeof(struct mt_block_header))

enum choice { HAS_FORK = 1, HAS_EXEC = 2, HAS_WATCH = 4, IS_SAMPLED = 8, IS_CUT_OFF = 16 };

static const struct {
    const char *name;
    int choice; /* bit of the first byte, 0: always there */
    struct mt_file_header header;
} files[] = {
    {"watch.mtr", HAS_WATCH, {.kind = MT_FILE_WATCH, .pid = 1}},
    {"8-0.mtr",
     HAS_FORK,
     {.kind = MT_FILE_PROCESS,
      .pid = 8,
      .parent_pid = 7,
      .flags = MT_FILE_FORKED,
      .start_ticks = 20 * BEGIN_TICKS,
      .fork_ticks = 20 * BEGIN_TICKS}},
    {"7-1.mtr", HAS_EXEC, {.kind = MT_FILE_PROCESS, .pid = 7, .start_ticks = 400 * BEGIN_TICKS}},
    {"7-0.mtr", 0, {.kind = MT_FILE_PROCESS, .pid = 7}},
};
#define N_FILES (sizeof files / sizeof *files)

static char folder[64];

static void remove_folder(void)
{
    char path[128];
    for (size_t i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    const char *memory = "/dev/shm/memtally-fuzz-XXXXXX";
    const char *disk = "/tmp/memtally-fuzz-XXXXXX";
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? memory : disk);
    if (!mkdtemp(folder) || atexit(remove_folder) != 0)
        abort();
}

/* Writes file `i`; a file that ended has an end. */
static void write_file(size_t i, uint8_t choice, const uint8_t *events, size_t length)
{
    uint8_t page[MT_HEADER_BYTES];
    struct mt_file_header header = files[i].header;
    struct mt_block_header block = {.magic = MT_BLOCK_MAGIC, .used = (uint32_t)length};
    char path[128];
    header.clock_kind = MT_CLOCK_MONOTONIC;
    header.start_ticks = header.start_ticks ? header.start_ticks : BEGIN_TICKS;
    header.start_monotonic_ns = block.start_ticks = header.start_ticks;
    header.exact_from_bytes = choice & IS_SAMPLED ? MT_BLOCK_BYTES : 0;
    header.sample_interval_bytes = choice & IS_SAMPLED ? 524288 : 0;
    header.end_kind = choice & IS_CUT_OFF ? MT_END_UNKNOWN : MT_END_EXIT;
    header.end_ticks = header.end_monotonic_ns = choice & IS_CUT_OFF ? 0 : END_TICKS;
    const struct iovec parts[] = {
        {page, sizeof page}, {&block, sizeof block}, {(void *)events, length}};
    put_header(page, &header, 0, 1);
    snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || writev(fd, parts, 3) != (ssize_t)(sizeof page + sizeof block + length) ||
        ftruncate(fd, MT_HEADER_BYTES + MT_BLOCK_BYTES) != 0)
        abort();
    close(fd);
}

/* Writes the files that are chosen, and removes what an earlier input left. */
static void write_files(uint8_t choice, const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < N_FILES; i++) {
        char path[128];
        size_t n = length;
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        if (files[i].choice && !(choice & files[i].choice)) {
            unlink(path);
            continue;
        }
        if (files[i].choice && length >= 2) {
            n = (size_t)data[0] | (size_t)data[1] << 8;
            data += 2;
            length -= 2;
            n = n < length ? n : length;
        }
        n = n < MOST_EVENTS ? n : MOST_EVENTS;
        write_file(i, choice, data, n);
        data += n;
        length -= n;
    }
}

static void check_refusal(int result, const struct mt_error *error)
{
    if (error->code != result || !error->text[0])
        abort();
}

static void check_stacks(const struct mt_recording *recording, const struct mt_moment *moment)
{
    struct mt_stack_list *stacks = NULL;
    struct mt_error error = {.text = ""};
    int result = mt_recording_stacks(recording, moment, 0, &stacks, &error);
    if (result < 0) {
        check_refusal(result, &error);
        return;
    }
    for (size_t i = 1; i < stacks->n_entries; i++)
        if (stacks->entries[i].bytes > stacks->entries[i - 1].bytes)
            abort();
    mt_stack_list_destroy(stacks);
}

/* Nothing holds more than was taken for it. */
static void check_details(const struct mt_tally_row *row)
{
    for (size_t i = 0; i < row->n_details; i++) {
        const struct mt_tally_detail *detail = &row->details[i];
        if (detail->allocated_bytes != MT_UNKNOWN &&
            detail->resident_bytes > detail->allocated_bytes)
            abort();
    }
}

static void check_rows(const struct mt_tally *tally)
{
    for (size_t i = 0; i < tally->n_places; i++)
        for (size_t j = 0; j < tally->places[i].n_rows; j++)
            check_details(&tally->places[i].rows[j]);
}

static void check_moment(const struct mt_recording *recording, const struct mt_moment *moment)
{
    struct mt_tally *tally = NULL;
    struct mt_error error = {.text = ""};
    int result = mt_recording_tally(recording, moment, &tally, &error);
    if (result < 0)
        check_refusal(result, &error);
    else if (!mt_tally_adds_up(tally))
        abort();
    else
        check_rows(tally);
    mt_tally_destroy(tally);
    check_stacks(recording, moment);
}

/* ---- what a file of one process says itself, held against the tally of that moment ---- */

struct said {
    uint64_t ns;             /* since the recording began */
    uint64_t looked;         /* the resident size; MT_UNKNOWN: not said then */
    uint64_t small_bytes;    /* of small blocks in use; MT_UNKNOWN: not said then */
    uint64_t labelled_bytes; /* of these; MT_UNKNOWN: nobody can say, and there may be fewer */
};

#define MOST_SAID 4

struct sayings {
    struct said items[MOST_SAID];
    size_t n;
    int has_samples;         /* what samples say comes on top of the totals */
    uint64_t labelled_bytes; /* of small blocks, which are counted by their labels */
    uint64_t labelled_from;
    uint64_t labelled_to;
    int is_unclear; /* which labels hold */
    int is_gone;    /* it said that it has no page: what it never gave back need not be shown */
};

/* Labels of blocks are added up as long as their addresses rise and nothing else is said of memory.
 */
static void read_label(struct sayings *sayings, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    uint64_t to = field[0] + field[1];
    int is_again = field[0] == sayings->labelled_from && to == sayings->labelled_to;
    if (event->op != MT_EVENT_LABEL_BLOCK) {
        sayings->is_unclear |= event->op == MT_EVENT_ALLOC || sayings->labelled_to;
        return;
    }
    sayings->is_unclear |= to < field[0] || !field[2] || field[2] >= MT_CATEGORY_END ||
                           (!is_again && field[0] < sayings->labelled_to);
    sayings->labelled_bytes += is_again ? 0 : field[1];
    sayings->labelled_from = field[0];
    sayings->labelled_to = to;
}

static void add_saying(struct sayings *sayings, const struct mt_event *event, uint64_t ns)
{
    struct said said = {ns - BEGIN_TICKS, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN};
    if (event->op == MT_EVENT_LOOK) {
        said.looked = event->field[0];
        sayings->is_gone = said.looked < PAGE_BYTES;
    } else if (event->field[1] >= event->field[3])
        said.small_bytes = event->field[1] - event->field[3];
    if (!sayings->is_unclear && !sayings->is_gone)
        said.labelled_bytes = sayings->labelled_bytes;
    if (sayings->n && sayings->items[sayings->n - 1].ns == said.ns)
        sayings->n--; /* which one holds? */
    else if (sayings->n < MOST_SAID && ns >= BEGIN_TICKS && ns <= END_TICKS)
        sayings->items[sayings->n++] = said;
}

static void read_event(struct sayings *sayings, const struct mt_event *event, uint64_t ns)
{
    switch (event->op) {
    case MT_EVENT_LOOK:
    case MT_EVENT_TOTALS:
        add_saying(sayings, event, ns);
        return;
    case MT_EVENT_SAMPLE_ALLOC:
        sayings->has_samples = 1;
        break;
    case MT_EVENT_STRING:
    case MT_EVENT_CLOCK:
    case MT_EVENT_MARK:
        break;
    default:
        read_label(sayings, event);
    }
    if (sayings->n && sayings->items[sayings->n - 1].ns + BEGIN_TICKS == ns)
        sayings->n--; /* something else happened at that time */
}

/* Reads the file apart from the tally. */
static void read_sayings(const struct mt_record_file *file, struct sayings *sayings)
{
    struct mt_merge *merge = NULL;
    struct mt_event event;
    struct mt_clock clock;
    *sayings = (struct sayings){0};
    mt_clock_of_file(file, &clock);
    if (mt_merge_create(file, &merge) < 0)
        abort();
    while (mt_merge_next(merge, &event))
        read_event(sayings, &event, mt_clock_ns(&clock, event.ticks));
    mt_merge_destroy(merge);
}

static uint64_t small_allocated(const struct mt_tally *tally)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < tally->places[0].n_rows; i++) {
        const struct mt_tally_row *row = &tally->places[0].rows[i];
        for (size_t j = 0; j < row->n_details; j++)
            if (strcmp(row->details[j].name, "heap blocks below 64 KiB") == 0)
                bytes += row->details[j].allocated_bytes;
    }
    return bytes;
}

static void check_small(const struct mt_tally *tally, const struct said *said)
{
    uint64_t small = small_allocated(tally);
    uint64_t labelled = said->labelled_bytes;
    if (said->small_bytes == MT_UNKNOWN)
        return;
    if (small > said->small_bytes)
        abort();
    if (labelled != MT_UNKNOWN &&
        small != (said->small_bytes > labelled ? said->small_bytes - labelled : 0))
        abort();
}

/* A moment of which the process said how large it was is shown as large, unless a picture of about
 * that size is shown as it was taken. */
static void check_saying(const struct mt_recording *recording, const struct said *said,
                         int knows_small)
{
    struct mt_tally *tally = NULL;
    const struct mt_moment moment = {.kind = MT_MOMENT_TIME, .time_ns = said->ns};
    if (mt_recording_tally(recording, &moment, &tally, NULL) < 0)
        return;
    if (tally->n_processes == 1 && said->looked != MT_UNKNOWN && tally->processes[0].is_carried &&
        tally->places[0].total_resident_bytes != said->looked / PAGE_BYTES * PAGE_BYTES)
        abort();
    if (tally->n_processes == 1 && knows_small)
        check_small(tally, said);
    mt_tally_destroy(tally);
}

static void check_sayings(const struct mt_recording *recording, int is_sampled)
{
    struct mt_record_file *file = NULL;
    struct sayings sayings;
    char path[128];
    snprintf(path, sizeof path, "%s/7-0.mtr", folder);
    if (mt_record_file_open(path, &file, NULL) < 0)
        return;
    read_sayings(file, &sayings);
    mt_record_file_close(file);
    for (size_t i = 0; i < sayings.n; i++)
        check_saying(recording, &sayings.items[i], is_sampled && !sayings.has_samples);
}

static void check_timelines(const struct mt_recording *recording)
{
    struct mt_timeline_point *points = NULL;
    struct mt_device_timeline *devices = NULL;
    struct mt_device_histories *histories = NULL;
    struct mt_error error = {.text = ""};
    size_t n = 0;
    if (mt_recording_timeline(recording, &points, &n, &error) < 0)
        abort();
    for (size_t i = 1; i < n; i++)
        if (points[i].time_ns < points[i - 1].time_ns)
            abort();
    mt_timeline_destroy(points);
    if (mt_recording_device_timelines(recording, &devices, &n, &error) < 0 ||
        mt_recording_device_histories(recording, &histories, &error) < 0)
        abort();
    mt_device_timelines_destroy(devices, n);
    mt_device_histories_destroy(histories);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_recording *recording = NULL;
    struct mt_error error = {.text = ""};
    if (length < 2)
        return 0;
    if (!folder[0])
        make_folder();
    write_files(data[0], data + 2, length - 2);
    int result = mt_recording_open(folder, &recording, &error);
    if (result < 0) {
        check_refusal(result, &error);
        return 0;
    }
    check_moment(recording, &(struct mt_moment){.kind = MT_MOMENT_PEAK});
    check_moment(recording, &(struct mt_moment){
                                .kind = data[1] % (MT_MOMENT_CATEGORY_PEAK + 1),
                                .category = data[1] / (MT_MOMENT_CATEGORY_PEAK + 1),
                                .time_ns = (uint64_t)data[1] * BEGIN_TICKS,
                            });
    if (!(data[0] & (HAS_FORK | HAS_EXEC | HAS_WATCH | IS_CUT_OFF)))
        check_sayings(recording, data[0] & IS_SAMPLED);
    check_timelines(recording);
    mt_recording_close(recording);
    return 0;
}
