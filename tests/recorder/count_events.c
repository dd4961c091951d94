/* SPDX-License-Identifier: MIT */
/* Counts what a recording has: "ALLOC 60012 FREE 60003 lost 0 bad 0". For recordings of other
 * machines, whose programs cannot be asked. */
#include <stdio.h>

#include <memtally/error.h>

#include "recording/reader.h"

int main(int argc, char **argv)
{
    struct mt_record_file *file;
    struct mt_cursor cursor;
    struct mt_event event;
    struct mt_error error;
    size_t n_allocs = 0, n_frees = 0;
    if (argc != 2 || mt_record_file_open(argv[1], &file, &error) < 0) {
        fprintf(stderr, "count_events: %s\n", argc == 2 ? error.text : "usage: count_events FILE");
        return 1;
    }
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event)) {
        n_allocs += event.op == MT_EVENT_ALLOC;
        n_frees += event.op == MT_EVENT_FREE;
    }
    printf("ALLOC %zu FREE %zu lost %llu bad %zu\n", n_allocs, n_frees,
           (unsigned long long)file->header.events_lost, file->blocks_bad);
    mt_record_file_close(file);
    return 0;
}
