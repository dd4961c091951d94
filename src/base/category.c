/* SPDX-License-Identifier: MIT */
/* Names of the categories, generated from the one list. */
#include <memtally/category.h>

#include <string.h>

const char *mt_category_name(enum mt_category category)
{
    switch ((int)category) {
    case MT_CATEGORY_NONE:
        return "none";
#define CASE(NAME, value, name, holds)                                                             \
    case value:                                                                                    \
        return name;
        MT_CATEGORY_LIST(CASE)
#undef CASE
    default:
        return "?";
    }
}

enum mt_category mt_category_by_name(const char *name)
{
#define COMPARE(NAME, value, text, holds)                                                          \
    if (strcmp(name, text) == 0)                                                                   \
        return MT_CATEGORY_##NAME;
    MT_CATEGORY_LIST(COMPARE)
#undef COMPARE
    return MT_CATEGORY_NONE;
}
