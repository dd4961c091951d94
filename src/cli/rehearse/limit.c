/* SPDX-License-Identifier: MIT */
/* A limit on devices that have more. */
#include "cli/rehearse/limit.h"

#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "drive/engines.h"

/* Those that pass it; *fullest is the one that holds most, or NULL. */
static size_t beyond(const struct mt_tally *tally, uint64_t limit_bytes,
                     const struct mt_tally_place **fullest)
{
    size_t n = 0;
    *fullest = NULL;
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        if (strncmp(place->place, "gpu:", 4) != 0 || place->total_allocated_bytes == MT_UNKNOWN ||
            place->total_allocated_bytes <= limit_bytes)
            continue;
        n++;
        if (!*fullest || place->total_allocated_bytes > (*fullest)->total_allocated_bytes)
            *fullest = place;
    }
    return n;
}

static void tell_rows(const struct mt_tally_place *place, struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    const char *before = ": ";
    for (size_t i = 0; i < place->n_rows; i++) {
        const struct mt_tally_row *row = &place->rows[i];
        if (row->allocated_bytes == MT_UNKNOWN || !row->allocated_bytes)
            continue;
        mt_strbuf_printf(out, "%s%s %s", before, mt_category_name(row->category),
                         mt_format_size(row->allocated_bytes, size));
        before = ", ";
    }
    mt_strbuf_puts(out, ".");
}

static void tell_run(const struct mt_drive_result *result, uint64_t limit_bytes,
                     struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    mt_format_size(limit_bytes, size);
    if (result->is_unseen || (!mt_drive_ran(result) && !result->refusal))
        return;
    if (!result->refusal) {
        mt_strbuf_printf(out, " On devices that have %s it runs as well.", size);
        return;
    }
    const char *stack = mt_rehearsal_stack_of(result->rehearsal, result->refusal);
    char asked[MT_SIZE_TEXT];
    mt_strbuf_printf(out, " The limit is passed on %s where %s are asked for",
                     result->refusal->place, mt_format_size(result->refusal->bytes, asked));
    if (stack && *stack)
        mt_strbuf_printf(out, " by %s", stack);
    mt_strbuf_puts(out, ".");
}

/* On devices of which all but `limit_bytes` is taken: they say of themselves what they are. */
static void run_within(const struct mt_drive_job *job, uint64_t limit_bytes, struct mt_strbuf *out)
{
    struct mt_drive_job held = *job;
    struct mt_error error;
    struct mt_rehearsal_device *devices = calloc(job->n_devices, sizeof *devices);
    struct mt_drive_result *result = calloc(1, sizeof *result);
    for (size_t i = 0; devices && i < job->n_devices; i++) {
        devices[i] = job->devices[i];
        if (devices[i].bytes - devices[i].reserved_bytes > limit_bytes)
            devices[i].reserved_bytes = devices[i].bytes - limit_bytes;
    }
    held.devices = devices;
    held.folder = NULL;
    held.hides_output = 1;
    held.label = "looking for what passes the limit";
    if (devices && result && mt_drive_run(&held, result, &error) == 0) {
        tell_run(result, limit_bytes, out);
        mt_drive_result_finish(result);
    }
    free(result);
    free(devices);
}

size_t rehearse_limit_tell(const struct mt_drive_job *job, const struct mt_drive_result *result,
                           const struct mt_tally *tally, uint64_t limit_bytes,
                           struct mt_strbuf *out)
{
    const struct mt_tally_place *fullest;
    char held[MT_SIZE_TEXT], more[MT_SIZE_TEXT], limit[MT_SIZE_TEXT];
    size_t n = beyond(tally, limit_bytes, &fullest);
    if (!n)
        return 0;
    mt_strbuf_printf(out, "%s takes %s, %s more than the limit of %s", fullest->place,
                     mt_format_size(fullest->total_allocated_bytes, held),
                     mt_format_size(fullest->total_allocated_bytes - limit_bytes, more),
                     mt_format_size(limit_bytes, limit));
    tell_rows(fullest, out);
    if (result->is_cuda)
        run_within(job, limit_bytes, out);
    return n;
}
