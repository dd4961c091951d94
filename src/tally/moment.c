/* SPDX-License-Identifier: MIT */
/* Moments, timelines, and the machine's samples. */
#include "tally/moment.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A change of one process's resident size. */
struct step {
    uint64_t ns;
    size_t image;
    uint64_t resident_bytes;
};

static int by_time(const void *a, const void *b)
{
    const struct step *x = a;
    const struct step *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->image < y->image ? -1 : x->image > y->image;
}

/* All steps of all processes by time; a process ends with a step to 0. */
static int collect_steps(const struct mt_recording *recording, struct step **steps, size_t *n)
{
    size_t total = 0;
    for (size_t i = 0; i < recording->n_images; i++)
        total += recording->images[i].n_points + 1;
    struct step *made = calloc(total + 1, sizeof *made);
    if (!made)
        return MT_ENOMEM;
    *n = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_points; j++)
            if (image->points[j].ns <= image->end_ns)
                made[(*n)++] =
                    (struct step){image->points[j].ns, i, image->points[j].resident_bytes};
        made[(*n)++] = (struct step){image->end_ns + 1, i, 0};
    }
    qsort(made, *n, sizeof *made, by_time);
    *steps = made;
    return 0;
}

int mt_moment_timeline(const struct mt_recording *recording, struct mt_point **points,
                       size_t *n_points)
{
    struct step *steps;
    size_t n;
    if (collect_steps(recording, &steps, &n) < 0)
        return MT_ENOMEM;
    struct mt_point *made = calloc(n + 1, sizeof *made);
    uint64_t *now = calloc(recording->n_images + 1, sizeof *now);
    uint64_t sum = 0;
    size_t kept = 0;
    for (size_t i = 0; made && now && i < n; i++) {
        sum = sum - now[steps[i].image] + steps[i].resident_bytes;
        now[steps[i].image] = steps[i].resident_bytes;
        if (kept && made[kept - 1].ns == steps[i].ns)
            kept--;
        made[kept++] = (struct mt_point){steps[i].ns, sum};
    }
    int failed = !made || !now;
    free(now);
    free(steps);
    if (failed) {
        free(made);
        return MT_ENOMEM;
    }
    *points = made;
    *n_points = kept;
    return 0;
}

uint64_t mt_moment_peak_bytes(const struct mt_recording *recording)
{
    struct mt_point *points;
    size_t n;
    uint64_t peak = 0;
    if (mt_moment_timeline(recording, &points, &n) < 0)
        return MT_UNKNOWN;
    for (size_t i = 0; i < n; i++)
        if (points[i].resident_bytes > peak)
            peak = points[i].resident_bytes;
    free(points);
    for (size_t i = 0; i < recording->n_images; i++) {
        uint64_t own = recording->images[i].high_water_bytes;
        if (own != MT_UNKNOWN && own > peak)
            peak = own;
    }
    return peak ? peak : MT_UNKNOWN;
}

static uint64_t resident_at(const struct mt_point *points, size_t n, uint64_t ns)
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

static int bytes_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median resident size of the second half of the recording, by time: sampled at equal steps, so
 * that a burst of points does not weigh more than its duration. */
static uint64_t steady_bytes(const struct mt_recording *recording, const struct mt_point *points,
                             size_t n)
{
    uint64_t samples[257];
    size_t count = sizeof samples / sizeof *samples;
    uint64_t middle = recording->start_ns + (recording->end_ns - recording->start_ns) / 2;
    for (size_t i = 0; i < count; i++)
        samples[i] = resident_at(points, n, middle + (recording->end_ns - middle) / count * i);
    qsort(samples, count, sizeof *samples, bytes_order);
    return samples[count / 2];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The time of the picture where `better` says that the tree's resident size suits best. */
static uint64_t time_of_picture(const struct mt_recording *recording, enum mt_moment_kind kind,
                                const struct mt_point *points, size_t n)
{
    uint64_t found = 0;
    uint64_t best = 0;
    uint64_t steady = kind == MT_MOMENT_STEADY ? steady_bytes(recording, points, n) : 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_pictures; j++) {
            uint64_t ns = image->pictures[j].ns;
            uint64_t resident = resident_at(points, n, ns);
            uint64_t score = kind == MT_MOMENT_EXIT   ? ns
                             : kind == MT_MOMENT_PEAK ? resident
                                                      : UINT64_MAX - distance(resident, steady);
            if (!found || score > best) {
                found = ns;
                best = score;
            }
        }
    }
    return found;
}

