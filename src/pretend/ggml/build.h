/* SPDX-License-Identifier: MIT */
/* Which build of the engine a process's ggml is of, and so which rules its devices behave by. */
#ifndef MT_REHEARSAL_GGML_BUILD_H
#define MT_REHEARSAL_GGML_BUILD_H

#include <stdint.h>

#include "rehearse/account.h"

/* Takes what a ggml says of itself: its version ("0.25.1", NULL where it does not say), the API
 * version of its backends, and the engine's build, 0 where it does not say. If the driver knows no
 * build, the account takes the rules of the most similar build. */
void pretend_choose_build(struct mt_account *account, const char *ggml_version,
                          uint32_t api_version, uint32_t build);

/* Notes that a graph has something in it that builds treat differently, if they do. */
static inline void pretend_meet_doubt(struct mt_account *account, uint32_t doubt)
{
    doubt &= account->builds.doubts;
    if (doubt)
        __atomic_fetch_or(&account->builds.doubts_met, doubt, __ATOMIC_RELAXED);
}

#endif
