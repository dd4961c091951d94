/* SPDX-License-Identifier: MIT */
/* Opening a recording folder: which files it holds, and which process images they make. */
#include <memtally/error.h>
#include <memtally/recording.h>
#include <memtally/units.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "tally/image.h"

static int has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name);
    size_t tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

/* `what` begins with the file's path. */
static void note_damage(struct mt_recording *recording, const char *what, uint64_t offset)
{
    struct mt_recording_damage *damage = &recording->damage;
    if (damage->first[0])
        return;
    if (offset == MT_NO_OFFSET)
        snprintf(damage->first, sizeof damage->first, "%s", what);
    else
        snprintf(damage->first, sizeof damage->first, "%s at byte %" PRIu64, what, offset);
}

static void count_damage(struct mt_recording *recording, const struct mt_record_file *file)
{
    struct mt_recording_damage *damage = &recording->damage;
    damage->blocks_bad += file->blocks_bad;
    damage->events_lost += file->header.events_lost;
    if (file->blocks_bad)
        note_damage(recording, file->path, file->first_bad_offset);
}

/* A forked child lived before its first event, when its file began. */
static void find_fork(struct mt_image *image)
{
    const struct mt_file_header *header = &image->file->header;
    if (!(header->flags & MT_FILE_FORKED) || !header->fork_ticks ||
        header->fork_ticks >= header->start_ticks)
        return;
    double before = (double)(header->start_ticks - header->fork_ticks) * image->clock.ns_per_tick;
    if (before < (double)image->start_ns)
        image->start_ns -= (uint64_t)before;
}

static int add_image(struct mt_recording *recording, struct mt_record_file *file)
{
    struct mt_image *image = mt_image_add(recording);
    if (!image)
        return MT_ENOMEM;
    image->file = file;
    image->pid = file->header.pid;
    image->parent_pid = file->header.parent_pid;
    image->start_ns = file->header.start_monotonic_ns;
    image->end_ns = file->header.end_monotonic_ns;
    mt_clock_of_file(file, &image->clock);
    find_fork(image);
    if (!image->end_ns)
        image->end_ns = mt_clock_ns(&image->clock, file->last_ticks);
    return 0;
}

/* Takes one file in. A file that cannot be read is counted; the others still serve. */
static int take_file(struct mt_recording *recording, const char *path, struct mt_error *error)
{
    struct mt_record_file *file;
    int result = mt_record_file_open(path, &file, error);
    if (result == MT_ENOMEM)
        return result;
    if (result < 0) {
        recording->damage.files_unreadable++;
        note_damage(recording, error && error->text[0] ? error->text : path,
                    error ? error->offset : MT_NO_OFFSET);
        return result;
    }
    count_damage(recording, file);
    if (file->header.kind == MT_FILE_WATCH && !recording->watch) {
        recording->watch = file;
        mt_clock_of_file(file, &recording->watch_clock);
        return 0;
    }
    if (file->header.kind != MT_FILE_PROCESS) {
        mt_record_file_close(file);
        return 0;
    }
    result = add_image(recording, file);
    if (result < 0)
        mt_record_file_close(file);
    return result;
}

static int is_recording(const struct dirent *entry)
{
    return has_suffix(entry->d_name, ".mtr") || has_suffix(entry->d_name, ".mtz");
}

/* If a file was packed and not yet removed, the packed one is taken: names sort so that it comes
 * right behind. */
static int is_packed_twin(const char *name, const char *next)
{
    size_t length = strlen(name);
    return length == strlen(next) && has_suffix(name, ".mtr") && has_suffix(next, ".mtz") &&
           strncmp(name, next, length - 4) == 0;
}

/* Takes the files in the order of their names; *taken is how many could be read, *error what was
 * wrong with the first of the others. */
