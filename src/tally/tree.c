/* SPDX-License-Identifier: MIT */
/* Replaying a process that began as a fork of another. */
#include "tally/tree.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/bisect.h"

/* The replay keeps so many files apart; deeper forks begin with what the nearest ones say. */
#define MOST_PARENTS 12

#define NAME_BYTES 15 /* that the kernel keeps of a program's name */

/* The kernel's start times come in hundredths of a second, rounded down. */
#define START_STEP_NS 10000000u

static int is_fork(const struct mt_image *image)
{
    return image->file && image->file->header.flags & MT_FILE_FORKED;
}

/* When a process without a file was born: its start, which is known no better than to
 * START_STEP_NS, or when it was first seen. */
static uint64_t born_ns(const struct mt_image *image)
{
    uint64_t ns = image->start_ns + START_STEP_NS;
    if (image->n_points && image->points[0].ns < ns)
        ns = image->points[0].ns;
    return ns < image->end_ns ? ns : image->end_ns;
}

/* A process that was cloned behind libc's back has the time of an earlier fork or none, and then
 * began no later than its own first event. */
uint64_t mt_tree_fork_ticks(const struct mt_image *parent, const struct mt_image *image)
{
    if (!image->file)
        return mt_clock_ticks(&parent->clock, born_ns(image));
    uint64_t ticks = image->file->header.fork_ticks;
    uint64_t start = image->file->header.start_ticks;
    if (!parent->file)
        return ticks ? ticks : start;
    return ticks < parent->file->header.start_ticks || ticks > start ? start : ticks;
}

/* A fork has its parent's recording file mapped. */
static const struct mt_image *image_mapped_in(const struct mt_recording *recording,
                                              const struct mt_image_names *names,
                                              const struct mt_image *image)
{
    const struct mt_picture *picture = &image->pictures[0];
    const struct mt_bytes *maps = &picture->text[MT_TEXT_MAPS];
    const struct mt_image *found = NULL;
    size_t at = 0;
    size_t i;
    while (mt_image_names_next(names, maps, &at, &i)) {
        const struct mt_image *other = &recording->images[i];
        if (other->pid != image->pid && other->start_ns <= picture->ns && (!found || other < found))
            found = other;
    }
    return found;
}

/* If a process had ended when it was looked at, the kernel has its name left, in brackets: what the
 * last part of the program's path begins with. */
static int is_name_of(const char *command, const char *name)
{
    const char *space = strchr(command, ' ');
    const char *at = space ? space : command + strlen(command);
    size_t length = 0;
    while (at > command && at[-1] != '/') {
        at--;
        length++;
    }
    length = length < NAME_BYTES ? length : NAME_BYTES;
    return *name == '[' && strncmp(name + 1, at, length) == 0 &&
           strcmp(name + 1 + length, "]") == 0;
}

static int has_same_command(const struct mt_image *a, const struct mt_image *b)
{
    return a->command && b->command &&
           (strcmp(a->command, b->command) == 0 || is_name_of(a->command, b->command));
}

/* The line of maps that ends in `name`; it has no data where there is none. */
static struct mt_bytes line_named(const struct mt_bytes *maps, const char *name)
{
    const char *text = (const char *)maps->data;
    size_t length = strlen(name);
    const char *found = text ? memmem(text, maps->length, name, length) : NULL;
    const char *start = found ? memrchr(text, '\n', (size_t)(found - text)) : NULL;
    if (!found)
        return (struct mt_bytes){0};
    start = start ? start + 1 : text;
    return (struct mt_bytes){maps->data + (start - text), (size_t)(found + length - start)};
}

/* Exec puts the kernel's page of code at another address, and fork leaves it where it was. Where
 * addresses are not made random, a program that a process starts of itself passes for a fork; then
 * the kernel says that it shares nothing. */
static int has_same_layout(const struct mt_image *a, const struct mt_image *b)
{
    static const char name[] = "[vdso]\n";
    if (!a->n_pictures || !b->n_pictures)
        return 0;
    struct mt_bytes x = line_named(&a->pictures[0].text[MT_TEXT_MAPS], name);
    struct mt_bytes y = line_named(&b->pictures[0].text[MT_TEXT_MAPS], name);
    return x.data && y.data && x.length == y.length && memcmp(x.data, y.data, x.length) == 0;
}

/* What was not pictured is a fork by its command line, which exec would have changed. */
static const struct mt_image *parent_of_unrecorded(const struct mt_recording *recording,
                                                   const struct mt_image_names *names,
                                                   const struct mt_image *image)
{
    const struct mt_image *found =
        image->n_pictures ? image_mapped_in(recording, names, image) : NULL;
    if (found)
        return found;
    found = mt_image_begun(recording, image->parent_pid, image->start_ns + START_STEP_NS);
    if (image->n_pictures)
        return found && found != image && !found->file && has_same_layout(found, image) ? found
                                                                                        : NULL;
    return found && found->file && has_same_command(found, image) ? found : NULL;
}

