/* SPDX-License-Identifier: MIT */
/* Making a tally of a recording: choosing the moment, carrying each process to it, and
 * putting the claims into rows. */
#include <memtally/error.h>
#include <memtally/tally.h>
#include <memtally/units.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/error.h"
#include "base/invariant.h"
#include "pytorch/torch.h"
#include "tally/attribute.h"
#include "tally/carry.h"
#include "tally/device_notes.h"
#include "tally/device_rows.h"
#include "tally/forks.h"
#include "tally/moment.h"
#include "tally/rows.h"
#include "tally/tree.h"
#include "tally_arena.h"

static const char *const shared_rule =
    "file pages by identity (device, inode, offset); anonymous pages shared after a fork by the "
    "kernel's proportional share (Pss_Anon) if all were pictured together, else by how much each "
    "process shared";

struct work {
    const struct mt_recording *recording;
    struct mt_tally_arena *arena;
    struct mt_shared_pages seen;
    struct mt_claims tree;
    struct mt_moment_found found;
    struct mt_forks forks;
    int is_peak;
    struct mt_tally_process *processes;
    uint64_t tree_total;
    uint64_t tree_rollup;
    int tree_rollup_known;
    const char *model_path;
    const char *engine_name;
    struct mt_torch *torch; /* NULL: nothing was told of PyTorch */
    uint64_t shared_bytes;
    uint64_t unknown;    /* processes whose resident size nobody knows */
    uint64_t carried;    /* processes that are shown by what was seen at another time */
    uint64_t carried_ns; /* how far at the most */
    uint64_t bare;       /* processes without any picture */
    uint64_t unseen;     /* bytes in mappings that no call was seen for */
    uint64_t above;      /* bytes by which the peak stood above the picture that shows it */
};

/* As OUTSIDE_ONLY numbers them. */
static const char *const reasons[] = {"the recorder was not loaded",
                                      "statically linked",
                                      "setuid, setgid or capabilities",
                                      "ended before it could be looked at",
                                      "built with a sanitizer",
                                      "it ran before memtally attached",
                                      "its mappings are open to its own user and to root only"};

#define N_REASONS         (sizeof reasons / sizeof *reasons)
#define TORCH_NOTES_MAX   32u
#define MUCH_UNSEEN_BYTES ((uint64_t)1 << 20)

static void add_bytes(uint64_t *sum, uint64_t bytes)
{
    if (*sum == MT_UNKNOWN || bytes == MT_UNKNOWN)
        *sum = MT_UNKNOWN;
    else
        *sum += bytes;
}

