/* SPDX-License-Identifier: MIT */
/* The tally: bytes per place and category at one moment, each entry with its provenance.
 *
 * A measurement and a prediction are both tallies, so that comparing is subtraction. In a
 * measurement, the rows' resident bytes and the unattributed bytes of a place add up to its total
 * resident bytes exactly.
 *
 * Sizes are in bytes. A size that is not known is MT_UNKNOWN, never 0. */
#ifndef MEMTALLY_TALLY_H
#define MEMTALLY_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/category.h>
#include <memtally/provenance.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

enum mt_tally_kind { MT_TALLY_MEASUREMENT, MT_TALLY_ESTIMATE };

enum mt_moment_kind {
    MT_MOMENT_PEAK,
    MT_MOMENT_STEADY,
    MT_MOMENT_EXIT,
    MT_MOMENT_TIME,
    MT_MOMENT_HEAP_PEAK,
    MT_MOMENT_CATEGORY_PEAK
};

/* The moment that a tally is asked for; "size" is the resident size, summed over the processes of
 * the tree with what forks share counted once.
 *
 * PEAK is the largest size that a picture, a look or a sample says. Of moments of about that size
 * (within a 64th) it is one at which about the most of the heap was in use: the largest picture of
 * such a moment, or the moment itself where no picture was taken near it. What the kernel counted
 * beyond it is in `peak_resident_bytes`. STEADY is the picture of the second half of the recording
 * whose size is nearest to the median size of that half, by time; of several the last. Without one
 * in the second half, of the first. EXIT is the picture that a process took as it exited, of a
 * recorded one without such a picture the last time that its size is known, and of several
 * processes the last of these. TIME is `time_ns` after the start of the recording; MT_EARG past its
 * end. HEAP_PEAK is when most heap blocks were in use, CATEGORY_PEAK when most was allocated for
 * `category`, both by events.
 *
 * A process without a picture of the moment is shown by another of its pictures, carried to the
 * moment by its events, or by its events alone. `time_ns` is read for TIME only, `category` for
 * CATEGORY_PEAK only. */
struct mt_moment {
    enum mt_moment_kind kind;
    uint64_t time_ns;
    enum mt_category category;
};

/* When a moment was and what was largest then: of PEAK the resident size, of HEAP_PEAK the heap in
 * use, of CATEGORY_PEAK what was allocated for the category. `bytes` is MT_UNKNOWN where nothing
 * says. */
struct mt_tally_moment {
    struct mt_moment moment;
    uint64_t time_ns;
    uint64_t bytes;
};

/* One part of a row: a file, a buffer type, a library, an arena. Of an estimate also what it rests
 * on, the rule that gave it ("llama.cpp/kv_cache") and its bounds; of a measurement these are
 * MT_TERM_NONE, NULL and MT_UNKNOWN. */
struct mt_tally_detail {
    const char *name;
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
    uint64_t count;
    enum mt_provenance provenance;
    const char *rule;
    uint64_t low_bytes;
    uint64_t high_bytes;
    enum mt_term_kind kind;
};

/* One category at one place. A row's figures are the sums of its details'; its allocated bytes are
 * unknown if any of them is. `provenance` is the least sure of its details'. `count` is the number
 * of blocks, buffers or mappings; 0 where they are not counted. `low_bytes` and `high_bytes` bound
 * an estimate and are MT_UNKNOWN in a measurement. Details are sorted by resident bytes, largest
 * first. */
struct mt_tally_row {
    enum mt_category category;
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
    uint64_t count;
    enum mt_provenance provenance;
    size_t n_details;
    const struct mt_tally_detail *details;
};

/* One place: "host" or "gpu:<uuid>".
 * Invariant of a measurement, to the byte:
 *   sum(rows[i].resident_bytes) + unattributed_bytes == total_resident_bytes
 * where a row whose resident bytes are MT_UNKNOWN counts nothing: what it has lies in other rows;
 * and, of one process, total_resident_bytes == the present pages of its picture that the kernel
 * counts as resident: not those of devices, of hugetlbfs, or of the kernel's own [vvar].
 * For a tree it is the sum over its processes less what is counted for an earlier one already; a
 * page that one process maps twice counts twice, as in the kernel's Rss. `picture_skew_bytes` is
 * the resident size that the kernel stated beside the picture (Rss of smaps_rollup) less the
 * picture's own total; 0 for a process that did not run meanwhile. For a tree it is the sum over
 * its processes. `skew_known` is 0 where one of the kernel's figures could not be read, and where
 * events lead to the moment: it has no picture then.
 * `peak_resident_bytes` is the largest resident size that anything says: VmHWM, a look, a sample;
 * of a tree the largest sum over its processes at a time, shared pages counted in each.
 * `capacity_bytes` is the machine's memory.
 *
 * In an estimate the rows' allocated bytes add up to `total_allocated_bytes`, which is unknown in a
 * place without rows and in a measurement, as are its bounds; what is resident or unattributed is
 * unknown in an estimate. */
struct mt_tally_place {
    const char *place;
    uint64_t total_resident_bytes;
    uint64_t peak_resident_bytes;
    uint64_t capacity_bytes;
    uint64_t unattributed_bytes;
    int64_t picture_skew_bytes;
    int skew_known;
    size_t n_rows;
    const struct mt_tally_row *rows;
    uint64_t total_allocated_bytes;
    uint64_t total_low_bytes;
    uint64_t total_high_bytes;
    const char *device_name; /* of a device that was recorded: "NVIDIA L40S"; else NULL */
    const char *uuid;        /* likewise: "GPU-01234567-89ab-cdef-0123-456789abcdef" */
    uint64_t others_bytes;   /* likewise: used by other programs, which is no part of the total;
                                MT_UNKNOWN where the driver does not say whose memory is whose */
    int is_told;             /* nobody measured it: the total is what words on it add up to, and
                                MT_UNKNOWN where one of its rows is */
};

