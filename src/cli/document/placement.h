/* SPDX-License-Identifier: MIT */
/* The document of a placement: kind "placement". */
#ifndef CLI_DOCUMENT_PLACEMENT_H
#define CLI_DOCUMENT_PLACEMENT_H

#include <memtally/model_file.h>
#include <memtally/place.h>

#include "cli/console.h"

/* All borrowed. */
struct cli_placement_document {
    const struct mt_model_description *model;
    const char *engine; /* as it was asked for */
    const struct mt_placed *placed;
    enum mt_place_policy policy;      /* of `shown` */
    const struct mt_placement *shown; /* the placement that was asked for */
    const struct mt_placement *compared[MT_PLACE_POLICY_COUNT]; /* by policy; NULL: not made */
};

void cli_placement_table(const struct cli_placement_document *document,
                         const struct cli_terminal *terminal, struct mt_strbuf *out);
void cli_placement_json(const struct cli_placement_document *document, struct mt_strbuf *out);
void cli_placement_svg(const struct cli_placement_document *document, struct mt_strbuf *out);
void cli_placement_html(const struct cli_placement_document *document, struct mt_strbuf *out);

#endif
