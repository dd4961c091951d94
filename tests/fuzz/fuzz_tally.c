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

#include <memtally/recording.h>
#include <memtally/tally.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

#define BEGIN_TICKS 1000
#define END_TICKS   1000000000
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
    check_timelines(recording);
    mt_recording_close(recording);
    return 0;
}