/* By place in by_pid: the least of the start ticks from there to the last image of the process. */
static void find_earliest(const struct mt_recording *recording, uint64_t *earliest)
{
    for (size_t i = recording->n_by_pid; i-- > 0;) {
        const struct mt_image *image = &recording->images[recording->by_pid[i]];
        int is_last = i + 1 == recording->n_by_pid ||
                      recording->images[recording->by_pid[i + 1]].pid != image->pid;
        uint64_t ticks = image->file ? image->file->header.start_ticks : UINT64_MAX;
        earliest[i] = is_last || ticks < earliest[i + 1] ? ticks : earliest[i + 1];
    }
}

/* The last image of the parent process that began before the fork: a child may write its first
 * event when its parent has called exec already. */
static const struct mt_image *parent_of_recorded(const struct mt_recording *recording,
                                                 const uint64_t *earliest,
                                                 const struct mt_image *image)
{
    const struct mt_file_header *header = &image->file->header;
    const uint64_t ticks = header->fork_ticks ? header->fork_ticks : header->start_ticks;
    size_t n;
    const size_t *images = mt_images_of(recording, header->parent_pid, &n);
    const uint64_t *starts = earliest + (images - recording->by_pid);
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, starts[place.middle] <= ticks);
    while (place.first-- > 0) {
        const struct mt_image *parent = &recording->images[images[place.first]];
        if (parent->file && parent != image && parent->file->header.start_ticks <= ticks)
            return parent;
    }
    return NULL;
}

int mt_tree_index(struct mt_recording *recording)
{
    struct mt_image_names names = {0};
    uint64_t *earliest = calloc(recording->n_by_pid + 1, sizeof *earliest);
    if (!earliest || mt_image_names_make(recording, &names) < 0) {
        free(earliest);
        return MT_ENOMEM;
    }
    find_earliest(recording, earliest);
    for (size_t i = 0; i < recording->n_images; i++) {
        struct mt_image *image = &recording->images[i];
        const struct mt_image *parent = NULL;
        if (!image->file)
            parent = parent_of_unrecorded(recording, &names, image);
        else if (is_fork(image))
            parent = parent_of_recorded(recording, earliest, image);
        image->parent = parent ? 1 + (size_t)(parent - recording->images) : 0;
    }
    free(earliest);
    free(names.items);
    return 0;
}

const struct mt_image *mt_tree_parent(const struct mt_recording *recording,
                                      const struct mt_image *image)
{
    return image->parent ? &recording->images[image->parent - 1] : NULL;
}

const struct mt_image *mt_tree_root(const struct mt_recording *recording,
                                    const struct mt_image *image)
{
    for (int i = 0; i < MOST_PARENTS && image; i++) {
        const struct mt_image *parent = mt_tree_parent(recording, image);
        if (!parent)
            return is_fork(image) ? NULL : image;
        image = parent;
    }
    return NULL;
}

const struct mt_image *mt_tree_recorded(const struct mt_recording *recording,
                                        const struct mt_image *image)
{
    for (int i = 0; i < MOST_PARENTS && image && !image->file; i++)
        image = mt_tree_parent(recording, image);
    return image && image->file ? image : NULL;
}

struct told {
    const struct mt_tree_observer *observer;
    const struct mt_image *image;
};

static void tell(void *context, const struct mt_event *event)
{
    const struct told *told = context;
    told->observer->event(told->observer->context, told->image, event);
}

static int replay_image(const struct mt_image *image, uint64_t ticks,
                        const struct mt_tree_observer *observer, struct mt_replay *replay)
{
    struct told told = {observer, image};
    if (!image->file)
        return 0;
    if (!observer)
        return mt_replay_file(replay, image->file, ticks, NULL);
    const struct mt_replay_observer of_file = {tell, &told, observer->from_ticks,
                                               observer->until_ticks};
    return mt_replay_file(replay, image->file, ticks, &of_file);
}

/* The child counts its own small blocks from zero on top of what it inherited. */
static void inherit(struct mt_replay *replay)
{
    if (replay->sampled_bytes > replay->sampled_bytes_then)
        replay->small_alloc_bytes += replay->sampled_bytes - replay->sampled_bytes_then;
    else
        replay->small_free_bytes += replay->sampled_bytes_then - replay->sampled_bytes;
    replay->sampled_bytes_then = replay->sampled_bytes;
    replay->inherited_allocs = replay->small_allocs;
    replay->inherited_alloc_bytes = replay->small_alloc_bytes;
    replay->inherited_frees = replay->small_frees;
    replay->inherited_free_bytes = replay->small_free_bytes;
}

/* The parent's state at the fork is where a forked child begins. */
static int replay_parents(const struct mt_recording *recording, const struct mt_image *image,
                          const struct mt_tree_observer *observer, struct mt_replay *replay,
                          int depth)
{
    const struct mt_image *parent = depth < MOST_PARENTS ? mt_tree_parent(recording, image) : NULL;
    if (!parent)
        return 0;
    int result = replay_parents(recording, parent, observer, replay, depth + 1);
    if (result == 0)
        result = replay_image(parent, mt_tree_fork_ticks(parent, image), observer, replay);
    inherit(replay);
    if (observer)
        observer->next_image(observer->context);
    return result;
}

int mt_tree_replay(const struct mt_recording *recording, const struct mt_image *image,
                   uint64_t ticks, const struct mt_tree_observer *observer,
                   struct mt_replay *replay)
{
    int result = replay_parents(recording, image, observer, replay, 0);
    return result < 0 ? result : replay_image(image, ticks, observer, replay);
}
