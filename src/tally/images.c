/* SPDX-License-Identifier: MIT */
/* Finding the process image that an event from outside is about: process ids are used again, and a
 * process that calls exec has several images. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/image.h"

struct key {
    uint64_t pid;
    uint64_t start_ns;
    size_t index;
};

static int by_pid(const void *a, const void *b)
{
    const struct key *x = a;
    const struct key *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

int mt_images_index(struct mt_recording *recording)
{
    size_t n = recording->n_images;
    struct key *keys = calloc(n + 1, sizeof *keys);
    size_t *made = calloc(n + 1, sizeof *made);
    if (!keys || !made) {
        free(keys);
        free(made);
        return MT_ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct key){recording->images[i].pid, recording->images[i].start_ns, i};
    qsort(keys, n, sizeof *keys, by_pid);
    for (size_t i = 0; i < n; i++)
        made[i] = keys[i].index;
    free(keys);
    free(recording->by_pid);
    recording->by_pid = made;
    recording->n_by_pid = n;
    return 0;
}

/* The first place in by_pid whose image is of a process id of at least `pid`. */
static size_t first_of(const struct mt_recording *recording, uint64_t pid)
{
    size_t low = 0;
    size_t high = recording->n_by_pid;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recording->images[recording->by_pid[middle]].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const size_t *mt_images_of(const struct mt_recording *recording, uint64_t pid, size_t *n)
{
    size_t first = first_of(recording, pid);
    *n = (pid == UINT64_MAX ? recording->n_by_pid : first_of(recording, pid + 1)) - first;
    return recording->by_pid + first;
}

struct mt_image *mt_image_at(const struct mt_recording *recording, uint64_t pid, uint64_t ns)
{
    size_t n;
    const size_t *images = mt_images_of(recording, pid, &n);
    size_t low = 0;
    size_t high = n;
    if (!n)
        return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recording->images[images[middle]].start_ns <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    return &recording->images[images[low ? low - 1 : 0]];
}

int mt_image_is_mapped_in(const struct mt_image *image, const struct mt_bytes *maps)
{
    const char *slash = strrchr(image->file->path, '/');
    const char *name = slash ? slash + 1 : image->file->path;
    const char *dot = strrchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : strlen(name);
    char wanted[NAME_MAX + 8];
    int n = snprintf(wanted, sizeof wanted, "/%.*s.mtr", (int)length, name);
    return n > 0 && (size_t)n < sizeof wanted && maps->data && strstr(maps->data, wanted) != NULL;
}

const struct mt_picture *mt_image_picture_before(const struct mt_image *image, uint64_t ns)
{
    size_t low = 0;
    size_t high = image->n_pictures;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (image->pictures[middle].ns <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &image->pictures[low - 1] : NULL;
}

uint64_t mt_image_resident_at(const struct mt_image *image, uint64_t ns)
{
    return mt_points_at(image->points, image->n_points, ns);
}

uint64_t mt_points_at(const struct mt_point *points, size_t n, uint64_t ns)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (points[middle].ns <= ns)
            low = middle + 1;
        else
            n = middle;
    }
    return low ? points[low - 1].resident_bytes : 0;
}