static int by_resident(const void *a, const void *b)
{
    const struct mt_tally_detail *x = a;
    const struct mt_tally_detail *y = b;
    if (x->resident_bytes != y->resident_bytes)
        return x->resident_bytes > y->resident_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int is_empty(const struct mt_claim *claim)
{
    return !claim->resident_bytes && (claim->allocated_unknown || !claim->allocated_bytes);
}

/* The row of one category; 0 where no claim has it. */
static int make_row(struct mt_tally_arena *arena, const struct mt_claims *claims,
                    enum mt_category category, struct mt_tally_row *row)
{
    size_t n = 0;
    for (size_t i = 1; i < claims->n; i++)
        n += claims->items[i].category == category && !is_empty(&claims->items[i]);
    if (!n)
        return 0;
    struct mt_tally_detail *details = mt_tally_alloc(arena, n * sizeof *details);
    if (!details)
        return MT_ENOMEM;
    *row = (struct mt_tally_row){
        .category = category,
        .low_bytes = MT_UNKNOWN,
        .high_bytes = MT_UNKNOWN,
        .provenance = MT_PROVENANCE_READ,
        .details = details,
        .n_details = n,
    };
    struct mt_tally_detail *detail = details;
    for (size_t i = 1; i < claims->n; i++) {
        const struct mt_claim *claim = &claims->items[i];
        if (claim->category != category || is_empty(claim))
            continue;
        *detail = (struct mt_tally_detail){
            .name = mt_tally_text(arena, claim->name),
            .allocated_bytes = claim->allocated_unknown ? MT_UNKNOWN : claim->allocated_bytes,
            .resident_bytes = claim->resident_bytes,
            .count = claim->count,
            .provenance = claim->provenance,
            .low_bytes = MT_UNKNOWN,
            .high_bytes = MT_UNKNOWN,
        };
        add_bytes(&row->allocated_bytes, detail->allocated_bytes);
        row->resident_bytes += detail->resident_bytes;
        row->count += detail->count;
        if (detail->provenance > row->provenance)
            row->provenance = detail->provenance;
        if (!detail++->name)
            return MT_ENOMEM;
    }
    qsort(details, n, sizeof *details, by_resident);
    return 1;
}

struct mt_tally_place *mt_tally_make_place(struct mt_tally_arena *arena,
                                           const struct mt_claims *claims, uint64_t total)
{
    struct mt_tally_place *place = mt_tally_alloc(arena, sizeof *place);
    struct mt_tally_row *rows = mt_tally_alloc(arena, MT_CATEGORY_END * sizeof *rows);
    if (!place || !rows)
        return NULL;
    *place = (struct mt_tally_place){
        .place = "host",
        .total_allocated_bytes = MT_UNKNOWN,
        .total_low_bytes = MT_UNKNOWN,
        .total_high_bytes = MT_UNKNOWN,
        .total_resident_bytes = total,
        .peak_resident_bytes = MT_UNKNOWN,
        .capacity_bytes = MT_UNKNOWN,
        .unattributed_bytes = claims->n ? claims->items[0].resident_bytes : 0,
        .rows = rows,
    };
    for (int category = 1; category < MT_CATEGORY_END; category++) {
        int made = make_row(arena, claims, (enum mt_category)category, &rows[place->n_rows]);
        if (made < 0)
            return NULL;
        place->n_rows += (size_t)made;
    }
    return place;
}

static uint64_t page_bytes_of(const struct work *work, const struct mt_image *image)
{
    const struct mt_record_file *file = image->file ? image->file : work->recording->watch;
    return file->header.page_bytes;
}

static uint64_t anonymous_bytes(const struct mt_attribution *attribution)
{
    uint64_t anonymous = 0;
    for (size_t i = 0; i < attribution->claims.n; i++)
        anonymous += attribution->claims.items[i].anonymous_bytes;
    return anonymous;
}

/* What a fork left shared of a claim: in proportion to its anonymous pages, which is no more than
 * likely. */
static uint64_t shared_part(const struct mt_claim *claim, uint64_t anonymous, uint64_t shared)
{
    uint64_t part = 0;
    if (anonymous)
        part = (uint64_t)((double)shared * ((double)claim->anonymous_bytes / (double)anonymous));
    return part < claim->anonymous_bytes ? part : claim->anonymous_bytes;
}

/* Adds a process's claims to the tree's, without the pages that earlier processes hold. */
static int add_to_tree(struct work *work, const struct mt_attribution *attribution,
                       uint64_t anonymous, uint64_t shared)
{
    for (size_t i = 0; i < attribution->claims.n; i++) {
        const struct mt_claim *claim = &attribution->claims.items[i];
        uint64_t cow = shared_part(claim, anonymous, shared);
        enum mt_provenance provenance = claim->provenance;
        if (cow && provenance < MT_PROVENANCE_INFERRED)
            provenance = MT_PROVENANCE_INFERRED;
        size_t index = i == 0 ? 0
                              : mt_claim_of(&work->tree, claim->category, provenance, claim->name,
                                            strlen(claim->name));
        if (i && !index)
            return MT_ENOMEM;
        struct mt_claim *sum = &work->tree.items[index];
        uint64_t bytes = claim->resident_bytes - claim->shared_bytes - cow;
        sum->allocated_bytes += claim->allocated_bytes;
        sum->allocated_unknown |= claim->allocated_unknown;
        sum->resident_bytes += bytes;
        sum->count += claim->count;
        work->tree_total += bytes;
        work->shared_bytes += claim->shared_bytes + cow;
    }
    return 0;
}

/* How what is known of a process was known. */
static void note_carried(struct work *work, const struct mt_process_choice *choice,
                         const struct mt_carried *carried)
{
    uint64_t at = work->found.at.ns;
    if (!carried->is_carried) {
        uint64_t shown = choice->picture ? choice->picture->resident_bytes : 0;
        work->above = choice->least_bytes > shown ? choice->least_bytes - shown : 0;
        return;
    }
    work->tree_rollup_known = 0;
    if (!choice->picture) {
        work->bare++;
        return;
    }
    uint64_t ns = choice->picture->ns;
    uint64_t apart = ns > at ? ns - at : at - ns;
    work->carried++;
    work->carried_ns = apart > work->carried_ns ? apart : work->carried_ns;
}

static int attribute(struct work *work, const struct mt_process_choice *choice,
                     struct mt_carried *carried, struct mt_attribution *attribution)
{
    const struct mt_image *image = choice->image;
    const struct mt_image *root = mt_tree_root(work->recording, image);
    const struct mt_image *recorded = mt_tree_recorded(work->recording, image);
    struct mt_replay replay;
    const struct mt_subject subject = {
        .carried = carried,
        .first_maps = root ? &root->first_maps : NULL,
        .page_bytes = page_bytes_of(work, image),
        .replay = recorded ? &replay : NULL,
        .every_block = recorded && !recorded->file->header.exact_from_bytes,
    };
    mt_replay_init(&replay);
    int result =
        mt_carry(work->recording, choice, &work->found.at, work->is_peak, &replay, carried);
    if (result == 0)
        result = mt_attribute(&subject, &work->seen, attribution);
    mt_replay_finish(&replay);
    return result;
}

static void note_names(struct work *work, const struct mt_attribution *attribution)
{
    if (!work->engine_name)
        work->engine_name = attribution->engine_name;
    if (!work->model_path && attribution->model_path)
        work->model_path = mt_tally_text(work->arena, attribution->model_path);
}

static void describe_place(struct work *work, const struct mt_process_choice *choice,
                           const struct mt_attribution *attribution, struct mt_tally_place *place,
                           struct mt_tally_process *process)
{
    place->skew_known = attribution->rollup_bytes != MT_UNKNOWN;
    if (place->skew_known) {
        place->picture_skew_bytes =
            (int64_t)(attribution->rollup_bytes - attribution->total_resident_bytes);
        work->tree_rollup += attribution->rollup_bytes;
    } else {
        work->tree_rollup_known = 0;
    }
    place->peak_resident_bytes = choice->image->high_water_bytes;
    process->places = place;
    process->n_places = 1;
    process->swap_bytes = attribution->swap_bytes;
    work->unseen += attribution->unseen_bytes;
    if (choice->picture)
        process->picture_time_ns = mt_recording_time(work->recording, choice->picture->ns);
    note_names(work, attribution);
}

/* A process of which nothing is known is not one that has nothing. What one that is gone never gave
 * back is not there any more. */
static int is_known(const struct mt_process_choice *choice, const struct mt_carried *carried,
                    const struct mt_attribution *attribution)
{
    if (attribution->total_resident_bytes || choice->picture)
        return 1;
    for (size_t i = 1; i < attribution->claims.n && !carried->is_gone; i++)
        if (attribution->claims.items[i].allocated_bytes)
            return 1;
    return 0;
}

static int add_attributed(struct work *work, size_t i, const struct mt_carried *carried,
                          const struct mt_attribution *attribution)
{
    const struct mt_process_choice *choice = &work->found.choices[i];
    if (!is_known(choice, carried, attribution)) {
        work->unknown++;
        work->tree_rollup_known = 0;
        return 0;
    }
    uint64_t anonymous = anonymous_bytes(attribution);
    uint64_t shared = mt_forks_shared(&work->forks, i, carried, anonymous);
    struct mt_tally_place *place =
        mt_tally_make_place(work->arena, &attribution->claims, attribution->total_resident_bytes);
    if (!place || add_to_tree(work, attribution, anonymous, shared) < 0)
        return MT_ENOMEM;
    note_carried(work, choice, carried);
    work->processes[i].is_carried = carried->is_carried;
    describe_place(work, choice, attribution, place, &work->processes[i]);
    return 0;
}

static size_t reason_of(const struct mt_image *image)
{
    return image->outside_reason < N_REASONS ? (size_t)image->outside_reason : 0;
}

static uint64_t caught_bytes(const struct mt_image *image)
{
    uint64_t best = 0;
    for (size_t i = 0; i < image->n_pictures; i++)
        if (image->pictures[i].resident_bytes > best)
            best = image->pictures[i].resident_bytes;
    return image->n_pictures ? best : MT_UNKNOWN;
}

static int describe_process(struct work *work, const struct mt_process_choice *choice,
                            struct mt_tally_process *process)
{
    const struct mt_image *image = choice->image;
    const struct mt_file_header *header = image->file ? &image->file->header : NULL;
    int is_recorded = mt_tree_recorded(work->recording, image) != NULL;
    *process = (struct mt_tally_process){
        .pid = image->pid,
        .parent_pid = image->parent_pid,
        .command = mt_tally_text(work->arena, image->command),
        .end = mt_tally_text(work->arena, image->end_text),
        .observed = is_recorded ? "recorder" : "outside",
        .observed_reason = is_recorded ? "" : reasons[reason_of(image)],
        .start_ns = mt_recording_time(work->recording, image->start_ns),
        .end_ns = mt_recording_time(work->recording, image->end_ns),
        .picture_time_ns = MT_UNKNOWN,
        .peak_resident_bytes = image->high_water_bytes,
        .peak_caught_bytes = caught_bytes(image),
        .pictures_taken = image->n_pictures,
        .pictures_skipped = header ? header->pictures_skipped : 0,
        .swap_bytes = MT_UNKNOWN,
    };
    return process->command && process->end ? 0 : MT_ENOMEM;
}

static int add_process(struct work *work, size_t i)
{
    const struct mt_process_choice *choice = &work->found.choices[i];
    struct mt_attribution attribution;
    struct mt_carried carried = {0};
    int result = describe_process(work, choice, &work->processes[i]);
    if (result == 0)
        result = attribute(work, choice, &carried, &attribution);
    if (result == 0) {
        result = add_attributed(work, i, &carried, &attribution);
        mt_attribution_finish(&attribution);
    }
    mt_carried_finish(&carried);
    return result;
}

static int add_note(struct work *work, struct mt_tally *tally, const char *text)
{
    const char **notes = mt_tally_alloc(work->arena, (tally->n_notes + 1) * sizeof *notes);
    char *copy = mt_tally_text(work->arena, text);
    if (!notes || !copy)
        return MT_ENOMEM;
    for (size_t i = 0; i < tally->n_notes; i++)
        notes[i] = tally->notes[i];
    notes[tally->n_notes++] = copy;
    tally->notes = notes;
    return 0;
}

static int add_outside_notes(struct work *work, struct mt_tally *tally)
{
    uint64_t count[N_REASONS] = {0};
    char text[256];
    for (size_t i = 0; i < work->recording->n_images; i++)
        if (!mt_tree_recorded(work->recording, &work->recording->images[i]))
            count[reason_of(&work->recording->images[i])]++;
    for (size_t i = 0; i < N_REASONS; i++) {
        if (!count[i])
            continue;
        snprintf(text, sizeof text,
                 "%" PRIu64
                 " process%s seen from outside only (%s): what of %s heap is in use is not "
                 "known",
                 count[i], count[i] == 1 ? " was" : "es were", reasons[i],
                 count[i] == 1 ? "its" : "their");
        if (add_note(work, tally, text) < 0)
            return MT_ENOMEM;
    }
    if (!work->unknown)
        return 0;
    snprintf(text, sizeof text,
             "%" PRIu64 " process%s alive whose memory could not be read: the total is without %s",
             work->unknown, work->unknown == 1 ? " was" : "es were",
             work->unknown == 1 ? "it" : "them");
    return add_note(work, tally, text);
}

static int add_recorder_notes(struct work *work, struct mt_tally *tally)
{
    char text[256];
    uint64_t skipped = 0;
    uint64_t skipped_bytes = 0;
    uint64_t dropped = 0;
    for (size_t i = 0; i < work->recording->n_images; i++) {
        const struct mt_record_file *file = work->recording->images[i].file;
        if (!file)
            continue;
        skipped += file->header.pictures_skipped;
        dropped += file->header.samples_dropped;
        if (file->header.skipped_resident_bytes > skipped_bytes)
            skipped_bytes = file->header.skipped_resident_bytes;
    }
    if (skipped) {
        snprintf(text, sizeof text,
                 "%" PRIu64 " picture%s skipped to stay within the pictures' share of run time; "
                 "the largest was at %" PRIu64 " MiB resident",
                 skipped, skipped == 1 ? "" : "s", skipped_bytes >> 20);
        if (add_note(work, tally, text) < 0)
            return MT_ENOMEM;
    }
    if (!dropped)
        return 0;
    snprintf(text, sizeof text, "%" PRIu64 " heap samples did not fit and were dropped", dropped);
    return add_note(work, tally, text);
}

/* A little is always libc's own. */
static int add_unseen_mappings_note(struct work *work, struct mt_tally *tally)
{
    char text[256];
    if (work->unseen < MUCH_UNSEEN_BYTES)
        return 0;
    snprintf(text, sizeof text,
             "%" PRIu64
             " MiB that are unattributed lie in mappings for which no call was seen: the "
             "program asked the kernel past libc",
             work->unseen >> 20);
    return add_note(work, tally, text);
}

/* How far the pictures that the total is made of lie apart. */
static uint64_t spread_ns(const struct work *work, size_t n_choices)
{
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    for (size_t i = 0; i < n_choices; i++) {
        const struct mt_picture *picture = work->found.choices[i].picture;
        if (!picture || work->processes[i].is_carried)
            continue;
        first = picture->ns < first ? picture->ns : first;
        last = picture->ns > last ? picture->ns : last;
    }
    return last > first ? last - first : 0;
}

static int add_spread_note(struct work *work, struct mt_tally *tally)
{
    char text[256];
    uint64_t apart_ns = spread_ns(work, tally->n_processes);
    if (apart_ns < MT_PICTURES_APART_NS)
        return 0;
    work->tree_rollup_known = 0;
    snprintf(text, sizeof text,
             "the pictures of the processes lie up to %" PRIu64 " ms apart: the total is put "
             "together from different moments",
             apart_ns / 1000000);
    return add_note(work, tally, text);
}

/* What the processes of a peak touched between two looks may have been there with more of the
 * others' than is shown. */
static int add_between_note(struct work *work, struct mt_tally *tally)
{
    char text[256];
    uint64_t most = work->recording->peaks.most_bytes;
    if (!work->is_peak || work->recording->n_images < 2 ||
        most <= work->tree_total + work->tree_total / 32 + (1u << 20))
        return 0;
    snprintf(text, sizeof text,
             "the processes may have had up to %" PRIu64
             " MiB together for a moment between two looks: when they touched what came to them "
             "is not known",
             most >> 20);
    return add_note(work, tally, text);
}

static int add_carried_notes(struct work *work, struct mt_tally *tally)
{
    char text[256];
    int result = 0;
    if (work->above) {
        snprintf(
            text, sizeof text,
            "of moments that stand as high as the peak the one is shown where most of the heap "
            "was in use; at the highest %" PRIu64 " KiB more were resident, which are "
            "unattributed",
            (work->above + 1023) / 1024);
        result = add_note(work, tally, text);
    }
    if (work->carried && result == 0) {
        snprintf(text, sizeof text,
                 "%" PRIu64 " process%s shown by pictures up to %" PRIu64
                 " ms away from the moment and the events in between: what is inferred follows "
                 "from these",
                 work->carried, work->carried == 1 ? " is" : "es are", work->carried_ns / 1000000);
        result = add_note(work, tally, text);
    }
    if (work->bare && result == 0) {
        snprintf(text, sizeof text,
                 "of %" PRIu64
                 " process%s no picture of the resident pages could be taken: what is inferred "
                 "follows from events, and how much of it was touched is not known",
                 work->bare, work->bare == 1 ? "" : "es");
        result = add_note(work, tally, text);
    }
    return result;
}

static uint64_t sum_of(const struct mt_claims *claims)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < claims->n; i++)
        sum += claims->items[i].resident_bytes;
    return sum;
}

