/* SPDX-License-Identifier: MIT */
/* The chain of purposes of a thread. */
#include "purpose.h"

#include <stdio.h>

static _Thread_local const struct purpose *innermost __attribute__((tls_model("initial-exec")));

void purpose_begin(struct purpose *purpose, enum mt_category category, const char *detail,
                   const char *of)
{
    const char *text = detail ? detail : "";
    purpose->category = category;
    purpose->outer = innermost;
    if (of && *of)
        snprintf(purpose->detail, sizeof purpose->detail, "%s%s%s", text, *text ? ", " : "", of);
    else
        snprintf(purpose->detail, sizeof purpose->detail, "%s", text);
    innermost = purpose;
}

void purpose_end(struct purpose *purpose)
{
    innermost = purpose->outer;
}

enum mt_category current_purpose(const char **detail)
{
    if (detail)
        *detail = innermost ? innermost->detail : "";
    return innermost ? innermost->category : MT_CATEGORY_NONE;
}
