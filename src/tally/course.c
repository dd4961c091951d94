/* SPDX-License-Identifier: MIT */
/* Walking along the sizes of all processes at once. */
#include "tally/course.h"

#include <stdlib.h>

#include <memtally/error_code.h>

#include "tally/forks.h"
#include "tally/moment.h"
#include "tally/tree.h"

/* If more processes than these live, each has the last size that is known, and the sum of these is
 * kept: a sum for each step would cost too much. */
#define MOST_ALIVE 64u

/* By the kernel's word beside its nearest picture in which it shared; of one that was never seen to
 * share all that its parent has. Who outlives those of its family that are before it has its memory
 * for itself. */
uint64_t mt_course_shared_bytes(const struct mt_recording *recording, size_t image, uint64_t ns)
{
    const struct mt_image *fork = &recording->images[image];
    if (fork->root == image || fork->elders_end_ns < ns)
        return 0;
    const struct mt_picture *picture = mt_forks_picture(fork, ns);
    if (picture)
        return picture->shared_bytes;
    const struct mt_image *parent = mt_tree_parent(recording, fork);
    return parent ? mt_image_resident_at(parent, ns) : 0;
}

static void count_shared_once(struct mt_course *course)
{
    for (size_t i = 0; i < course->n_steps; i++) {
        struct mt_step *step = &course->steps[i];
        uint64_t bytes = step->resident_bytes;
        uint64_t shared =
            bytes ? mt_course_shared_bytes(course->recording, step->image, step->ns) : 0;
        step->resident_bytes -= shared < bytes ? shared : bytes;
    }
}

static void link_steps(struct mt_course *course)
{
    for (size_t i = 0; i < course->recording->n_images; i++)
        course->places[i] = (struct mt_course_place){.ns = course->recording->images[i].start_ns,
                                                     .next = course->n_steps};
    for (size_t i = course->n_steps; i-- > 0;) {
        struct mt_course_place *place = &course->places[course->steps[i].image];
        course->next[i] = place->next;
        place->next = i;
    }
}

int mt_course_init(struct mt_course *course, const struct mt_recording *recording)
{
    *course = (struct mt_course){.recording = recording};
    if (mt_moment_steps(recording, &course->steps, &course->n_steps) < 0)
        return MT_ENOMEM;
    course->next = calloc(course->n_steps + 1, sizeof *course->next);
    course->places = calloc(recording->n_images + 1, sizeof *course->places);
    course->alive = calloc(recording->n_images + 1, sizeof *course->alive);
    if (!course->next || !course->places || !course->alive)
        return MT_ENOMEM;
    count_shared_once(course);
    link_steps(course);
    return 0;
}

void mt_course_finish(struct mt_course *course)
{
    free(course->steps);
    free(course->next);
    free(course->places);
    free(course->alive);
    *course = (struct mt_course){0};
}

uint64_t mt_course_next_ns(const struct mt_course *course)
{
    return course->at < course->n_steps ? course->steps[course->at].ns : UINT64_MAX;
}

static void begin_those_before(struct mt_course *course, uint64_t ns)
{
    const struct mt_recording *recording = course->recording;
    for (;
         course->n_begun < recording->n_images && recording->images[course->n_begun].start_ns <= ns;
         course->n_begun++) {
        struct mt_course_place *place = &course->places[course->n_begun];
        course->alive[course->n_alive++] = course->n_begun;
        course->alive_bytes += place->bytes;
        place->alive_at = course->n_alive;
    }
}

static void end_image(struct mt_course *course, size_t image)
{
    struct mt_course_place *place = &course->places[image];
    size_t at = place->alive_at;
    if (!at)
        return;
    size_t last = course->alive[--course->n_alive];
    course->alive[at - 1] = last;
    course->places[last].alive_at = at;
    place->alive_at = 0;
    course->alive_bytes -= place->bytes;
}

static void set_bytes(struct mt_course *course, struct mt_course_place *place, uint64_t bytes)
{
    if (place->alive_at)
        course->alive_bytes += bytes - place->bytes;
    place->bytes = bytes;
}

