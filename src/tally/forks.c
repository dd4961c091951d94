/* SPDX-License-Identifier: MIT */
/* Shared memory of forks. Where all of a family were pictured while all of it lived, the kernel's
 * shares (Pss_Anon) add up to each page once. A share of another moment is that of another family:
 * a process that has ended shares nothing, and one that nobody listed may have had a part. How many
 * of its pages a process shares, with however many, holds for longer: then the family's first has
 * its memory in full, and each of the others what it does not share with those before it. */
#include "tally/forks.h"

#include <stdlib.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "tally/tree.h"

#define SKEW_BYTES ((uint64_t)1 << 20)

/* The anonymous memory that the kernel counts for others; 0 also says that nobody shared any. Where
 * only the pages that it shares are known, half of them: what two processes have. */
static uint64_t others_bytes(const struct mt_picture *picture)
{
    uint64_t counted = mt_picture_field(picture, MT_TEXT_ROLLUP, "Shared_Anon");
    if (counted != MT_UNKNOWN)
        return counted / 2;
    uint64_t anonymous = mt_picture_field(picture, MT_TEXT_ROLLUP, "Anonymous");
    uint64_t proportional = mt_picture_field(picture, MT_TEXT_ROLLUP, "Pss_Anon");
    if (anonymous == MT_UNKNOWN || proportional == MT_UNKNOWN || anonymous < proportional)
        return 0;
    return anonymous - proportional;
}

/* The kernel says how many pages are shared, among them those of files and of shared memory. Of
 * anonymous ones it counts a page that n processes have to 1/n for each: what is the others' is
 * from a half of them up to nearly all. */
static uint64_t shared_bytes(const struct mt_picture *picture)
{
    uint64_t counted = mt_picture_field(picture, MT_TEXT_ROLLUP, "Shared_Anon");
    if (counted != MT_UNKNOWN)
        return counted;
    uint64_t least = picture->others_bytes;
    uint64_t most = least > UINT64_MAX / 2 ? least : 2 * least;
    uint64_t dirty = mt_picture_field(picture, MT_TEXT_ROLLUP, "Shared_Dirty");
    if (dirty == MT_UNKNOWN || dirty > most)
        return most;
    return dirty > least ? dirty : least;
}

static void find_sharing(struct mt_image *image)
{
    size_t last = 0;
    size_t next = image->n_pictures;
    for (size_t i = 0; i < image->n_pictures; i++) {
        struct mt_picture *picture = &image->pictures[i];
        picture->others_bytes = others_bytes(picture);
        picture->has_no_shares =
            mt_picture_field(picture, MT_TEXT_ROLLUP, "Shared_Anon") != MT_UNKNOWN;
        picture->shared_bytes = shared_bytes(picture);
        last = picture->others_bytes ? i + 1 : last;
        picture->last_sharing = last;
    }
    for (size_t i = image->n_pictures; i-- > 0;) {
        next = image->pictures[i].others_bytes ? i : next;
        image->pictures[i].next_sharing = next;
    }
}

