/* SPDX-License-Identifier: MIT */
/* From a recording to a document. */
#include "cli/document/loaded.h"

#include <memtally/recording.h>
#include <memtally/snapshot.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "drive/running.h"

static void fill_document(struct cli_loaded *loaded, const char *path, size_t n_timeline)
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    document.recording = path;
    document.tally = loaded->tally;
    document.timeline = loaded->timeline;
    document.n_timeline = n_timeline;
    document.device_timelines = loaded->device_timelines;
    document.n_device_timelines = loaded->n_device_timelines;
    document.histories = loaded->histories;
    if (loaded->recording)
        document.n_marks = mt_recording_marks(loaded->recording, &document.marks);
    document.damage = &loaded->damage;
    document.stacks = loaded->stacks;
    loaded->document = document;
}

static int load_snapshot(struct cli_loaded *loaded, const char *path,
                         const struct cli_load_options *options, struct mt_error *error)
{
    struct mt_snapshot *snapshot;
    if (options->histories)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: is a snapshot already; the viewer opens it as it is", path);
    int result = mt_snapshot_open(path, &snapshot, error);
    if (result)
        return result;
    result = mt_snapshot_tally(snapshot, &options->moment, &loaded->tally, error);
    if (result == 0 && options->stacks)
        result = mt_snapshot_stacks(snapshot, &options->moment, options->stacks_limit,
                                    &loaded->stacks, error);
    mt_snapshot_close(snapshot);
    if (result == 0)
        fill_document(loaded, path, 0);
    return result;
}

/* What nobody could see from outside is unknown, and no zero. */
static int tell_unseen(struct cli_loaded *loaded, int is_model, struct mt_error *error)
{
    struct mt_drive_words *words = calloc(1, sizeof *words);
    int result = words ? 0 : mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (words)
        mt_drive_unseen_words(loaded->tally, is_model, words);
    for (size_t i = 0; words && i < words->n && result == 0; i++)
        result = mt_tally_tell(loaded->tally, &words->items[i], error);
    if (words && *words->why) {
        snprintf(loaded->unseen, sizeof loaded->unseen, "not all of its memory is told apart: %s",
                 words->why);
        loaded->notes[0] = loaded->unseen;
        loaded->document.notes = loaded->notes;
        loaded->document.n_notes = 1;
    }
    free(words);
    return result;
}

int cli_load(struct cli_loaded *loaded, const char *path, const struct cli_load_options *options,
             struct mt_error *error)
{
    size_t n_timeline = 0;
    if (mt_snapshot_is_file(path))
        return load_snapshot(loaded, path, options, error);
    int result = mt_recording_open(path, &loaded->recording, error);
    if (result)
        return result;
    mt_recording_damage(loaded->recording, &loaded->damage);
    result = mt_recording_tally(loaded->recording, &options->moment, &loaded->tally, error);
    if (result)
        return result;
    result = mt_recording_timeline(loaded->recording, &loaded->timeline, &n_timeline, error);
    if (result)
        return result;
    result = mt_recording_device_timelines(loaded->recording, &loaded->device_timelines,
                                           &loaded->n_device_timelines, error);
    if (result)
        return result;
    if (options->histories)
        result = mt_recording_device_histories(loaded->recording, &loaded->histories, error);
    if (result)
        return result;
    if (options->stacks)
        result = mt_recording_stacks(loaded->recording, &options->moment, options->stacks_limit,
                                     &loaded->stacks, error);
    if (result)
        return result;
    fill_document(loaded, path, n_timeline);
    return options->is_told ? 0 : tell_unseen(loaded, options->is_model, error);
}

void cli_unload(struct cli_loaded *loaded)
{
    mt_stack_list_destroy(loaded->stacks);
    mt_timeline_destroy(loaded->timeline);
    mt_device_histories_destroy(loaded->histories);
    mt_device_timelines_destroy(loaded->device_timelines, loaded->n_device_timelines);
    mt_tally_destroy(loaded->tally);
    mt_recording_close(loaded->recording);
    *loaded = (struct cli_loaded){0};
}
