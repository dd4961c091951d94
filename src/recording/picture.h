/* SPDX-License-Identifier: MIT */
/* Pictures: which pages of which mapping are present in a process, written into a recording.
 * Preload-safe like writer.h. */
#ifndef MT_RECORDING_PICTURE_H
#define MT_RECORDING_PICTURE_H

#include "recording/writer.h"

/* Working memory of a picture; one per thread that takes pictures. */
#define MT_PICTURE_SCRATCH_BYTES 32768u

struct mt_picture_request {
    const char *process_directory; /* "/proc/self" or "/proc/PID" */
    uint64_t pid;                  /* 0: the process that the file is about */
    enum mt_picture_reason reason;
    uint64_t resident_bytes; /* as read just before */
    int avoid_scan;          /* do as on a kernel without PAGEMAP_SCAN */
    int shares_nothing;      /* it is no fork's parent or child: smaps_rollup, which takes 10 ms for
                                each GiB, would say nothing else than status */
    int counts_shared; /* it may share memory, and is so large that smaps_rollup would hold the
                          lock of its mappings for long: its anonymous pages that others have
                          are counted in pagemap, piece by piece */
    /* Between two scans, so that a thread that waits for the lock of the mappings gets it: Linux
     * lets a reader that comes back at once go first for 4 ms. NULL: there is no rest. */
    void (*rest)(void);
    void *scratch; /* MT_PICTURE_SCRATCH_BYTES */
};

struct mt_picture_result {
    int complete; /* the pages could be read and written */
    uint64_t cost_ns;
    enum mt_picture_method method;
};

/* Takes a picture and writes it. The process may run meanwhile; then the picture is skewed by what
 * changed. Without PAGEMAP_SCAN, pages of zeros that were only read count as present; the kernel
 * does not count them as resident. */
void mt_picture_take(struct mt_writer *writer, const struct mt_picture_request *request,
                     struct mt_picture_result *result);

/* Opens a file of a process's directory; the descriptor or a negated errno. */
int mt_open_of_process(const struct mt_record_os *os, const char *process_directory,
                       const char *name);

/* The second number of `process_directory`/statm in bytes, 0 where it cannot be read. */
uint64_t mt_resident_bytes(const struct mt_record_os *os, const char *process_directory,
                           uint64_t page_bytes);

#endif