static const struct mt_picture *nearest(const struct mt_image *image, uint64_t ns)
{
    const struct mt_picture *found = NULL;
    for (size_t i = 0; i < image->n_pictures; i++)
        if (!found || distance(image->pictures[i].ns, ns) < distance(found->ns, ns))
            found = &image->pictures[i];
    return found;
}

static uint64_t own_resident_at(const struct mt_image *image, uint64_t ns)
{
    uint64_t bytes = resident_at(image->points, image->n_points, ns);
    return bytes || !image->n_points ? bytes : image->points[0].resident_bytes;
}

static int choose_processes(const struct mt_recording *recording, uint64_t moment_ns,
                            struct mt_process_choice **choices, size_t *n_choices)
{
    struct mt_process_choice *made = calloc(recording->n_images + 1, sizeof *made);
    if (!made)
        return MT_ENOMEM;
    *n_choices = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        if (image->start_ns > moment_ns || image->end_ns < moment_ns)
            continue;
        made[(*n_choices)++] = (struct mt_process_choice){image, nearest(image, moment_ns),
                                                          own_resident_at(image, moment_ns)};
    }
    *choices = made;
    return 0;
}

int mt_moment_choose(const struct mt_recording *recording, const struct mt_moment *moment,
                     uint64_t *moment_ns, struct mt_process_choice **choices, size_t *n_choices,
                     struct mt_error *error)
{
    struct mt_point *points;
    size_t n;
    uint64_t ns;
    if (mt_moment_timeline(recording, &points, &n) < 0)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (moment->kind == MT_MOMENT_TIME)
        ns = recording->start_ns + moment->time_ns;
    else
        ns = time_of_picture(recording, moment->kind, points, n);
    free(points);
    if (ns < recording->start_ns || ns > recording->end_ns)
        return mt_fail(error, moment->kind == MT_MOMENT_TIME ? MT_EARG : MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: %s", recording->path,
                       moment->kind == MT_MOMENT_TIME
                           ? "the recording does not reach to that time"
                           : "no picture of the resident pages was taken: the program was too "
                             "short-lived, or /proc/PID/pagemap cannot be read here");
    if (choose_processes(recording, ns, choices, n_choices) < 0)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    *moment_ns = ns;
    return 0;
}

static const struct mt_machine_sample *sample_near(const struct mt_recording *recording,
                                                   enum mt_machine_text kind, uint64_t ns)
{
    const struct mt_machine_sample *found = NULL;
    for (size_t i = 0; i < recording->n_machine; i++) {
        const struct mt_machine_sample *sample = &recording->machine[i];
        if (sample->kind == (uint32_t)kind &&
            (!found || distance(sample->ns, ns) < distance(found->ns, ns)))
            found = sample;
    }
    return found;
}

/* The number after "key=" in the line that begins with `line`. */
static double pressure(const char *text, const char *line, const char *key)
{
    const char *at = text ? strstr(text, line) : NULL;
    at = at ? strstr(at, key) : NULL;
    return at ? strtod(at + strlen(key), NULL) : -1;
}

/* "name value" lines, as the watcher writes them; -1 there stands for unknown. */
static uint64_t value_of(const struct mt_machine_sample *sample, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = sample->text.data; at && *at; at = strchr(at, '\n')) {
        while (*at == '\n')
            at++;
        if (strncmp(at, name, length) == 0 && at[length] == ' ' && at[length + 1] != '-')
            return strtoull(at + length + 1, NULL, 10);
        if (!*at)
            break;
    }
    return MT_UNKNOWN;
}

