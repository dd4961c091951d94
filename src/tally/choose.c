/* SPDX-License-Identifier: MIT */
/* Choosing the moment and the pictures to show it by. Must not know what a picture shows. */
#include <math.h>
#include <stdlib.h>

#include <memtally/tally.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "tally/moment.h"
#include "tally/nearest.h"
#include "tally/tree.h"

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static uint64_t own_resident_at(const struct mt_image *image, uint64_t ns)
{
    uint64_t bytes = mt_image_resident_at(image, ns);
    return bytes || !image->n_points ? bytes : image->points[0].resident_bytes;
}

/* ---- the moment ---- */

static struct mt_instant instant_of_picture(const struct mt_picture *picture)
{
    return (struct mt_instant){picture->ns, picture->ticks, picture->image, picture->tree_bytes};
}

static int bytes_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t middle_of(const struct mt_recording *recording)
{
    return recording->start_ns + (recording->end_ns - recording->start_ns) / 2;
}

/* The median resident size of the second half of the recording, by time: sampled at equal steps, so
 * that a burst of points does not weigh more than its duration. 0 where memory ran out. */
static uint64_t steady_bytes(const struct mt_recording *recording)
{
    uint64_t samples[257];
    size_t count = sizeof samples / sizeof *samples;
    uint64_t middle = middle_of(recording);
    struct mt_point *points;
    size_t n;
    if (mt_moment_timeline(recording, &points, &n) < 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        samples[i] = mt_points_at(points, n, middle + (recording->end_ns - middle) / count * i);
    free(points);
    qsort(samples, count, sizeof *samples, bytes_order);
    return samples[count / 2];
}

/* How well a picture stands for the steady size. One of that size in the second half is better than
 * any of the first, where the same size may have been passed on the way up. One of another size is
 * worth no more for being late: it may be the end's, with everything given back. */
static uint64_t steadiness(const struct mt_picture *picture, uint64_t wanted, uint64_t middle)
{
    uint64_t apart = distance(picture->tree_bytes, wanted);
    int is_late = picture->ns >= middle && apart <= MT_ABOUT_THE_SAME(wanted);
    return (is_late ? UINT64_MAX : UINT64_MAX >> 1) - (apart >> 1);
}

/* Finds the steadiest moment; if several are as steady, the last. */
static struct mt_instant find_steady(const struct mt_recording *recording)
{
    struct mt_instant found = {0};
    uint64_t wanted = steady_bytes(recording);
    uint64_t middle = middle_of(recording);
    uint64_t best = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_pictures; j++) {
            const struct mt_picture *picture = &image->pictures[j];
            uint64_t score = steadiness(picture, wanted, middle);
            if (found.ns && (score < best || (score == best && picture->ns < found.ns)))
                continue;
            found = instant_of_picture(picture);
            best = score;
        }
    }
    return found.ns ? found : (struct mt_instant){.ns = middle};
}

/* Where a process is known best at its end. One that is recorded looks at its size when it exits,
 * but it has no picture of then where too much of its time went to pictures before; its events lead
 * from an earlier one to there. */
static struct mt_instant end_of(const struct mt_recording *recording, const struct mt_image *image)
{
    const struct mt_picture *last =
        image->n_pictures ? &image->pictures[image->n_pictures - 1] : NULL;
    struct mt_instant found = last ? instant_of_picture(last) : (struct mt_instant){0};
    if (!image->file || (last && last->reason == MT_PICTURE_EXIT))
        return found;
    size_t n = image->n_points;
    while (n && !image->points[n - 1].resident_bytes)
        n--;
    const struct mt_point *point = n ? &image->points[n - 1] : NULL;
    if (!point || point->ns <= found.ns)
        return found;
    return (struct mt_instant){.ns = point->ns,
                               .image = (size_t)(image - recording->images),
                               .bytes = point->resident_bytes};
}

/* The last that is known of any process. */
static struct mt_instant find_exit(const struct mt_recording *recording)
{
    struct mt_instant found = {0};
    for (size_t i = 0; i < recording->n_images; i++) {
        struct mt_instant end = end_of(recording, &recording->images[i]);
        if (end.ns > found.ns)
            found = end;
    }
    return found.ns ? found : (struct mt_instant){.ns = recording->end_ns};
}

/* The plateau of the resident peak: what stands as high as the most that was seen. */
struct plateau {
    uint64_t most_bytes;
    uint64_t least_bytes;
    uint64_t slack_bytes;      /* of the heap */
    struct mt_instant highest; /* by looks, samples and pictures */
    struct mt_instant fullest; /* where most of the heap was in use on it */
};