/* Each device at its own peak where the peak is asked for, since the processes' memory may be
 * highest at another time. */
static int add_device(struct work *work, const struct mt_tally *tally, uint64_t moment_ns,
                      size_t device, struct mt_tally_place *place)
{
    const struct mt_devices *devices = &work->recording->devices;
    struct mt_device_moment peak;
    struct mt_device_moment moment;
    struct mt_claims claims;
    char name[MT_PLACE_NAME_BYTES];
    if (mt_device_peak(devices, device, &peak) < 0 ||
        mt_device_at(devices, device, moment_ns, &moment) < 0 || mt_claims_init(&claims) < 0)
        return MT_ENOMEM;
    if (tally->moment.kind == MT_MOMENT_PEAK)
        moment = peak;
    int result = mt_device_claims(devices, device, &moment, tally->moment.kind == MT_MOMENT_PEAK,
                                  work->torch, &claims);
    uint64_t sum = sum_of(&claims);
    struct mt_tally_place *made =
        result < 0 ? NULL : mt_tally_make_place(work->arena, &claims, sum);
    mt_claims_finish(&claims);
    mt_device_place_name(&devices->places[device], name);
    char *text = mt_tally_text(work->arena, name);
    if (!made || !text)
        return MT_ENOMEM;
    *place = *made;
    place->place = text;
    place->device_name = mt_tally_text(work->arena, devices->places[device].name);
    place->uuid = mt_tally_text(work->arena, devices->places[device].uuid);
    place->peak_resident_bytes = peak.used_bytes != MT_UNKNOWN   ? mt_device_taken(&peak)
                                 : peak.seen_bytes != MT_UNKNOWN ? peak.seen_bytes
                                                                 : peak.allocated_bytes;
    place->others_bytes = mt_device_others(&moment);
    place->capacity_bytes = devices->places[device].total_bytes;
    return place->device_name && place->uuid ? 0 : MT_ENOMEM;
}