static void read_meminfo(const char *text, size_t length, struct mt_tally_machine *machine)
{
    machine->memory_total_bytes = mt_field_bytes(text, length, "MemTotal");
    machine->memory_free_bytes = mt_field_bytes(text, length, "MemFree");
    machine->memory_available_bytes = mt_field_bytes(text, length, "MemAvailable");
    machine->page_cache_bytes = mt_field_bytes(text, length, "Cached");
    machine->swap_total_bytes = mt_field_bytes(text, length, "SwapTotal");
    uint64_t swap_free = mt_field_bytes(text, length, "SwapFree");
    if (machine->swap_total_bytes != MT_UNKNOWN && swap_free <= machine->swap_total_bytes)
        machine->swap_used_bytes = machine->swap_total_bytes - swap_free;
}

/* The picture's own meminfo is of the very moment; without one the watcher's is near. */
static void find_meminfo(const struct mt_recording *recording, uint64_t moment_ns,
                         const struct mt_process_choice *choices, size_t n_choices,
                         struct mt_tally_machine *machine)
{
    for (size_t i = 0; i < n_choices; i++) {
        const struct mt_picture *picture = choices[i].picture;
        const struct mt_bytes *text = picture ? &picture->text[MT_TEXT_MEMINFO] : NULL;
        if (!text || !text->data || picture->ns != moment_ns)
            continue;
        machine->sample_time_ns = moment_ns - recording->start_ns;
        read_meminfo(text->data, text->length, machine);
        return;
    }
    const struct mt_machine_sample *sample = sample_near(recording, MT_MACHINE_MEMINFO, moment_ns);
    if (!sample)
        return;
    machine->sample_time_ns =
        sample->ns > recording->start_ns ? sample->ns - recording->start_ns : 0;
    read_meminfo(sample->text.data, sample->text.length, machine);
}

void mt_moment_machine(const struct mt_recording *recording, uint64_t moment_ns,
                       const struct mt_process_choice *choices, size_t n_choices,
                       struct mt_tally_machine *machine)
{
    uint64_t *const figures[] = {
        &machine->sample_time_ns,     &machine->memory_total_bytes,
        &machine->memory_free_bytes,  &machine->memory_available_bytes,
        &machine->page_cache_bytes,   &machine->swap_total_bytes,
        &machine->swap_used_bytes,    &machine->other_processes_resident_bytes,
        &machine->cgroup_limit_bytes, &machine->cgroup_usage_bytes,
        &machine->cgroup_peak_bytes};
    *machine = (struct mt_tally_machine){0};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        *figures[i] = MT_UNKNOWN;
    find_meminfo(recording, moment_ns, choices, n_choices, machine);
    const struct mt_machine_sample *sample = sample_near(recording, MT_MACHINE_PRESSURE, moment_ns);
    machine->pressure_some_avg10_percent =
        pressure(sample ? sample->text.data : NULL, "some", "avg10=");
    machine->pressure_full_avg10_percent =
        pressure(sample ? sample->text.data : NULL, "full", "avg10=");
    sample = sample_near(recording, MT_MACHINE_CGROUP, moment_ns);
    if (sample) {
        uint64_t version = value_of(sample, "version");
        machine->cgroup_version = version == 1 || version == 2 ? (int)version : 0;
        machine->cgroup_limit_bytes = value_of(sample, "limit_bytes");
        machine->cgroup_usage_bytes = value_of(sample, "usage_bytes");
        machine->cgroup_peak_bytes = value_of(sample, "peak_bytes");
    }
    sample = sample_near(recording, MT_MACHINE_OTHERS, moment_ns);
    if (sample)
        machine->other_processes_resident_bytes = value_of(sample, "resident_bytes");
}

int mt_recording_timeline(const struct mt_recording *recording, struct mt_timeline_point **points,
                          size_t *n_points, struct mt_error *error)
{
    struct mt_point *found;
    size_t n;
    if (mt_moment_timeline(recording, &found, &n) < 0)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    struct mt_timeline_point *made = calloc(n + 1, sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        made[i] = (struct mt_timeline_point){
            found[i].ns > recording->start_ns ? found[i].ns - recording->start_ns : 0,
            found[i].resident_bytes};
    free(found);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    *points = made;
    *n_points = n;
    return 0;
}
