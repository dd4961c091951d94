/* SPDX-License-Identifier: MIT */
/* Families by name. */
#include "model/families.h"

#include <string.h>

static const char *const names[] = {
#define FAMILY(id, name) [MT_ARCH_##id] = (name),
#include "model/families.def"
};

static const char *const beginnings[] = {
#define LINEAGE(id, beginning) [MT_LINEAGE_##id] = (beginning),
#include "model/families.def"
};

enum mt_arch mt_arch_of(const char *name)
{
    int arch = 0;
    while (arch < MT_ARCH_UNKNOWN && (!name || strcmp(names[arch], name) != 0))
        arch++;
    return (enum mt_arch)arch;
}

const char *mt_arch_name(enum mt_arch arch)
{
    return arch < MT_ARCH_UNKNOWN ? names[arch] : NULL;
}

int mt_is_of_lineage(const char *name, enum mt_lineage lineage)
{
    return name && strncmp(name, beginnings[lineage], strlen(beginnings[lineage])) == 0;
}
