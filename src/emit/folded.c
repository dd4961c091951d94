/* SPDX-License-Identifier: MIT */
/* The writer of folded stacks. */
#include "emit/folded.h"

#include <inttypes.h>

static void put_frame(struct mt_strbuf *out, const char *name)
{
    for (; *name; name++) {
        char safe = *name;
        if (safe == ';')
            safe = ':';
        else if ((unsigned char)safe < 0x20 || safe == 0x7f)
            safe = ' ';
        mt_strbuf_append(out, &safe, 1);
    }
}

void mt_folded_stack(struct mt_strbuf *out, const char *place, const char *const *frames,
                     size_t n_frames, int complete, uint64_t weight)
{
    if (place) {
        put_frame(out, place);
        mt_strbuf_puts(out, ";");
    }
    if (n_frames == 0)
        mt_strbuf_puts(out, "[unknown]");
    else if (!complete)
        mt_strbuf_puts(out, "[truncated];");
    for (size_t i = n_frames; i-- > 0;) {
        put_frame(out, frames[i] && *frames[i] ? frames[i] : "[unknown]");
        if (i)
            mt_strbuf_puts(out, ";");
    }
    mt_strbuf_printf(out, " %" PRIu64 "\n", weight);
}
