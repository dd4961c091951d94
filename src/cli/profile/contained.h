/* SPDX-License-Identifier: MIT */
/* memtally profile --container: the engine and the model are the container's. */
#ifndef CLI_PROFILE_CONTAINED_H
#define CLI_PROFILE_CONTAINED_H

#include "cli/document/document.h"
#include "container/container.h"
#include "drive/contained_engine.h"

/* Start with {0}. */
struct profile_contained {
    struct mt_container *container;
    struct mt_contained_engine found;
    struct mt_contained *contained;
    char note[192];
};

/* Finds the container, its engine and its model. Returns CLI_EXIT_OK, or complains.
 * mt_http_start() was called before. */
int profile_contained_find(const char *name, struct profile_contained *profile);

/* Copies in what the engine is run with. */
int profile_contained_open(struct profile_contained *profile);

/* Removes it; complains where that fails, and then returns another code than `code`, which is that
 * of what went before. */
int profile_contained_close(struct profile_contained *profile, int code);

/* Why the recorder was not in the engine, as a sentence; NULL where it was. Borrowed. */
const char *profile_contained_note(struct profile_contained *profile);

/* Writes the document to results/memory-profiles/NAME_YYYYMMDD_HHMMSS.json, and says so. */
int profile_contained_keep(const struct profile_contained *profile,
                           const struct cli_document *document);

#endif
