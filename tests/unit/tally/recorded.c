/* SPDX-License-Identifier: MIT */
#include "recorded.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/recording.h>

#include "watch/watch.h"

char recorded_directory[64];

int recorded_setup(void **state)
{
    (void)state;
    strcpy(recorded_directory, "/tmp/memtally-tally-XXXXXX");
    return mkdtemp(recorded_directory) ? 0 : -1;
}

int recorded_teardown(void **state)
{
    (void)state;
    DIR *folder = opendir(recorded_directory);
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    return rmdir(recorded_directory);
}

void recorded_begin(struct recorded *recorded, const char *name)
{
    char path[128];
    struct mt_file_header *header = &recorded->header;
    if (!header->kind)
        header->kind = MT_FILE_PROCESS;
    if (!header->page_bytes)
        header->page_bytes = PAGE;
    header->clock_kind = MT_CLOCK_MONOTONIC;
    header->start_ticks = header->start_monotonic_ns = recorded->ns;
    snprintf(path, sizeof path, "%s/%s.mtr", recorded_directory, name);
    assert_int_equal(mt_file_create(&recorded->file, &mt_watch_os, path, header), 0);
    mt_writer_init(&recorded->writer, &recorded->file, 0, header->pid);
}

void recorded_end(struct recorded *recorded, uint64_t end_ns)
{
    mt_writer_finish(&recorded->writer);
    recorded->file.header->end_ticks = recorded->file.header->end_monotonic_ns = end_ns;
    recorded->file.header->end_kind = end_ns ? MT_END_EXIT : MT_END_UNKNOWN;
    mt_file_close(&recorded->file);
}

void recorded_event(struct recorded *recorded, enum mt_event_op op, const uint64_t *fields,
                    size_t n_fields)
{
    mt_write_event(&recorded->writer, op, recorded->ns, fields, n_fields);
}

void recorded_alloc(struct recorded *recorded, enum mt_event_op op, uint64_t address, uint64_t size,
                    uint64_t stack)
{
    struct mt_writer *writer = &recorded->writer;
    assert_true(mt_writer_room(writer, 64, recorded->ns));
    uint8_t *at = mt_event_begin(writer, op, recorded->ns);
    at = mt_put_heap_address(writer, at, address);
    at = mt_varint_put(at, size);
    mt_event_end(writer, mt_varint_put(at, stack));
}

void recorded_free(struct recorded *recorded, enum mt_event_op op, uint64_t address)
{
    struct mt_writer *writer = &recorded->writer;
    assert_true(mt_writer_room(writer, 64, recorded->ns));
    uint8_t *at = mt_event_begin(writer, op, recorded->ns);
    mt_event_end(writer, mt_put_heap_address(writer, at, address));
}

uint64_t recorded_string(struct recorded *recorded, const char *text)
{
    return mt_write_string(&recorded->writer, recorded->ns, text, strlen(text));
}

void recorded_text(struct recorded *recorded, enum mt_machine_text kind, const char *text)
{
    mt_write_bytes(&recorded->writer, MT_EVENT_MACHINE, recorded->ns, kind, text, strlen(text));
}

static void put_text(struct recorded *recorded, enum mt_picture_text kind, const char *text)
{
    if (text)
        mt_write_bytes(&recorded->writer, MT_EVENT_PICTURE_TEXT, recorded->ns, kind, text,
                       strlen(text));
}

void recorded_picture(struct recorded *recorded, const struct recorded_picture *picture)
{
    EVENT(recorded, PICTURE_BEGIN, picture->pid, picture->reason, recorded->ns,
          picture->resident_bytes);
    put_text(recorded, MT_TEXT_MAPS, picture->maps);
    uint64_t last = 0;
    for (size_t i = 0; i < picture->n_runs; i++) {
        const uint64_t *run = picture->runs[i];
        EVENT(recorded, PICTURE_RUNS, 1, run[0] - last, run[1], run[2]);
        last = run[0] + run[1];
    }
    put_text(recorded, MT_TEXT_ROLLUP, picture->rollup);
    put_text(recorded, MT_TEXT_STATUS, picture->status);
    put_text(recorded, MT_TEXT_MEMINFO, picture->meminfo);
    EVENT(recorded, PICTURE_END, 1, 1000, MT_METHOD_SCAN);
}

struct mt_recording *recorded_open(void)
{
    struct mt_recording *recording;
    struct mt_error error;
    if (mt_recording_open(recorded_directory, &recording, &error) < 0)
        fail_msg("%s", error.text);
    return recording;
}

struct mt_tally *recorded_tally(enum mt_moment_kind kind, uint64_t time_ns)
{
    const struct mt_moment moment = {kind, time_ns};
    struct mt_recording *recording = recorded_open();
    struct mt_tally *tally;
    struct mt_error error;
    if (mt_recording_tally(recording, &moment, &tally, &error) < 0)
        fail_msg("%s", error.text);
    mt_recording_close(recording);
    assert_true(mt_tally_adds_up(tally));
    return tally;
}

static const struct mt_tally_detail *detail_of(const struct mt_tally_place *place,
                                               enum mt_category category, const char *name)
{
    const struct mt_tally_row *row = mt_tally_row_of(place, category);
    for (size_t i = 0; row && i < row->n_details; i++)
        if (strcmp(row->details[i].name, name) == 0)
            return &row->details[i];
    return NULL;
}

uint64_t resident_of(const struct mt_tally_place *place, enum mt_category category,
                     const char *name)
{
    const struct mt_tally_detail *detail = detail_of(place, category, name);
    return detail ? detail->resident_bytes : 0;
}

uint64_t allocated_of(const struct mt_tally_place *place, enum mt_category category,
                      const char *name)
{
    const struct mt_tally_detail *detail = detail_of(place, category, name);
    return detail ? detail->allocated_bytes : 0;
}