/* What came is touched soon, as far as the next size bears that out. Returns how much. */
static uint64_t touch(struct mt_course *course, struct mt_course_place *place)
{
    uint64_t most = place->next < course->n_steps ? course->steps[place->next].resident_bytes : 0;
    uint64_t more = most > place->bytes ? most - place->bytes : 0;
    if (more > place->untouched)
        more = place->untouched;
    set_bytes(course, place, place->bytes + more);
    place->untouched -= more;
    return more;
}

/* The event of a fall is written before the kernel begins with it: a size in the midst of it is
 * higher than what will be left, and the next one is lower. The fall is taken for done. */
static uint64_t bytes_of_step(const struct mt_course *course, const struct mt_step *step,
                              struct mt_course_place *place)
{
    size_t next = course->next[course->at];
    uint64_t after = next < course->n_steps ? course->steps[next].resident_bytes : UINT64_MAX;
    if (!place->is_falling || step->resident_bytes <= place->bytes ||
        after >= step->resident_bytes) {
        place->is_falling = 0;
        return step->resident_bytes;
    }
    return after > place->bytes ? after : place->bytes;
}

void mt_course_step(struct mt_course *course)
{
    const struct mt_step *step = &course->steps[course->at];
    begin_those_before(course, step->ns);
    struct mt_course_place *place = &course->places[step->image];
    set_bytes(course, place, bytes_of_step(course, step, place));
    place->ns = step->ns;
    place->next = course->next[course->at];
    if (place->next == course->n_steps)
        end_image(course, step->image);
    course->at++;
}

void mt_course_fall(struct mt_course *course, size_t image, uint64_t ns, uint64_t bytes)
{
    struct mt_course_place *place = &course->places[image];
    set_bytes(course, place, bytes);
    place->ns = ns;
    place->is_falling = 1;
}

uint64_t mt_course_own_bytes(const struct mt_course *course, size_t image, uint64_t ns)
{
    const struct mt_course_place *place = &course->places[image];
    int is_recorded = course->recording->images[image].file != NULL;
    if (place->next >= course->n_steps || ns <= place->ns)
        return place->bytes;
    const struct mt_step *next = &course->steps[place->next];
    if (next->resident_bytes <= place->bytes || next->ns <= place->ns)
        return place->bytes;
    uint64_t more = next->resident_bytes - place->bytes;
    if (is_recorded && more > place->untouched)
        more = place->untouched;
    double share = (double)(ns - place->ns) / (double)(next->ns - place->ns);
    return place->bytes + (uint64_t)((double)more * (share < 1 ? share : 1));
}

uint64_t mt_course_bytes(struct mt_course *course, uint64_t ns)
{
    uint64_t bytes = 0;
    begin_those_before(course, ns);
    if (course->n_alive > MOST_ALIVE)
        return course->alive_bytes;
    for (size_t i = 0; i < course->n_alive; i++)
        bytes += mt_course_own_bytes(course, course->alive[i], ns);
    return bytes;
}

static uint64_t most_own_bytes(const struct mt_course *course, size_t image)
{
    const struct mt_course_place *place = &course->places[image];
    uint64_t next = place->next < course->n_steps ? course->steps[place->next].resident_bytes : 0;
    uint64_t more = next > place->bytes ? next - place->bytes : 0;
    if (course->recording->images[image].file && more > place->untouched)
        more = place->untouched;
    return place->bytes + more;
}

uint64_t mt_course_most_bytes(const struct mt_course *course)
{
    uint64_t bytes = 0;
    if (course->n_alive > MOST_ALIVE)
        return course->alive_bytes;
    for (size_t i = 0; i < course->n_alive; i++)
        bytes += most_own_bytes(course, course->alive[i]);
    return bytes;
}

uint64_t mt_course_rise(struct mt_course *course, size_t image, uint64_t ns, uint64_t more)
{
    struct mt_course_place *place = &course->places[image];
    set_bytes(course, place, mt_course_own_bytes(course, image, ns));
    place->ns = ns;
    place->is_falling = 0;
    place->untouched = more > UINT64_MAX - place->untouched ? UINT64_MAX : place->untouched + more;
    return touch(course, place);
}
