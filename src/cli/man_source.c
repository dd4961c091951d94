/* SPDX-License-Identifier: MIT */
/* Man pages in scdoc's language. */
#include "cli/help.h"

int cli_man_source(struct mt_strbuf *out, const struct cmd_entry *entry, const char *prose,
                   struct mt_error *error)
{
    (void)entry;
    (void)error;
    mt_strbuf_puts(out, prose);
    return 0;
}
void cli_completion_bash(struct mt_strbuf *out)
{
    (void)out;
}
void cli_completion_zsh(struct mt_strbuf *out)
{
    (void)out;
}