void mt_forks_find(struct mt_recording *recording)
{
    for (size_t i = 0; i < recording->n_images; i++) {
        struct mt_image *image = &recording->images[i];
        const struct mt_image *root = mt_tree_root(recording, image);
        const struct mt_image *parent = mt_tree_parent(recording, image);
        image->root = root ? (size_t)(root - recording->images) : i;
        if (parent)
            recording->images[parent - recording->images].has_forked = 1;
        struct mt_image *family = &recording->images[image->root];
        image->elders_end_ns = family->family_end_ns;
        if (family->family_end_ns < image->end_ns)
            family->family_end_ns = image->end_ns;
        find_sharing(image);
    }
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

const struct mt_picture *mt_forks_picture(const struct mt_image *image, uint64_t ns)
{
    if (!image->n_pictures)
        return NULL;
    const struct mt_picture *end = image->pictures + image->n_pictures;
    const struct mt_picture *before = mt_image_picture_before(image, ns);
    const struct mt_picture *after = before ? before + 1 : image->pictures;
    if (before)
        before = before->last_sharing ? image->pictures + before->last_sharing - 1 : NULL;
    if (after != end)
        after = image->pictures + after->next_sharing;
    if (after == end)
        return before;
    return before && ns - before->ns <= after->ns - ns ? before : after;
}

/* ---- families ---- */

/* Whether a picture of a process says what it shared with those of its family that live at the
 * moment. */
static int is_of_family(const struct mt_fork *leader, const struct mt_process_choice *choice)
{
    const struct mt_picture *picture = choice->picture;
    return picture && choice->pictured == choice->image && picture->others_bytes &&
           picture->ns >= leader->all_from_ns && picture->ns <= leader->all_until_ns;
}

static int is_near(const struct mt_picture *picture, uint64_t ns)
{
    return distance(picture->ns, ns) < MT_PICTURES_APART_NS;
}

static void find_leaders(struct mt_forks *forks)
{
    const struct mt_moment_found *found = forks->found;
    size_t *leaders = forks->leaders;
    for (size_t i = 0; i < found->n_choices; i++) {
        const struct mt_image *image = found->choices[i].image;
        struct mt_fork *fork = &forks->forks[i];
        if (!leaders[image->root])
            leaders[image->root] = i + 1;
        fork->leader = leaders[image->root] - 1;
        struct mt_fork *leader = &forks->forks[fork->leader];
        if (fork == leader)
            *leader = (struct mt_fork){
                .leader = i, .all_until_ns = UINT64_MAX, .is_pictured = 1, .is_single = 1};
        else
            leader->is_single = 0;
        leader->n_members++;
        if (image->start_ns > leader->all_from_ns)
            leader->all_from_ns = image->start_ns;
        if (image->end_ns < leader->all_until_ns)
            leader->all_until_ns = image->end_ns;
    }
}

/* The kernel counted a part for processes that nobody listed if the shares are fewer than the pages
 * that one process alone shares. */
static void find_pictured(struct mt_forks *forks)
{
    const struct mt_moment_found *found = forks->found;
    for (size_t i = 0; i < found->n_choices; i++) {
        const struct mt_process_choice *choice = &found->choices[i];
        struct mt_fork *leader = &forks->forks[forks->forks[i].leader];
        if (!is_of_family(leader, choice) || !is_near(choice->picture, found->at.ns) ||
            (choice->picture->has_no_shares && leader->n_members > 2)) {
            leader->is_pictured = 0;
            continue;
        }
        uint64_t shared = choice->picture->shared_bytes;
        leader->shares_bytes += shared - choice->picture->others_bytes;
        leader->most_shared_bytes =
            shared > leader->most_shared_bytes ? shared : leader->most_shared_bytes;
    }
    for (size_t i = 0; i < found->n_choices; i++) {
        struct mt_fork *fork = &forks->forks[i];
        if (fork->shares_bytes + fork->most_shared_bytes / 64 + SKEW_BYTES <
            fork->most_shared_bytes)
            fork->is_pictured = 0;
    }
}

int mt_forks_init(struct mt_forks *forks, const struct mt_recording *recording,
                  const struct mt_moment_found *found)
{
    *forks = (struct mt_forks){.recording = recording, .found = found};
    forks->forks = calloc(found->n_choices + 1, sizeof *forks->forks);
    forks->leaders = calloc(recording->n_images + 1, sizeof *forks->leaders);
    if (!forks->forks || !forks->leaders)
        return MT_ENOMEM;
    find_leaders(forks);
    find_pictured(forks);
    return 0;
}

void mt_forks_finish(struct mt_forks *forks)
{
    free(forks->forks);
    free(forks->leaders);
    *forks = (struct mt_forks){0};
}

/* ---- what is counted for others ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t end_of(const struct mt_run_pages *run)
{
    return run->first_page + run->n_pages;
}

/* Anonymous pages that both have at the same place. */
static uint64_t common_pages(const struct mt_picture *a, const struct mt_picture *b)
{
    uint64_t pages = 0;
    for (size_t i = 0, j = 0; i < a->n_runs && j < b->n_runs;) {
        const struct mt_run_pages *x = &a->runs[i];
        const struct mt_run_pages *y = &b->runs[j];
        uint64_t low = most(x->first_page, y->first_page);
        uint64_t high = least(end_of(x), end_of(y));
        if (low < high && !(x->flags & MT_RUN_FILE) && !(y->flags & MT_RUN_FILE))
            pages += high - low;
        if (end_of(x) <= end_of(y))
            i++;
        else
            j++;
    }
    return pages;
}

/* What an image that nobody saw sharing has at addresses where its parent had something at about
 * the time of the fork. */
static uint64_t inherited_bytes(const struct mt_forks *forks, const struct mt_image *image,
                                const struct mt_carried *carried)
{
    const struct mt_image *parent = mt_tree_parent(forks->recording, image);
    if (!parent || !parent->file || !parent->n_pictures || !image->file)
        return UINT64_MAX;
    uint64_t fork_ns = mt_clock_ns(&parent->clock, mt_tree_fork_ticks(parent, image));
    const struct mt_picture *before = mt_image_picture_before(parent, fork_ns);
    const struct mt_picture *after = before ? before + 1 : parent->pictures;
    uint64_t pages = before ? common_pages(&carried->picture, before) : 0;
    if (after != parent->pictures + parent->n_pictures)
        pages = most(pages, common_pages(&carried->picture, after));
    return pages * parent->file->header.page_bytes;
}

/* What it shares with its own forks is not its parent's: that had no more than its size then. */
static uint64_t parent_bytes(const struct mt_forks *forks, const struct mt_image *image)
{
    const struct mt_image *parent = mt_tree_parent(forks->recording, image);
    if (!parent || !parent->n_points || !image->has_forked)
        return UINT64_MAX;
    uint64_t fork_ns = mt_clock_ns(&parent->clock, mt_tree_fork_ticks(parent, image));
    uint64_t bytes = 0;
    for (size_t i = 0; i < parent->n_points; i++) {
        if (parent->points[i].ns > fork_ns)
            return most(bytes, parent->points[i].resident_bytes);
        bytes = parent->points[i].resident_bytes;
    }
    return bytes;
}

static uint64_t shared_with_elders(const struct mt_forks *forks,
                                   const struct mt_process_choice *choice,
                                   const struct mt_carried *carried)
{
    const struct mt_picture *picture = mt_forks_picture(choice->image, forks->found->at.ns);
    uint64_t shared =
        picture ? picture->shared_bytes : inherited_bytes(forks, choice->image, carried);
    return least(shared, parent_bytes(forks, choice->image));
}

/* What the others of the family may share of a process's memory. Pages that it shares become fewer
 * as time goes by, unless it forks: what it shared earlier is enough. */
static uint64_t offered_bytes(const struct mt_forks *forks, const struct mt_fork *leader,
                              const struct mt_process_choice *choice, uint64_t anonymous_bytes)
{
    if (is_of_family(leader, choice) && choice->picture->ns <= forks->found->at.ns)
        return least(choice->picture->shared_bytes, anonymous_bytes);
    return anonymous_bytes;
}

uint64_t mt_forks_shared(struct mt_forks *forks, size_t i, const struct mt_carried *carried,
                         uint64_t anonymous_bytes)
{
    const struct mt_process_choice *choice = &forks->found->choices[i];
    struct mt_fork *leader = &forks->forks[forks->forks[i].leader];
    if (leader->is_single)
        return 0;
    if (leader->is_pictured)
        return least(carried->picture.others_bytes, anonymous_bytes);
    int is_quiet = choice->pictured != choice->image && !choice->image->file;
    uint64_t shared = 0;
    if (leader != &forks->forks[i])
        shared = is_quiet
                     ? anonymous_bytes
                     : least(shared_with_elders(forks, choice, carried), leader->offered_bytes);
    shared = least(shared, anonymous_bytes);
    uint64_t offered = offered_bytes(forks, leader, choice, anonymous_bytes);
    leader->offered_bytes += offered > shared ? offered - shared : 0;
    return shared;
}
