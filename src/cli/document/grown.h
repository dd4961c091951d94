/* SPDX-License-Identifier: MIT */
/* What grew in a recording, as lines and as an object of JSON on one line. */
#ifndef CLI_DOCUMENT_GROWN_H
#define CLI_DOCUMENT_GROWN_H

#include "base/strbuf.h"

struct mt_recording_growth; /* <memtally/growth.h> */

void cli_document_grown(const struct mt_recording_growth *growth, struct mt_strbuf *out);

/* `watched` is the place that a monitor watches: "pid:4711". */
void cli_document_grown_json(const struct mt_recording_growth *growth, const char *watched,
                             struct mt_strbuf *out);

#endif
