/* SPDX-License-Identifier: MIT */
/* Shared memory of forks. Where all of a family were pictured at the moment, the kernel's shares
 * (Pss_Anon) add up to each page once. Where they were not, a picture's share was that of the
 * family of another moment: then the first process has its memory in full, and the others have what
 * they do not share with it. */
#include "tally/forks.h"

#include <stdlib.h>

#include "tally/tree.h"

static uint64_t field_of(const struct mt_picture *picture, const char *name)
{
    const struct mt_bytes *text = &picture->text[MT_TEXT_ROLLUP];
    return text->data ? mt_field_bytes(text->data, text->length, name) : MT_UNKNOWN;
}

/* Of anonymous memory what the kernel counts for others. */
static uint64_t others_bytes(const struct mt_picture *picture)
{
    uint64_t anonymous = field_of(picture, "Anonymous");
    uint64_t proportional = field_of(picture, "Pss_Anon");
    if (anonymous == MT_UNKNOWN || proportional == MT_UNKNOWN || anonymous < proportional)
        return 0;
    return anonymous - proportional;
}

/* The kernel says how many pages are shared, among them those of files and of shared memory. Of
 * anonymous ones it counts a page that n processes have to 1/n for each: what is the others' is
 * from a half of them up to nearly all. */
static uint64_t shared_bytes(const struct mt_picture *picture)
{
    uint64_t least = picture->others_bytes;
    uint64_t most = least > UINT64_MAX / 2 ? least : 2 * least;
    uint64_t dirty = field_of(picture, "Shared_Dirty");
    if (dirty == MT_UNKNOWN || dirty > most)
        return most;
    return dirty > least ? dirty : least;
}

static void find_shared(struct mt_image *image, int is_fork)
{
    for (size_t i = 0; i < image->n_pictures; i++) {
        struct mt_picture *picture = &image->pictures[i];
        picture->others_bytes = others_bytes(picture);
        if (is_fork)
            picture->shared_bytes = shared_bytes(picture);
    }
}

void mt_forks_find(struct mt_recording *recording)
{
    for (size_t i = 0; i < recording->n_images; i++) {
        const struct mt_image *root = mt_tree_root(recording, &recording->images[i]);
        recording->images[i].root = root ? (size_t)(root - recording->images) : i;
    }
    for (size_t i = 0; i < recording->n_images; i++)
        find_shared(&recording->images[i], recording->images[i].root != i);
}

/* A picture from before the fork has no share of others in it. */
static int is_pictured_at(const struct mt_process_choice *choice, uint64_t ns)
{
    if (!choice->picture || choice->pictured != choice->image ||
        field_of(choice->picture, "Anonymous") == MT_UNKNOWN)
        return 0;
    uint64_t picture_ns = choice->picture->ns;
    return (picture_ns > ns ? picture_ns - ns : ns - picture_ns) < MT_PICTURES_APART_NS;
}

static void find_families(struct mt_forks *forks)
{
    const struct mt_moment_found *found = forks->found;
    for (size_t i = 0; i < found->n_choices; i++) {
        struct mt_fork *fork = &forks->forks[i];
        while (found->choices[fork->leader].image->root != found->choices[i].image->root)
            fork->leader++;
        struct mt_fork *leader = &forks->forks[fork->leader];
        int is_pictured = is_pictured_at(&found->choices[i], found->at.ns);
        leader->is_pictured = is_pictured && (fork == leader || leader->is_pictured);
        leader->is_single = fork == leader;
    }
}

int mt_forks_init(struct mt_forks *forks, const struct mt_recording *recording,
                  const struct mt_moment_found *found)
{
    *forks = (struct mt_forks){.recording = recording, .found = found};
    forks->forks = calloc(found->n_choices + 1, sizeof *forks->forks);
    if (!forks->forks)
        return MT_ENOMEM;
    find_families(forks);
    return 0;
}

void mt_forks_finish(struct mt_forks *forks)
{
    free(forks->forks);
    *forks = (struct mt_forks){0};
}

/* The anonymous pages that are as the picture of the parent has them; of a child that did nothing
 * of its own all. */
static uint64_t inherited_bytes(const struct mt_carried *carried, uint64_t page_bytes, int is_quiet)
{
    const uint64_t own = is_quiet ? MT_RUN_FILE : MT_RUN_FILE | MT_RUN_CARRIED;
    uint64_t bytes = 0;
    for (size_t i = 0; i < carried->picture.n_runs; i++)
        if (!(carried->picture.runs[i].flags & own))
            bytes += carried->picture.runs[i].n_pages * page_bytes;
    return bytes;
}

static uint64_t shared_with_family(const struct mt_forks *forks, size_t i,
                                   const struct mt_carried *carried)
{
    const struct mt_process_choice *choice = &forks->found->choices[i];
    const struct mt_record_file *file =
        choice->pictured && choice->pictured->file ? choice->pictured->file : NULL;
    if (!choice->picture)
        return 0;
    if (choice->pictured != choice->image)
        return file ? inherited_bytes(carried, file->header.page_bytes, !choice->image->file) : 0;
    return choice->picture->shared_bytes;
}

uint64_t mt_forks_shared(struct mt_forks *forks, size_t i, const struct mt_carried *carried,
                         uint64_t anonymous_bytes)
{
    struct mt_fork *leader = &forks->forks[forks->forks[i].leader];
    uint64_t shared;
    if (leader->is_single)
        return 0;
    if (leader->is_pictured)
        shared = carried->picture.others_bytes;
    else if (leader == &forks->forks[i])
        shared = 0;
    else
        shared = shared_with_family(forks, i, carried);
    if (leader == &forks->forks[i])
        leader->anonymous_bytes = anonymous_bytes;
    else if (!leader->is_pictured && shared > leader->anonymous_bytes)
        shared = leader->anonymous_bytes;
    return shared < anonymous_bytes ? shared : anonymous_bytes;
}