static void raise(struct plateau *plateau, const struct mt_instant *seen)
{
    if (seen->bytes <= plateau->most_bytes)
        return;
    plateau->highest = *seen;
    plateau->most_bytes = seen->bytes;
}

static void find_plateau(const struct mt_recording *recording, struct plateau *plateau)
{
    const struct mt_peaks *peaks = &recording->peaks;
    *plateau = (struct plateau){0};
    for (size_t i = 0; i < peaks->n_stretches; i++)
        raise(plateau, &peaks->stretches[i].resident);
    for (size_t i = 0; i < recording->n_images; i++)
        for (size_t j = 0; j < recording->images[i].n_pictures; j++) {
            const struct mt_instant seen = instant_of_picture(&recording->images[i].pictures[j]);
            raise(plateau, &seen);
        }
    plateau->slack_bytes = MT_ABOUT_THE_SAME(plateau->most_bytes);
    plateau->least_bytes = plateau->most_bytes - MT_AS_HIGH(plateau->most_bytes);
    for (size_t i = 0; i < peaks->n_stretches; i++) {
        const struct mt_stretch *stretch = &peaks->stretches[i];
        if (stretch->resident.bytes >= plateau->least_bytes &&
            stretch->heap.bytes > plateau->fullest.bytes)
            plateau->fullest = stretch->heap;
    }
}

/* How far a heap that is partly known by samples may be from what it was: three standard deviations
 * of a Poisson sample. */
static uint64_t sampling_noise(const struct mt_recording *recording, uint64_t bytes)
{
    uint64_t interval = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_record_file *file = recording->images[i].file;
        if (file && file->header.sample_interval_bytes > interval)
            interval = file->header.sample_interval_bytes;
    }
    if (!interval || interval > bytes)
        return 0;
    return (uint64_t)(3 * sqrt((double)bytes / (double)interval) * (double)interval);
}

static int is_better(const struct plateau *plateau, const struct mt_picture *a,
                     const struct mt_picture *b)
{
    if (distance(a->tree_heap_bytes, b->tree_heap_bytes) > plateau->slack_bytes)
        return a->tree_heap_bytes > b->tree_heap_bytes;
    if (a->tree_bytes != b->tree_bytes)
        return a->tree_bytes > b->tree_bytes;
    return a->ns < b->ns;
}

/* The picture of the plateau that shows the heap fullest; of equal ones the largest, and of these
 * the first. NULL where none shows it about as full as events say that it was. */
static const struct mt_picture *picture_of_plateau(const struct mt_recording *recording,
                                                   const struct plateau *plateau)
{
    const struct mt_picture *found = NULL;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_pictures; j++) {
            const struct mt_picture *picture = &image->pictures[j];
            if (picture->tree_bytes >= plateau->least_bytes &&
                (!found || is_better(plateau, picture, found)))
                found = picture;
        }
    }
    uint64_t slack = plateau->slack_bytes + sampling_noise(recording, plateau->fullest.bytes);
    if (!found || found->tree_heap_bytes + slack >= plateau->fullest.bytes)
        return found;
    /* It does not say how full the heap of another program was. */
    return recording->images[plateau->fullest.image].end_ns < found->ns ? found : NULL;
}

/* Whatever moment of the plateau is shown, the peak is as high as the most that was seen. What is
 * known of a recording without any figure is shown as of its end. */
static struct mt_instant find_peak(const struct mt_recording *recording)
{
    struct plateau plateau;
    find_plateau(recording, &plateau);
    const struct mt_picture *picture = picture_of_plateau(recording, &plateau);
    struct mt_instant found = picture ? instant_of_picture(picture) : plateau.fullest;
    if (!found.ns)
        found = plateau.highest;
    found.bytes = plateau.most_bytes;
    if (found.ns)
        return found;
    if (recording->peaks.heap.ns)
        return recording->peaks.heap;
    return (struct mt_instant){.ns = recording->end_ns};
}