static int take_entries(struct mt_recording *recording, struct dirent *const *entries, size_t n,
                        size_t *taken, struct mt_error *error)
{
    *taken = 0;
    for (size_t i = 0; i < n; i++) {
        char file[PATH_MAX];
        struct mt_error one = {0};
        if (i + 1 < n && is_packed_twin(entries[i]->d_name, entries[i + 1]->d_name))
            continue;
        snprintf(file, sizeof file, "%s/%s", recording->path, entries[i]->d_name);
        int result = take_file(recording, file, &one);
        if (result == MT_ENOMEM)
            return result;
        *taken += result == 0;
        if (result < 0 && !error->code)
            *error = one;
    }
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int take_folder(struct mt_recording *recording, const char *path, struct mt_error *error)
{
    struct dirent **entries;
    struct mt_error first = {0};
    size_t taken;
    int n = scandir(path, &entries, is_recording, by_name);
    if (n < 0)
        return mt_fail_errno(error, errno, "cannot read the folder %s", path);
    int result = take_entries(recording, entries, (size_t)n, &taken, &first);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    if (result < 0)
        return mt_fail(error, result, MT_NO_OFFSET, "%s: out of memory", path);
    if (n == 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: no recording in this folder ('memtally run -o DIR -- CMD' makes one)",
                       path);
    if (!taken)
        *error = first;
    return taken ? 0 : first.code;
}

static int by_start(const void *a, const void *b)
{
    const struct mt_image *x = a;
    const struct mt_image *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int point_by_time(const void *a, const void *b)
{
    const struct mt_point *x = a;
    const struct mt_point *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int picture_by_time(const void *a, const void *b)
{
    const struct mt_picture *x = a;
    const struct mt_picture *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int mark_by_time(const void *a, const void *b)
{
    const struct mt_recording_mark *x = a;
    const struct mt_recording_mark *y = b;
    return x->time_ns < y->time_ns ? -1 : x->time_ns > y->time_ns;
}

static void sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    if (n)
        qsort(items, n, size, compare);
}

/* An image that another of the same process follows was replaced by exec, unless the process ended
 * and its id was used again. It ends before the other begins: no process has both at a time. */
static void find_replaced(struct mt_recording *recording)
{
    for (size_t i = 0; i + 1 < recording->n_by_pid; i++) {
        struct mt_image *image = &recording->images[recording->by_pid[i]];
        const struct mt_image *next = &recording->images[recording->by_pid[i + 1]];
        if (next->pid != image->pid)
            continue;
        image->replaced = !image->end_how;
        if (image->replaced || image->end_ns >= next->start_ns)
            image->end_ns = next->start_ns > image->start_ns ? next->start_ns - 1 : image->start_ns;
    }
}

static const char *signal_name(uint64_t signal)
{
    const char *name = signal < 65 ? sigabbrev_np((int)signal) : NULL;
    return name ? name : "?";
}

static int saw_the_end(const struct mt_record_file *watch)
{
    return watch && watch->header.end_kind == MT_END_EXIT;
}

static char *describe_end(const struct mt_recording *recording, const struct mt_image *image)
{
    char text[64];
    if (image->replaced)
        snprintf(text, sizeof text, "replaced by exec");
    else if (image->end_how == MT_PROCESS_EXITED)
        snprintf(text, sizeof text, "exited %" PRIu64, image->end_value);
    else if (image->end_how == MT_PROCESS_KILLED)
        snprintf(text, sizeof text, "killed by SIG%s", signal_name(image->end_value));
    else if (image->file && image->file->header.end_kind == MT_END_EXIT)
        snprintf(text, sizeof text, "exited");
    else if (image->end_how == MT_PROCESS_GONE)
        snprintf(text, sizeof text, "ended");
    else if (image->watched && saw_the_end(recording->watch))
        snprintf(text, sizeof text, "running");
    else
        snprintf(text, sizeof text, "end not recorded");
    return strdup(text);
}

/* If nobody saw a process end, takes the last that is known of it. */
static void find_end(const struct mt_recording *recording, struct mt_image *image)
{
    int ended = image->end_how || (image->file && image->file->header.end_kind == MT_END_EXIT);
    if (image->replaced)
        return;
    for (size_t i = 0; i < image->n_points; i++)
        if (image->points[i].ns > image->end_ns)
            image->end_ns = image->points[i].ns;
    if (!ended && image->watched && recording->watch) {
        uint64_t last = mt_clock_ns(&recording->watch_clock, recording->watch->last_ticks);
        if (last > image->end_ns)
            image->end_ns = last;
    }
    if (image->end_ns < image->start_ns)
        image->end_ns = image->start_ns;
}

static void measure_picture(struct mt_picture *picture, uint64_t page_bytes)
{
    uint64_t total = 0;
    for (size_t i = 0; i < picture->n_runs; i++)
        total += picture->runs[i].n_pages * page_bytes;
    picture->resident_bytes = total;
}

static int finish_image(struct mt_recording *recording, struct mt_image *image)
{
    sort(image->points, image->n_points, sizeof *image->points, point_by_time);
    sort(image->pictures, image->n_pictures, sizeof *image->pictures, picture_by_time);
    const struct mt_record_file *file = image->file ? image->file : recording->watch;
    for (size_t i = 0; i < image->n_pictures; i++)
        measure_picture(&image->pictures[i], file->header.page_bytes);
    find_end(recording, image);
    if (!image->command)
        image->command = strdup("?");
    image->end_text = describe_end(recording, image);
    return image->command && image->end_text ? 0 : MT_ENOMEM;
}

/* The images by start, and the index by process id. */
static int order_images(struct mt_recording *recording)
{
    sort(recording->images, recording->n_images, sizeof *recording->images, by_start);
    return mt_images_index(recording);
}

static int read_facts(struct mt_recording *recording)
{
    int result = order_images(recording);
    for (size_t i = 0; i < recording->n_images && result == 0; i++)
        result = mt_facts_of_process(recording, &recording->images[i]);
    if (recording->watch && result == 0)
        result = mt_facts_of_watched_processes(recording);
    if (result == 0)
        result = order_images(recording);
    if (recording->watch && result == 0)
        result = mt_facts_of_watch(recording);
    if (result < 0)
        return result;
    find_replaced(recording);
    for (size_t i = 0; i < recording->n_images && result == 0; i++)
        result = finish_image(recording, &recording->images[i]);
    return result;
}

/* A recording begins when the watcher began it, or without one with its first process. The start
 * times that the kernel gives are rounded down and may lie before that. */
static void find_extent(struct mt_recording *recording)
{
    recording->start_ns = recording->watch      ? recording->watch->header.start_monotonic_ns
                          : recording->n_images ? recording->images[0].start_ns
                                                : 0;
    recording->end_ns = recording->start_ns;
    for (size_t i = 0; i < recording->n_images; i++) {
        struct mt_image *image = &recording->images[i];
        if (image->start_ns < recording->start_ns)
            image->start_ns = recording->start_ns;
        if (image->end_ns < image->start_ns)
            image->end_ns = image->start_ns;
        if (image->end_ns > recording->end_ns)
            recording->end_ns = image->end_ns;
    }
    for (size_t i = 0; i < recording->n_marks; i++)
        recording->marks[i].time_ns = mt_recording_time(recording, recording->marks[i].time_ns);
    sort(recording->marks, recording->n_marks, sizeof *recording->marks, mark_by_time);
}

int mt_recording_open(const char *path, struct mt_recording **recording, struct mt_error *error)
{
    struct mt_error own;
    struct stat status;
    if (!error)
        error = &own;
    if (stat(path, &status) < 0)
        return mt_fail_errno(error, errno, "cannot open %s", path);
    struct mt_recording *made = calloc(1, sizeof *made);
    int result = made && (made->path = strdup(path)) ? 0 : MT_ENOMEM;
    if (result < 0)
        mt_fail(error, result, MT_NO_OFFSET, "%s: out of memory", path);
    if (result == 0)
        result =
            S_ISDIR(status.st_mode) ? take_folder(made, path, error) : take_file(made, path, error);
    if (result == 0 && (result = read_facts(made)) < 0)
        mt_fail(error, result, MT_NO_OFFSET, "%s: %s", path, mt_error_sentence(result));
    if (result < 0) {
        mt_recording_close(made);
        return result;
    }
    find_extent(made);
    result = mt_peaks_find(made);
    if (result < 0) {
        mt_recording_close(made);
        return mt_fail(error, result, MT_NO_OFFSET,
                       result == MT_ENOMEM ? "%s: out of memory" : "%s: cannot be read", path);
    }
    *recording = made;
    return 0;
}

static void finish_one_image(struct mt_image *image)
{
    for (size_t i = 0; i < image->n_pictures; i++)
        mt_picture_finish(&image->pictures[i]);
    free(image->pictures);
    free(image->points);
    free(image->command);
    free(image->end_text);
    mt_maps_finish(&image->first_maps);
    mt_record_file_close(image->file);
}

void mt_recording_close(struct mt_recording *recording)
{
    if (!recording)
        return;
    for (size_t i = 0; i < recording->n_images; i++)
        finish_one_image(&recording->images[i]);
    for (size_t i = 0; i < recording->n_marks; i++)
        free((char *)(uintptr_t)recording->marks[i].name);
    for (size_t i = 0; i < recording->n_machine; i++)
        free(recording->machine[i].text.data);
    mt_peaks_finish(&recording->peaks);
    free(recording->images);
    free(recording->by_pid);
    mt_devices_finish(&recording->devices);
    free(recording->marks);
    free(recording->machine);
    free(recording->path);
    mt_record_file_close(recording->watch);
    free(recording);
}

void mt_recording_damage(const struct mt_recording *recording, struct mt_recording_damage *damage)
{
    *damage = recording->damage;
}

size_t mt_recording_marks(const struct mt_recording *recording,
                          const struct mt_recording_mark **marks)
{
    *marks = recording->marks;
    return recording->n_marks;
}
