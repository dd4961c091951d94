/* SPDX-License-Identifier: MIT */
/* Finding the process image that an event from outside is about: process ids are used again, and a
 * process that calls exec has several images. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/array.h"
#include "base/bisect.h"
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
    struct mt_bisect place = {.end = recording->n_by_pid};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, recording->images[recording->by_pid[place.middle]].pid < pid);
    return place.first;
}

const size_t *mt_images_of(const struct mt_recording *recording, uint64_t pid, size_t *n)
{
    size_t first = first_of(recording, pid);
    *n = (pid == UINT64_MAX ? recording->n_by_pid : first_of(recording, pid + 1)) - first;
    return recording->by_pid + first;
}

/* How many of the images of one process began at `ns` or before. */
static size_t count_begun(const struct mt_recording *recording, const size_t *images, size_t n,
                          uint64_t ns)
{
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, recording->images[images[place.middle]].start_ns <= ns);
    return place.first;
}

struct mt_image *mt_image_begun(const struct mt_recording *recording, uint64_t pid, uint64_t ns)
{
    size_t n;
    const size_t *images = mt_images_of(recording, pid, &n);
    n = count_begun(recording, images, n, ns);
    return n ? &recording->images[images[n - 1]] : NULL;
}

struct mt_image *mt_image_at(const struct mt_recording *recording, uint64_t pid, uint64_t ns)
{
    size_t n;
    const size_t *images = mt_images_of(recording, pid, &n);
    size_t begun = count_begun(recording, images, n, ns);
    if (!n)
        return NULL;
    return &recording->images[images[begun ? begun - 1 : 0]];
}

int mt_image_last_maps(const struct mt_image *image, struct mt_maps *maps)
{
    for (size_t i = image->n_pictures; i-- > 0;) {
        const struct mt_bytes *text = &image->pictures[i].text[MT_TEXT_MAPS];
        if (text->length)
            return mt_maps_parse(text->data, text->length, maps);
    }
    return mt_maps_copy(&image->first_maps, maps);
}

/* Whose image has which file, and how long its name is without what follows the last dot. */
static const char *name_of(const struct mt_image *image, size_t *length)
{
    const char *slash = strrchr(image->file->path, '/');
    const char *name = slash ? slash + 1 : image->file->path;
    const char *dot = strrchr(name, '.');
    *length = dot ? (size_t)(dot - name) : strlen(name);
    return name;
}

int mt_image_is_mapped_in(const struct mt_image *image, const struct mt_bytes *maps)
{
    char wanted[NAME_MAX + 8];
    size_t length;
    const char *name = name_of(image, &length);
    int n = snprintf(wanted, sizeof wanted, "/%.*s.mtr", (int)length, name);
    return n > 0 && (size_t)n < sizeof wanted && maps->data && strstr(maps->data, wanted) != NULL;
}

static int compare_names(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_file_name(const void *a, const void *b)
{
    const struct mt_image_name *x = a;
    const struct mt_image_name *y = b;
    return compare_names(x->name, x->length, y->name, y->length);
}

int mt_image_names_make(const struct mt_recording *recording, struct mt_image_names *names)
{
    *names = (struct mt_image_names){calloc(recording->n_images + 1, sizeof *names->items), 0};
    if (!names->items)
        return MT_ENOMEM;
    for (size_t i = 0; i < recording->n_images; i++)
        if (recording->images[i].file) {
            struct mt_image_name *name = &names->items[names->n++];
            name->name = name_of(&recording->images[i], &name->length);
            name->image = i;
        }
    qsort(names->items, names->n, sizeof *names->items, by_file_name);
    return 0;
}

static const struct mt_image_name *find_name(const struct mt_image_names *names, const char *name,
                                             size_t length)
{
    size_t low = 0;
    for (size_t high = names->n; low < high;) {
        size_t middle = low + (high - low) / 2;
        const struct mt_image_name *item = &names->items[middle];
        int order = compare_names(name, length, item->name, item->length);
        if (order == 0)
            return item;
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int mt_image_names_next(const struct mt_image_names *names, const struct mt_bytes *maps, size_t *at,
                        size_t *image)
{
    const char *slash = NULL;
    const char *text = maps->data ? maps->data + *at : "";
    for (; *text; text++) {
        if (*text == '/')
            slash = text;
        if (!slash || text - slash > NAME_MAX || strncmp(text, ".mtr", 4) != 0)
            continue;
        const struct mt_image_name *found = find_name(names, slash + 1, (size_t)(text - slash - 1));
        if (!found)
            continue;
        *at = (size_t)(text + 1 - maps->data);
        *image = found->image;
        return 1;
    }
    return 0;
}

const struct mt_picture *mt_image_picture_before(const struct mt_image *image, uint64_t ns)
{
    struct mt_bisect place = {.end = image->n_pictures};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, image->pictures[place.middle].ns <= ns);
    return place.first ? &image->pictures[place.first - 1] : NULL;
}

uint64_t mt_image_resident_at(const struct mt_image *image, uint64_t ns)
{
    return mt_points_at(image->points, image->n_points, ns);
}

uint64_t mt_points_at(const struct mt_point *points, size_t n, uint64_t ns)
{
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, points[place.middle].ns <= ns);
    return place.first ? points[place.first - 1].resident_bytes : 0;
}

struct mt_image *mt_image_add(struct mt_recording *recording)
{
    size_t n = recording->n_images;
    if (mt_array_grow(recording->images, n) < 0)
        return NULL;
    recording->images[n] = (struct mt_image){.high_water_bytes = MT_UNKNOWN};
    return &recording->images[recording->n_images++];
}

uint64_t mt_recording_time(const struct mt_recording *recording, uint64_t ns)
{
    return ns > recording->start_ns ? ns - recording->start_ns : 0;
}