struct mt_instant mt_moment_instant(const struct mt_recording *recording,
                                    const struct mt_moment *moment)
{
    switch (moment->kind) {
    case MT_MOMENT_PEAK:
        return find_peak(recording);
    case MT_MOMENT_STEADY:
        return find_steady(recording);
    case MT_MOMENT_EXIT:
        return find_exit(recording);
    case MT_MOMENT_TIME:
        return (struct mt_instant){.ns = recording->start_ns + moment->time_ns};
    case MT_MOMENT_HEAP_PEAK:
        return recording->peaks.heap;
    case MT_MOMENT_CATEGORY_PEAK:
        if (moment->category > MT_CATEGORY_NONE && moment->category < MT_CATEGORY_END)
            return recording->peaks.of[moment->category];
        break;
    }
    return (struct mt_instant){0};
}

/* ---- the processes ---- */

static const struct mt_picture *best_picture(const struct mt_image *image, uint64_t ns)
{
    return mt_picture_nearest(image->pictures, image->n_pictures, ns, own_resident_at(image, ns),
                              NULL);
}

/* A fork that was never pictured looks like its parent did when it was forked. */
static void choose_picture(const struct mt_recording *recording, struct mt_process_choice *choice,
                           uint64_t ns)
{
    choice->pictured = choice->image;
    choice->picture = best_picture(choice->image, ns);
    if (choice->picture)
        return;
    const struct mt_image *parent = mt_tree_parent(recording, choice->image);
    if (!parent || !parent->file)
        return;
    uint64_t fork_ns = mt_clock_ns(&parent->clock, mt_tree_fork_ticks(parent, choice->image));
    choice->picture = best_picture(parent, fork_ns);
    if (choice->picture)
        choice->pictured = parent;
}

static uint64_t ticks_at(const struct mt_recording *recording, const struct mt_image *image,
                         const struct mt_instant *at)
{
    const struct mt_image *recorded = mt_tree_recorded(recording, image);
    if (at->ticks && image == &recording->images[at->image])
        return at->ticks;
    return recorded ? mt_clock_ticks(&recorded->clock, at->ns) : 0;
}

static uint64_t most_seen(const struct mt_image *image)
{
    uint64_t most = 0;
    for (size_t i = 0; i < image->n_points; i++)
        if (image->points[i].resident_bytes > most)
            most = image->points[i].resident_bytes;
    for (size_t i = 0; i < image->n_pictures; i++)
        if (image->pictures[i].resident_bytes > most)
            most = image->pictures[i].resident_bytes;
    return most;
}

/* The sum of a tree's peak may be of sizes of several times; of a single process it was seen. */
static void hold_to_peak(struct mt_moment_found *found)
{
    struct mt_process_choice *only = found->choices;
    if (found->n_choices != 1)
        return;
    uint64_t most = most_seen(only->image);
    only->least_bytes = most < found->at.bytes ? most : found->at.bytes;
}

static int choose_processes(const struct mt_recording *recording, struct mt_moment_found *found)
{
    uint64_t ns = found->at.ns;
    found->choices = calloc(recording->n_images + 1, sizeof *found->choices);
    if (!found->choices)
        return MT_ENOMEM;
    found->n_choices = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        if (image->start_ns > ns || image->end_ns < ns)
            continue;
        struct mt_process_choice *choice = &found->choices[found->n_choices++];
        choice->image = image;
        choice->ticks = ticks_at(recording, image, &found->at);
        choose_picture(recording, choice, ns);
    }
    return 0;
}

int mt_moment_choose(const struct mt_recording *recording, const struct mt_moment *moment,
                     struct mt_moment_found *found, struct mt_error *error)
{
    if (moment->kind == MT_MOMENT_TIME && moment->time_ns > recording->end_ns - recording->start_ns)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: the recording does not reach to that time", recording->path);
    struct mt_moment_found made = {.at = mt_moment_instant(recording, moment)};
    if (!recording->n_images && recording->damage.first[0])
        return mt_fail(error, MT_ECORRUPT, MT_NO_OFFSET,
                       "%s: what is left of the recording has no process in it; damaged: %s",
                       recording->path, recording->damage.first);
    if (!recording->n_images)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: no process was recorded: the program ended before it could be seen",
                       recording->path);
    if (!made.at.ns && moment->kind == MT_MOMENT_CATEGORY_PEAK)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: nothing was said to be of category %s; --at peak shows the resident "
                       "peak",
                       recording->path, mt_category_name(moment->category));
    if (!made.at.ns && moment->kind != MT_MOMENT_TIME)
        made.at.ns = recording->end_ns;
    if (choose_processes(recording, &made) < 0)
        return mt_out_of_memory(error);
    if (moment->kind == MT_MOMENT_PEAK)
        hold_to_peak(&made);
    *found = made;
    return 0;
}
