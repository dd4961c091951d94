/* SPDX-License-Identifier: MIT */
/* What two observers of one program say, a line for each thing that they saw of devices, in order:
 *
 *   observers account FILE     the account of its rehearsal: "device PLACE TOTAL FREE", then an
 *                              event a line: "alloc PID PLACE BYTES OBJECT NAME"
 *   observers recording FILE   what the recorder wrote of one process: the fields of its events
 *
 * The one is written by the pretended driver, the other by the recorder over it. */
#include <fcntl.h>
#include <inttypes.h>
#include <memtally/error.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recording/reader.h"
#include "rehearse/account.h"

static const char *const account_words[] = {"none",   "alloc", "free", "usage",
                                            "refuse", "mark",  "note", "end"};

static int print_account(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 1;
    const struct mt_account *account = mmap(NULL, sizeof *account, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (account == MAP_FAILED || memcmp(account->magic, MT_ACCOUNT_MAGIC, 8) != 0)
        return 1;
    for (uint32_t i = 0; i < account->n_devices && i < MT_ACCOUNT_DEVICES_MAX; i++)
        printf("device %u %" PRIu64 " %" PRIu64 "\n", i, account->device[i].total_bytes,
               account->device[i].free_bytes);
    for (uint64_t i = 0; i < account->n_events && i < MT_ACCOUNT_EVENTS_MAX; i++) {
        const struct mt_account_event *event = &account->event[i];
        if (event->kind <= MT_ACCOUNT_END)
            printf("%s %u %d %" PRIu64 " %" PRIx64 " %s\n", account_words[event->kind], event->pid,
                   event->place == MT_ACCOUNT_HOST ? -1 : (int)event->place, event->bytes,
                   event->object, event->name);
    }
    return 0;
}

static const char *word_of(uint8_t op)
{
    switch (op) {
#define WORD(NAME, value, fields)                                                                  \
    case value:                                                                                    \
        return #NAME;
        MT_EVENT_LIST(WORD)
    default:
        return "?";
    }
}

static int is_of_device(uint8_t op)
{
    return op >= MT_EVENT_DEVICE && op <= MT_EVENT_DEVICE_OTHERS;
}

static int print_recording(const char *path)
{
    struct mt_record_file *file;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_merge *merge;
    struct mt_event event;
    if (mt_record_file_open(path, &file, &error) < 0 || mt_merge_create(file, &merge) < 0)
        return 1;
    while (mt_merge_next(merge, &event)) {
        if (!is_of_device(event.op))
            continue;
        printf("%s", word_of(event.op));
        for (size_t i = 0; i < 5; i++)
            printf(" %" PRIu64, event.field[i]);
        printf("\n");
    }
    mt_merge_destroy(merge);
    mt_record_file_close(file);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    return strcmp(argv[1], "account") == 0 ? print_account(argv[2]) : print_recording(argv[2]);
}
