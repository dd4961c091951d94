/* SPDX-License-Identifier: MIT */
/* Words that completion offers for options whose value is free text: those that memtally knows,
 * each after a blank. */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "base/strbuf.h"

void cli_words_engines(struct mt_strbuf *out);
void cli_words_rehearsed_engines(struct mt_strbuf *out);
void cli_words_gpus(struct mt_strbuf *out);
void cli_words_generations(struct mt_strbuf *out);
void cli_words_cache_types(struct mt_strbuf *out);
void cli_words_weight_types(struct mt_strbuf *out);
void cli_words_moments(struct mt_strbuf *out);

#endif
