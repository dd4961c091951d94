/* SPDX-License-Identifier: MIT */
/* Timelines, and the machine's samples. */
#include "tally/moment.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/tally.h>
#include <memtally/units.h>

#include "base/out_of_memory.h"

static int by_time(const void *a, const void *b)
{
    const struct mt_step *x = a;
    const struct mt_step *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->image < y->image ? -1 : x->image > y->image;
}

int mt_moment_steps(const struct mt_recording *recording, struct mt_step **steps, size_t *n)
{
    size_t total = 0;
    for (size_t i = 0; i < recording->n_images; i++)
        total += recording->images[i].n_points + 1;
    struct mt_step *made = calloc(total + 1, sizeof *made);
    if (!made)
        return MT_ENOMEM;
    *n = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_points; j++)
            if (image->points[j].ns <= image->end_ns)
                made[(*n)++] =
                    (struct mt_step){image->points[j].ns, i, image->points[j].resident_bytes};
        made[(*n)++] = (struct mt_step){image->end_ns + 1, i, 0};
    }
    qsort(made, *n, sizeof *made, by_time);
    *steps = made;
    return 0;
}

int mt_moment_timeline(const struct mt_recording *recording, struct mt_point **points,
                       size_t *n_points)
{
    struct mt_step *steps;
    size_t n;
    if (mt_moment_steps(recording, &steps, &n) < 0)
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

int mt_moment_peak_bytes(const struct mt_recording *recording, uint64_t *bytes)
{
    struct mt_point *points;
    size_t n;
    uint64_t peak = 0;
    if (mt_moment_timeline(recording, &points, &n) < 0)
        return MT_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (points[i].resident_bytes > peak)
            peak = points[i].resident_bytes;
    free(points);
    for (size_t i = 0; i < recording->n_images; i++) {
        uint64_t own = recording->images[i].high_water_bytes;
        if (own != MT_UNKNOWN && own > peak)
            peak = own;
    }
    *bytes = peak ? peak : MT_UNKNOWN;
    return 0;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
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

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The line of `text` that begins with `name` and a space, past that; NULL where there is none. */
static const char *line_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    while (text && *text) {
        if (strncmp(text, name, length) == 0 && text[length] == ' ')
            return text + length + 1;
        const char *end = strchr(text, '\n');
        text = end ? end + 1 : NULL;
    }
    return NULL;
}

/* "some avg10=1.23 avg60=…": the percentage, negative where there is none. The decimal point is the
 * kernel's, whatever the locale. */
static double pressure(const struct mt_machine_sample *sample, const char *line)
{
    static const char key[] = "avg10=";
    const char *at = sample ? line_of(sample->text.data, line) : NULL;
    if (!at || strncmp(at, key, sizeof key - 1) != 0 || !is_digit(at[sizeof key - 1]))
        return -1;
    double value = 0;
    double unit = 1;
    for (at += sizeof key - 1; is_digit(*at); at++)
        value = value * 10 + (*at - '0');
    if (*at == '.')
        for (at++; is_digit(*at); at++)
            value += (*at - '0') * (unit /= 10);
    return value;
}

/* "name value" lines, as the watcher writes them; -1 there stands for unknown. */
static uint64_t value_of(const struct mt_machine_sample *sample, const char *name)
{
    const char *at = line_of(sample->text.data, name);
    return at && is_digit(*at) ? strtoull(at, NULL, 10) : MT_UNKNOWN;
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
static void find_meminfo(const struct mt_recording *recording, const struct mt_moment_found *found,
                         struct mt_tally_machine *machine)
{
    const uint64_t moment_ns = found->at.ns;
    for (size_t i = 0; i < found->n_choices; i++) {
        const struct mt_picture *picture = found->choices[i].picture;
        const struct mt_bytes *text = picture ? &picture->text[MT_TEXT_MEMINFO] : NULL;
        if (!text || !text->data || picture->ns != moment_ns)
            continue;
        machine->sample_time_ns = mt_recording_time(recording, moment_ns);
        read_meminfo(text->data, text->length, machine);
        return;
    }
    const struct mt_machine_sample *sample = sample_near(recording, MT_MACHINE_MEMINFO, moment_ns);
    if (!sample)
        return;
    machine->sample_time_ns = mt_recording_time(recording, sample->ns);
    read_meminfo(sample->text.data, sample->text.length, machine);
}

void mt_moment_machine(const struct mt_recording *recording, const struct mt_moment_found *found,
                       struct mt_tally_machine *machine)
{
    const uint64_t moment_ns = found->at.ns;
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
    find_meminfo(recording, found, machine);
    const struct mt_machine_sample *sample = sample_near(recording, MT_MACHINE_PRESSURE, moment_ns);
    machine->pressure_some_avg10_percent = pressure(sample, "some");
    machine->pressure_full_avg10_percent = pressure(sample, "full");
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
        return mt_out_of_memory(error);
    struct mt_timeline_point *made = calloc(n + 1, sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        made[i] = (struct mt_timeline_point){mt_recording_time(recording, found[i].ns),
                                             found[i].resident_bytes};
    free(found);
    if (!made)
        return mt_out_of_memory(error);
    *points = made;
    *n_points = n;
    return 0;
}

void mt_timeline_destroy(struct mt_timeline_point *points)
{
    free(points);
}
