/* SPDX-License-Identifier: MIT */
/* An open recording: its process images, each with its file, its timeline and its pictures.
 *
 * An image is what one exec started: a process that calls exec has several, a forked child has its
 * own. A process that the recorder was not in has one without a file. */
#ifndef MT_TALLY_IMAGE_H
#define MT_TALLY_IMAGE_H

#include <memtally/recording.h>

#include "recording/reader.h"
#include "tally/devices.h"
#include "tally/maps.h"
#include "tally/peaks.h"

struct mt_point {
    uint64_t ns; /* CLOCK_MONOTONIC */
    uint64_t resident_bytes;
};

struct mt_bytes {
    char *data;
    size_t length;
};

/* A complete picture. `ticks` orders it among its file's events; 0 for one from outside. */
struct mt_picture {
    uint64_t ns;
    uint64_t ticks;
    uint64_t pid; /* as written: 0 for the file's own process */
    enum mt_picture_reason reason;
    uint64_t resident_bytes; /* of its runs, less what is no memory of the process */
    uint64_t cost_ns;
    enum mt_picture_method method;
    int complete;
    struct mt_bytes text[MT_TEXT_MEMINFO + 1]; /* by enum mt_picture_text */
    struct mt_run_pages *runs;
    size_t n_runs;
    size_t image;          /* from here on by peaks.c */
    uint64_t others_bytes; /* of its memory what the kernel counts for other processes */
    uint64_t shared_bytes; /* what it shares with its family, with however many of them */
    int has_no_shares;     /* that they are others' is known, and not how many others there are */
    size_t last_sharing;   /* 1 + the last picture up to this one with others_bytes; 0: none */
    size_t next_sharing;   /* the first from this one on, else the number of pictures */
    uint64_t tree_bytes;   /* resident in the whole tree then, shared memory counted once */
    uint64_t tree_heap_bytes; /* the tree's heap in use then */
};

struct mt_image {
    struct mt_record_file *file; /* NULL: seen from outside only */
    struct mt_clock clock;
    uint64_t pid;
    uint64_t parent_pid;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t high_water_bytes; /* largest VmHWM seen; MT_UNKNOWN */
    uint32_t end_how;          /* enum mt_process_end; 0: not known */
    uint64_t end_value;
    int replaced;            /* by an exec */
    int watched;             /* seen from outside */
    uint64_t outside_reason; /* as in OUTSIDE_ONLY */
    char *command;
    char *end_text;
    struct mt_maps first_maps; /* before the first event */
    struct mt_point *points;   /* by time */
    size_t n_points;
    struct mt_picture *pictures; /* by time */
    size_t n_pictures;
    size_t parent; /* 1 + the image that it was forked from; 0: none is known (tree.c) */
    size_t root; /* the image that it was forked from, by whatever steps; else its own (forks.c) */
    int has_forked;
    uint64_t elders_end_ns; /* when the last of its family that are before it has ended; 0: none */
    uint64_t family_end_ns; /* of a root */
};

struct mt_machine_sample {
    uint64_t ns;
    uint32_t kind; /* enum mt_machine_text */
    struct mt_bytes text;
};

struct mt_recording {
    char *path;
    struct mt_record_file *watch; /* NULL where nobody watched */
    struct mt_clock watch_clock;
    uint64_t start_ns;
    uint64_t end_ns;
    struct mt_image *images; /* by start */
    size_t n_images;
    size_t *by_pid; /* indices of the images by process id, then start */
    size_t n_by_pid;
    struct mt_recording_mark *marks;
    size_t n_marks;
    struct mt_machine_sample *machine;
    size_t n_machine;
    struct mt_recording_damage damage;
    struct mt_peaks peaks;
    struct mt_devices devices;
};

/* Appends an image with nothing known of its memory; NULL where memory ran out (images.c). */
struct mt_image *mt_image_add(struct mt_recording *recording);

/* Reads the facts of one file's events into the recording (facts.c). The watch file's come last:
 * first which processes it saw, which makes images of those without a file, then, with the images
 * sorted and indexed anew, what it saw of them. */
int mt_facts_of_process(struct mt_recording *recording, struct mt_image *image);
int mt_facts_of_watched_processes(struct mt_recording *recording);
int mt_facts_of_watch(struct mt_recording *recording);

/* Makes by_pid anew (images.c). Returns 0 or MT_ENOMEM. */
int mt_images_index(struct mt_recording *recording);

/* The images of `pid`, oldest first, as indices; *n may be 0. Borrowed until the next
 * mt_images_index(). */
const size_t *mt_images_of(const struct mt_recording *recording, uint64_t pid, size_t *n);

/* The last image of `pid` that began before `ns`, else its first, NULL where there is none. */
struct mt_image *mt_image_at(const struct mt_recording *recording, uint64_t pid, uint64_t ns);

/* The last image of `pid` that began at `ns` or before; NULL where there is none. */
struct mt_image *mt_image_begun(const struct mt_recording *recording, uint64_t pid, uint64_t ns);

/* The last picture of an image up to `ns`, NULL where there is none; and the last resident size
 * that is known of it up to then, 0 where there is none (images.c). */
const struct mt_picture *mt_image_picture_before(const struct mt_image *image, uint64_t ns);
uint64_t mt_image_resident_at(const struct mt_image *image, uint64_t ns);

/* The mappings in the last picture that shows the image itself; without one, those that it began
 * with. mt_maps_finish() them. Returns 0 or MT_ENOMEM (images.c). */
int mt_image_last_maps(const struct mt_image *image, struct mt_maps *maps);

/* The size at the last of some points up to `ns`; 0 where there is none (images.c). */
uint64_t mt_points_at(const struct mt_point *points, size_t n, uint64_t ns);

/* Whether a process whose mappings are `maps` has the recording file of `image` mapped: it is that
 * process, or one that was forked from it. A program that was started by exec has another file or
 * none (images.c). */
int mt_image_is_mapped_in(const struct mt_image *image, const struct mt_bytes *maps);

/* The same for all images at once: the names of their files, for looking them up. */
struct mt_image_name {
    const char *name; /* without what follows the last dot; borrowed */
    size_t length;
    size_t image;
};

struct mt_image_names {
    struct mt_image_name *items; /* by name */
    size_t n;
};

/* names->items is owned by the caller (free()). Returns 0 or MT_ENOMEM. */
int mt_image_names_make(const struct mt_recording *recording, struct mt_image_names *names);

/* The next image whose file `maps` has, from byte *at on. Returns 0 behind the last. */
int mt_image_names_next(const struct mt_image_names *names, const struct mt_bytes *maps, size_t *at,
                        size_t *image);

/* CLOCK_MONOTONIC to time since the recording's start (recording.c). */
uint64_t mt_recording_time(const struct mt_recording *recording, uint64_t ns);

void mt_picture_finish(struct mt_picture *picture);

/* A figure of one of its texts, in bytes; MT_UNKNOWN where it is not there. */
uint64_t mt_picture_field(const struct mt_picture *picture, enum mt_picture_text kind,
                          const char *name);

#endif
