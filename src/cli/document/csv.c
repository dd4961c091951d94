/* SPDX-License-Identifier: MIT */
/* A document as CSV: its runs, or else the rows of its tally. */
#include <memtally/provenance.h>
#include <memtally/tally.h>
#include <memtally/units.h>

#include "emit/csv.h"
#include "internal.h"

static void put_runs(const struct cli_document *document, struct mt_csv *csv)
{
    mt_csv_headings(csv, "steps,batch_size,max_new_tokens,latency_ms,peak_memory_bytes,prefill_ms,"
                         "decode_ms,peak_device_bytes");
    for (size_t i = 0; i < document->n_runs; i++) {
        const struct cli_document_run *run = &document->runs[i];
        if (run->warm_up)
            continue;
        mt_csv_count(csv, run->steps);
        mt_csv_count(csv, run->batch_size);
        mt_csv_count(csv, run->max_new_tokens);
        mt_csv_real(csv, run->latency_ms);
        mt_csv_count(csv, run->peak_memory_bytes);
        mt_csv_real(csv, run->prefill_ms);
        mt_csv_real(csv, run->decode_ms);
        mt_csv_count(csv, run->peak_device_bytes);
        mt_csv_end_line(csv);
    }
}

/* What a line of the tally is about. */
struct line {
    const char *recording;
    const char *level; /* "row" or "detail": the details of a row add up to it */
    const char *place;
    const char *category;
    const char *name;
    const char *provenance;
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
    uint64_t count;
};

static void put_line(struct mt_csv *csv, const struct line *line)
{
    mt_csv_text(csv, line->recording);
    mt_csv_text(csv, line->place);
    mt_csv_text(csv, line->level);
    mt_csv_text(csv, line->category);
    mt_csv_text(csv, line->name);
    mt_csv_count(csv, line->allocated_bytes);
    mt_csv_count(csv, line->resident_bytes);
    mt_csv_count(csv, line->count);
    mt_csv_text(csv, line->provenance);
    mt_csv_end_line(csv);
}

static void put_row(struct mt_csv *csv, const char *recording, const char *place,
                    const struct mt_tally_row *row)
{
    const char *category = mt_category_name(row->category);
    put_line(csv, &(struct line){recording, "row", place, category, NULL, cli_row_provenance(row),
                                 row->allocated_bytes, row->resident_bytes, row->count});
    for (size_t i = 0; i < row->n_details; i++) {
        const struct mt_tally_detail *detail = &row->details[i];
        put_line(csv,
                 &(struct line){recording, "detail", place, category, detail->name,
                                mt_provenance_name(detail->provenance), detail->allocated_bytes,
                                detail->resident_bytes, detail->count});
    }
}

static void put_tally(const struct cli_document *document, struct mt_csv *csv)
{
    const struct mt_tally *tally = document->tally;
    if (!document->follows_another)
        mt_csv_headings(csv, "recording,place,level,category,name,allocated_bytes,resident_bytes,"
                             "count,provenance");
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_place *place = &tally->places[p];
        for (size_t r = 0; r < place->n_rows; r++)
            put_row(csv, document->recording, place->place, &place->rows[r]);
        put_line(csv, &(struct line){document->recording, "row", place->place, "unattributed", NULL,
                                     mt_provenance_name(MT_PROVENANCE_MEASURED), MT_UNKNOWN,
                                     place->unattributed_bytes, MT_UNKNOWN});
    }
}

void cli_document_csv(const struct cli_document *document, struct mt_strbuf *out)
{
    struct mt_csv csv = {out, 0};
    if (document->estimate)
        cli_csv_estimate(document, out);
    else if (document->n_runs)
        put_runs(document, &csv);
    else
        put_tally(document, &csv);
}
