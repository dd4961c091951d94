/* SPDX-License-Identifier: MIT */
/* What drivers were measured to take of this machine's cards ('memtally doctor --calibrate'), kept
 * in $XDG_STATE_HOME/memtally/cards.json (else ~/.local/state). One entry for each card, by its
 * UUID; the file is replaced as a whole. */
#ifndef CLI_CARD_STORE_H
#define CLI_CARD_STORE_H

#include <memtally/calibrate.h>

#include "base/strbuf.h"

#define CLI_CARDS_KEPT 64

struct cli_cards {
    struct mt_calibration card[CLI_CARDS_KEPT];
    size_t n;
};

/* Appends the path of the file. Errors: MT_ENOTFOUND where neither XDG_STATE_HOME nor HOME is set.
 */
int cli_cards_path(struct mt_strbuf *path, struct mt_error *error);

/* What was measured here. Without a home or a file nothing was. Errors: MT_EFORMAT (the file is
 * none of ours; the text says what to do), MT_EIO, MT_EPERM, MT_ENOMEM. */
int cli_cards_load(struct cli_cards *cards, struct mt_error *error);

/* Keeps `cards` beside those of other UUIDs; a file that cannot be read is written anew. */
int cli_cards_keep(const struct cli_cards *cards, struct mt_error *error);

/* That of a card which a table of GPUs knows by this key, or of one whose memory is `bytes` by NVML
 * where `key` is NULL; NULL where none was measured. */
const struct mt_calibration *cli_cards_find(const struct cli_cards *cards, const char *key,
                                            uint64_t bytes);

#endif
