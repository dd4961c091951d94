/* SPDX-License-Identifier: MIT */
/* Uses scope.h from C. Linked into programs of several kinds and into a shared library. */
#include <memtally/scope.h>

#include "recorder/scope_user.h"

static char memory[64];

int use_scopes(const char *name)
{
    mt_scope_begin(MT_CATEGORY_KV_CACHE, name);
    mt_label(memory, sizeof memory, MT_CATEGORY_WEIGHTS, "of C");
    mt_unlabel(memory, sizeof memory);
    mt_scope_end();
    mt_mark("of C");
    return 5;
}