/* One process of the recorded tree that lived at the moment. What exec puts in its place is another
 * one of the same pid. `end` says how it ended: "exited 0", "killed by SIGKILL", "exited" and
 * "ended" where the status or more is not known, "replaced by exec", "running" when the recording
 * ended, "end not recorded". `observed` is "recorder" where the preloaded recorder was in it, else
 * "outside" with the reason in `observed_reason`. Its picture is the one of the moment, else the
 * nearest in time of those of about the size that it had, else the nearest in size, of a fork that
 * was never pictured one of its parent's. `picture_time_ns` is when that was taken, counted from
 * the start of the recording, MT_UNKNOWN where there is none. `is_carried` is set where the picture
 * is not of the moment and something happened in between: parts of its places are then inferred.
 * Their total is what the kernel said of the moment, where it said something. It has no place where
 * nothing at all is known of its memory. `peak_caught_bytes` is the size of its largest picture. */
struct mt_tally_process {
    uint64_t pid;
    uint64_t parent_pid;
    const char *command;
    const char *end;
    const char *observed;
    const char *observed_reason;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t picture_time_ns;
    uint64_t peak_resident_bytes;
    uint64_t peak_caught_bytes;
    uint64_t pictures_taken;
    uint64_t pictures_skipped;
    uint64_t swap_bytes;
    size_t n_places;
    const struct mt_tally_place *places;
    int is_carried;
};

/* What the machine said nearest to the moment of the tally; MT_UNKNOWN where it said nothing.
 * `sample_time_ns` is when /proc/meminfo was read: the picture's own, else the watcher's. */
struct mt_tally_machine {
    uint64_t sample_time_ns;
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint64_t memory_available_bytes;
    uint64_t page_cache_bytes;
    uint64_t swap_total_bytes;
    uint64_t swap_used_bytes;
    uint64_t other_processes_resident_bytes;
    int cgroup_version; /* 1, 2, or 0 where there is none */
    uint64_t cgroup_limit_bytes;
    uint64_t cgroup_usage_bytes;
    uint64_t cgroup_peak_bytes;
    double pressure_some_avg10_percent; /* negative where unknown */
    double pressure_full_avg10_percent;
};

/* A tally of a process tree. `places` covers the whole tree with shared pages counted once,
 * `shared_rule` says how; `processes[i].places` has each process by itself. Allocated bytes of a
 * tree are the sum over its processes. `notes` are sentences about what could not be seen or was
 * skipped. */
struct mt_tally {
    enum mt_tally_kind kind;
    struct mt_moment moment;
    uint64_t moment_ns;
    const char *engine_name;    /* NULL where unknown */
    const char *engine_version; /* NULL where unknown */
    const char *model_path;     /* NULL where unknown */
    const char *shared_rule;
    size_t n_places;
    const struct mt_tally_place *places;
    size_t n_processes;
    const struct mt_tally_process *processes;
    size_t n_other_processes; /* did not live at the moment; they have no places */
    const struct mt_tally_process *other_processes;
    struct mt_tally_machine machine;
    size_t n_notes;
    const char *const *notes;
    size_t n_moments; /* the peaks of the recording: resident, heap, each category */
    const struct mt_tally_moment *moments;
};

/* The name of a kind of moment: "peak", "steady", "exit", "time", "heap-peak", "category-peak".
 * Borrowed, static. Any thread. */
const char *mt_moment_name(enum mt_moment_kind kind);

/* The name of a moment: that of its kind, but for the peak of a category, which is
 * "kv_cache-peak" and the like. Borrowed, static. Any thread. */
const char *mt_moment_text(const struct mt_moment *moment);

/* The row of `category` in `place`, or NULL where it has none. Borrowed from the tally. */
const struct mt_tally_row *mt_tally_row_of(const struct mt_tally_place *place,
                                           enum mt_category category);

/* Whether the equations stated at struct mt_tally_place hold for every place of the tally and of
 * its processes: of a measurement those of resident bytes, of an estimate those of allocated ones.
 * Any thread. */
int mt_tally_adds_up(const struct mt_tally *tally);

/* What an engine says, or a rule gives, of memory that a measurement has without knowing what it is
 * for. `place` is a tally's or another one of a device's ("gpu:?"), which is then a place of words
 * only. Bytes that are MT_UNKNOWN say that nobody knows. */
struct mt_tally_word {
    const char *place;
    enum mt_category category;
    const char *name;
    uint64_t bytes;
    enum mt_provenance provenance;
};

/* Moves so many bytes of the place into the row of `category`: out of what is unattributed, then
 * out of the heap. The total stays; where less is there than the word says, so much is moved, and
 * the row's allocated bytes are the word's. What the processes have by themselves is left as it was
 * seen. `tally` is a recording's, not an estimate. One thread at a time.
 * Errors: MT_EARG, MT_ENOMEM. */
int mt_tally_tell(struct mt_tally *tally, const struct mt_tally_word *word, struct mt_error *error);

/* Frees a tally and all that it points to. Takes NULL. */
void mt_tally_destroy(struct mt_tally *tally);

#ifdef __cplusplus
}
#endif
#endif
