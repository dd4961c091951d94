/* SPDX-License-Identifier: MIT */
/* Moments, timelines, and the machine's samples. */
#include "tally/moment.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SAME_SIZE_BYTES ((uint64_t)1 << 20)

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
static uint64_t middle_of(const struct mt_recording *recording)
{
    return recording->start_ns + (recording->end_ns - recording->start_ns) / 2;
}

static uint64_t steady_bytes(const struct mt_recording *recording, const struct mt_point *points,
                             size_t n)
{
    uint64_t samples[257];
    size_t count = sizeof samples / sizeof *samples;
    uint64_t middle = middle_of(recording);
    for (size_t i = 0; i < count; i++)
        samples[i] = resident_at(points, n, middle + (recording->end_ns - middle) / count * i);
    qsort(samples, count, sizeof *samples, bytes_order);
    return samples[count / 2];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* What a picture is judged by. */
struct judge {
    enum mt_moment_kind kind;
    const struct mt_point *points;
    size_t n_points;
    uint64_t middle_ns;
    uint64_t steady_bytes;
};

/* How well a picture at `ns` shows the moment. A steady one of the second half is better than any
 * of the first, where the same size may have been passed on the way up. */
/* The tree's resident size that a picture shows: of its own process what is in it, of the others
 * what their timelines say. */
static uint64_t shown_bytes(const struct judge *judge, const struct mt_image *image,
                            const struct mt_picture *picture)
{
    uint64_t all = resident_at(judge->points, judge->n_points, picture->ns);
    uint64_t own = resident_at(image->points, image->n_points, picture->ns);
    return (all > own ? all - own : 0) + picture->resident_bytes;
}

static uint64_t score_of(const struct judge *judge, const struct mt_image *image,
                         const struct mt_picture *picture)
{
    uint64_t ns = picture->ns;
    uint64_t resident = shown_bytes(judge, image, picture);
    if (judge->kind == MT_MOMENT_EXIT)
        return ns;
    if (judge->kind == MT_MOMENT_PEAK)
        return resident;
    uint64_t apart = distance(resident, judge->steady_bytes) >> 1;
    return (ns >= judge->middle_ns ? UINT64_MAX : UINT64_MAX >> 1) - apart;
}

/* The time of the picture that shows the moment best; of equal ones the first shows the peak, the
 * last the others. 0 where no picture was taken. */
static uint64_t time_of_picture(const struct mt_recording *recording, const struct judge *judge)
{
    uint64_t found = 0;
    uint64_t best = 0;
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *image = &recording->images[i];
        for (size_t j = 0; j < image->n_pictures; j++) {
            uint64_t ns = image->pictures[j].ns;
            uint64_t score = score_of(judge, image, &image->pictures[j]);
            int earlier = ns < found;
            if (!found || score > best ||
                (score == best && earlier == (judge->kind == MT_MOMENT_PEAK))) {
                found = ns;
                best = score;
            }
        }
    }
    return found;
}

static uint64_t own_resident_at(const struct mt_image *image, uint64_t ns)
{
    uint64_t bytes = resident_at(image->points, image->n_points, ns);
    return bytes || !image->n_points ? bytes : image->points[0].resident_bytes;
}

/* How far a picture's size is from the size at the moment, nothing where it is about the same. */
static uint64_t size_apart(const struct mt_picture *picture, uint64_t resident_bytes)
{
    uint64_t apart = distance(picture->resident_bytes, resident_bytes);
    return apart <= resident_bytes / 64 + SAME_SIZE_BYTES ? 0 : apart;
}

/* The picture that shows a process best as it was at `ns`. The processes of a tree are rarely
 * pictured at once; one of the right size from another time says more than a nearer one from before
 * the process grew. Of those of about the right size it is the nearest in time. */
static const struct mt_picture *best_picture(const struct mt_image *image, uint64_t ns)
{
    const struct mt_picture *found = NULL;
    uint64_t resident = own_resident_at(image, ns);
    uint64_t best = 0;
    for (size_t i = 0; i < image->n_pictures; i++) {
        const struct mt_picture *picture = &image->pictures[i];
        if (picture->ns == ns)
            return picture;
        uint64_t apart = size_apart(picture, resident);
        if (!found || apart < best ||
            (apart == best && distance(picture->ns, ns) < distance(found->ns, ns))) {
            found = picture;
            best = apart;
        }
    }
    return found;
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
        made[(*n_choices)++] = (struct mt_process_choice){image, best_picture(image, moment_ns),
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
    uint64_t ns = recording->start_ns + moment->time_ns;
    if (moment->kind == MT_MOMENT_TIME && moment->time_ns > recording->end_ns - recording->start_ns)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: the recording does not reach to that time", recording->path);
    if (mt_moment_timeline(recording, &points, &n) < 0)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (moment->kind != MT_MOMENT_TIME) {
        const struct judge judge = {.kind = moment->kind,
                                    .points = points,
                                    .n_points = n,
                                    .middle_ns = middle_of(recording),
                                    .steady_bytes = steady_bytes(recording, points, n)};
        ns = time_of_picture(recording, &judge);
    }
    free(points);
    if (ns == 0 && recording->damage.first[0])
        return mt_fail(error, MT_ECORRUPT, MT_NO_OFFSET,
                       "%s: what is left of the recording has no picture of the resident pages; "
                       "damaged: %s",
                       recording->path, recording->damage.first);
    if (ns == 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s: no picture of the resident pages was taken: the program was too "
                       "short-lived, or /proc/PID/pagemap cannot be read here",
                       recording->path);
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
        text = strchr(text, '\n');
        text += text != NULL;
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
static void find_meminfo(const struct mt_recording *recording, uint64_t moment_ns,
                         const struct mt_process_choice *choices, size_t n_choices,
                         struct mt_tally_machine *machine)
{
    for (size_t i = 0; i < n_choices; i++) {
        const struct mt_picture *picture = choices[i].picture;
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
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    struct mt_timeline_point *made = calloc(n + 1, sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        made[i] = (struct mt_timeline_point){mt_recording_time(recording, found[i].ns),
                                             found[i].resident_bytes};
    free(found);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    *points = made;
    *n_points = n;
    return 0;
}

void mt_timeline_destroy(struct mt_timeline_point *points)
{
    free(points);
}
