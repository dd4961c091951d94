/* SPDX-License-Identifier: MIT */
/* Recordings: what a program did with its memory, on disk, and how to read it.
 *
 * A recording is a folder with one file for each process image and one file of what was seen from
 * outside. docs/FORMATS.md has the grammar. A recording object is read-only once open and may be
 * used from several threads at a time. */
#ifndef MEMTALLY_RECORDING_H
#define MEMTALLY_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error;  /* <memtally/error.h> */
struct mt_moment; /* both of <memtally/tally.h> */
struct mt_tally;

struct mt_recording;

/* Opens the recording folder (or single recording file) `path` and reads all of it into facts; it
 * may still be written. The time of a recording starts when its watcher did, or with its first
 * process where the watcher's file is missing. Damaged blocks are skipped and counted; see
 * mt_recording_damage(). On success *recording is owned by the caller; close it with
 * mt_recording_close(). Errors: MT_ENOTFOUND (no such path, or no recording in it), MT_EFORMAT
 * (foreign file), MT_EVERSION (written by a newer memtally), MT_ETRUNCATED, MT_ECORRUPT (nothing
 * readable left), MT_EPERM, MT_EIO, MT_ENOMEM; error->offset is the position in the file that
 * error->text names. */
int mt_recording_open(const char *path, struct mt_recording **recording, struct mt_error *error);

/* Closes a recording. Takes NULL. */
void mt_recording_close(struct mt_recording *recording);

/* What of a recording could not be read. */
struct mt_recording_damage {
    uint64_t files_unreadable;
    uint64_t blocks_bad;  /* failed their checksum or their grammar */
    uint64_t blocks_open; /* not finished when the process ended; read as far as written */
    uint64_t events_lost; /* the recorder itself said that it had to drop them */
    char first[544];      /* file and offset of the first bad block, of a file that could not be
                             read also why, such as another version; "" where there is none */
};

/* Writes what could not be read of an open recording into *damage. Any thread. */
void mt_recording_damage(const struct mt_recording *recording, struct mt_recording_damage *damage);

/* The tally of the recorded process tree at `moment`. On success *tally is owned by the caller;
 * free it with mt_tally_destroy().
 * Errors: MT_ENOTFOUND (no process has a picture of its pages), MT_EARG, MT_ENOMEM. */
int mt_recording_tally(const struct mt_recording *recording, const struct mt_moment *moment,
                       struct mt_tally **tally, struct mt_error *error);

/* One point of the timeline of the whole tree: resident bytes summed over its processes. */
struct mt_timeline_point {
    uint64_t time_ns; /* since the start of the recording */
    uint64_t resident_bytes;
};

/* The timeline, oldest first. *points is owned by the caller; free it with
 * mt_timeline_destroy(). Errors: MT_ENOMEM. */
int mt_recording_timeline(const struct mt_recording *recording, struct mt_timeline_point **points,
                          size_t *n_points, struct mt_error *error);

/* Frees a timeline. Takes NULL. */
void mt_timeline_destroy(struct mt_timeline_point *points);

/* What was allocated on one device over time by the program's own calls, summed over its
 * processes: `resident_bytes` of a point is from then on. `place` is as in a tally. */
struct mt_device_timeline {
    char place[64];
    struct mt_timeline_point *points;
    size_t n_points;
};

/* The timelines of the recording's devices, in the order of a tally's places. *timelines is owned
 * by the caller; free it with mt_device_timelines_destroy(). Errors: MT_ENOMEM. */
int mt_recording_device_timelines(const struct mt_recording *recording,
                                  struct mt_device_timeline **timelines, size_t *n,
                                  struct mt_error *error);

/* Frees `n` timelines. Takes NULL. */
void mt_device_timelines_destroy(struct mt_device_timeline *timelines, size_t n);

/* Marks that programs set (scope.h) and phases, oldest first; borrowed from the recording. */
struct mt_recording_mark {
    uint64_t time_ns;
    uint64_t pid;
    const char *name;
};

/* Points *marks at the recording's marks, valid until it is closed, and returns how many they are.
 * Any thread. */
size_t mt_recording_marks(const struct mt_recording *recording,
                          const struct mt_recording_mark **marks);

/* Live bytes by call stack at a moment: of the host's heap and mappings, and of what the driver of
 * a device gave out. Frames are innermost first. `complete` is 0 for a stack that could not be
 * followed to its root. Sampled small blocks are scaled up to the bytes that they stand for. */
struct mt_stack_entry {
    uint64_t bytes;
    uint64_t count;
    int complete;
    size_t n_frames;
    const char *const *frames;
    const char *place; /* as in a tally: "gpu:GPU-01234567-89ab-cdef-0123-456789abcdef", "gpu:0";
                          NULL: host */
};

struct mt_stack_list {
    uint64_t sampled_interval_bytes; /* 0 where every block was recorded */
    size_t n_entries;
    const struct mt_stack_entry *entries; /* sorted by bytes, largest first */
};

/* The stacks at `moment`, over all processes; at most `limit` entries, 0 for all. At the peak a
 * device is shown at its own peak, as in a tally. *stacks is owned by the caller; free it with
 * mt_stack_list_destroy(). Errors: MT_ENOTFOUND, MT_ENOMEM. */
int mt_recording_stacks(const struct mt_recording *recording, const struct mt_moment *moment,
                        size_t limit, struct mt_stack_list **stacks, struct mt_error *error);

/* Frees a list of stacks. Takes NULL. */
void mt_stack_list_destroy(struct mt_stack_list *stacks);

/* Finds the folder that process `pid` or a descendant is recorded into now. Errors: MT_ENOTFOUND
 * (none is, or there is no such process), MT_EARG (no room for the path), MT_EPERM, MT_ENOMEM. */
int mt_recording_of_process(int pid, char *directory, size_t capacity, struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