static int add_refusal_note(struct work *work, struct mt_tally *tally, size_t device)
{
    char text[512];
    if (mt_device_refusal_note(&work->recording->devices, device, work->recording->start_ns,
                               work->torch, text, sizeof text) < 0)
        return MT_ENOMEM;
    return *text ? add_note(work, tally, text) : 0;
}

/* What the helper in Python said: each sentence once, whatever number of processes said it. */
static int add_torch_notes(struct work *work, struct mt_tally *tally)
{
    const struct mt_torch_note *said;
    for (size_t i = 0; work->torch && tally->n_notes < TORCH_NOTES_MAX &&
                       (said = mt_torch_note_at(work->torch, i)) != NULL;
         i++) {
        size_t known = 0;
        while (known < tally->n_notes && strcmp(tally->notes[known], said->text) != 0)
            known++;
        if (known == tally->n_notes && add_note(work, tally, said->text) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

/* Devices that were there, and that no recorder sees. */
static int add_unseen_note(struct work *work, struct mt_tally *tally)
{
    char text[320];
    for (size_t i = 0; i < work->recording->n_machine; i++) {
        const struct mt_machine_sample *sample = &work->recording->machine[i];
        if (sample->kind != MT_MACHINE_UNSEEN)
            continue;
        snprintf(text, sizeof text,
                 "memtally does not record memory of AMD's and Intel's devices, and here is %.*s",
                 (int)(sample->text.length < 200 ? sample->text.length : 200),
                 (const char *)sample->text.data);
        return add_note(work, tally, text);
    }
    return 0;
}

static int add_devices(struct work *work, struct mt_tally *tally, uint64_t moment_ns)
{
    size_t n = work->recording->devices.n_places;
    struct mt_tally_place *places = mt_tally_alloc(work->arena, (n + 1) * sizeof *places);
    if (!places)
        return MT_ENOMEM;
    places[0] = tally->places[0];
    tally->places = places;
    if (n && mt_torch_open(work->recording->path, &work->torch, NULL) == MT_ENOMEM)
        return MT_ENOMEM;
    mt_device_tell_torch(&work->recording->devices, work->torch);
    for (size_t i = 0; i < n; i++)
        if (add_device(work, tally, moment_ns, i, &places[tally->n_places++]) < 0 ||
            add_refusal_note(work, tally, i) < 0)
            return MT_ENOMEM;
    int result = add_torch_notes(work, tally);
    return result < 0 ? result : add_unseen_note(work, tally);
}

static int finish_tree(struct work *work, struct mt_tally *tally)
{
    struct mt_tally_place *place = mt_tally_make_place(work->arena, &work->tree, work->tree_total);
    if (!place || mt_moment_peak_bytes(work->recording, &place->peak_resident_bytes) < 0)
        return MT_ENOMEM;
    if (add_spread_note(work, tally) < 0 || add_carried_notes(work, tally) < 0 ||
        add_between_note(work, tally) < 0)
        return MT_ENOMEM;
    if (work->tree_rollup_known) {
        place->skew_known = 1;
        place->picture_skew_bytes =
            (int64_t)(work->tree_rollup - work->shared_bytes - work->tree_total);
    }
    place->capacity_bytes = tally->machine.memory_total_bytes;
    tally->places = place;
    tally->n_places = 1;
    int result = add_recorder_notes(work, tally);
    if (result == 0)
        result = add_unseen_mappings_note(work, tally);
    return result < 0 ? result : add_outside_notes(work, tally);
}

/* A process that did not live at the moment: listed, and no part of the total. */
static int add_absent(struct work *work, const struct mt_image *image,
                      struct mt_tally_process *process)
{
    const struct mt_process_choice choice = {.image = image};
    return describe_process(work, &choice, process);
}

static int is_chosen(const struct work *work, size_t n_choices, const struct mt_image *image)
{
    /* Choices are in the order of the images. */
    struct mt_bisect place = {.end = n_choices};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, work->found.choices[place.middle].image < image);
    return place.first < n_choices && work->found.choices[place.first].image == image;
}

static int add_absent_ones(struct work *work, size_t n_choices)
{
    size_t n = n_choices;
    int result = 0;
    for (size_t i = 0; i < work->recording->n_images && result == 0; i++) {
        const struct mt_image *image = &work->recording->images[i];
        if (!is_chosen(work, n_choices, image))
            result = add_absent(work, image, &work->processes[n++]);
    }
    return result;
}

static struct mt_tally_moment tally_moment(const struct work *work, enum mt_moment_kind kind,
                                           enum mt_category category)
{
    const struct mt_moment moment = {.kind = kind, .category = category};
    const struct mt_instant at = mt_moment_instant(work->recording, &moment);
    return (struct mt_tally_moment){moment, mt_recording_time(work->recording, at.ns),
                                    at.bytes ? at.bytes : MT_UNKNOWN};
}

/* The peaks of the recording, for who asked for one and may want another. */
static int add_moments(struct work *work, struct mt_tally *tally)
{
    struct mt_tally_moment *moments =
        mt_tally_alloc(work->arena, (MT_CATEGORY_END + 2) * sizeof *moments);
    size_t n = 0;
    if (!moments)
        return MT_ENOMEM;
    moments[n++] = tally_moment(work, MT_MOMENT_PEAK, MT_CATEGORY_NONE);
    if (work->recording->peaks.heap.ns)
        moments[n++] = tally_moment(work, MT_MOMENT_HEAP_PEAK, MT_CATEGORY_NONE);
    for (int category = 1; category < MT_CATEGORY_END; category++)
        if (work->recording->peaks.of[category].ns)
            moments[n++] = tally_moment(work, MT_MOMENT_CATEGORY_PEAK, (enum mt_category)category);
    tally->moments = moments;
    tally->n_moments = n;
    return 0;
}

static int make_tally(struct work *work, const struct mt_moment *moment, struct mt_tally *tally)
{
    const size_t n_choices = work->found.n_choices;
    const size_t n_processes = work->recording->n_images;
    int result = mt_claims_init(&work->tree);
    work->tree_rollup_known = 1;
    work->is_peak = moment->kind == MT_MOMENT_PEAK;
    work->processes = mt_tally_alloc(work->arena, n_processes * sizeof *work->processes);
    if (result == 0)
        result = mt_forks_init(&work->forks, work->recording, &work->found);
    if (!work->processes)
        result = MT_ENOMEM;
    for (size_t i = 0; i < n_choices && result == 0; i++)
        result = add_process(work, i);
    if (result == 0)
        result = add_absent_ones(work, n_choices);
    if (result == 0)
        result = add_moments(work, tally);
    if (result < 0)
        return result;
    tally->kind = MT_TALLY_MEASUREMENT;
    tally->moment = *moment;
    tally->moment_ns = mt_recording_time(work->recording, work->found.at.ns);
    tally->shared_rule = shared_rule;
    tally->engine_name = work->engine_name;
    tally->model_path = work->model_path;
    tally->n_processes = n_choices;
    tally->other_processes = work->processes + n_choices;
    tally->n_other_processes = n_processes - n_choices;
    tally->processes = work->processes;
    mt_moment_machine(work->recording, &work->found, &tally->machine);
    result = finish_tree(work, tally);
    return result < 0 ? result : add_devices(work, tally, work->found.at.ns);
}

int mt_recording_tally(const struct mt_recording *recording, const struct mt_moment *moment,
                       struct mt_tally **tally, struct mt_error *error)
{
    struct work work = {.recording = recording};
    int result = mt_moment_choose(recording, moment, &work.found, error);
    if (result < 0)
        return result;
    struct mt_tally *made = mt_tally_create(&work.arena);
    result = made ? make_tally(&work, moment, made) : MT_ENOMEM;
    free(work.found.choices);
    mt_forks_finish(&work.forks);
    mt_shared_pages_finish(&work.seen);
    mt_claims_finish(&work.tree);
    mt_torch_close(work.torch);
    if (result < 0) {
        mt_tally_destroy(made);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: %s", recording->path,
                       mt_error_sentence(result));
    }
    MT_HOLDS(mt_tally_adds_up(made));
    *tally = made;
    return 0;
}
