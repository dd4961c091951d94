/* SPDX-License-Identifier: MIT */
/* Families of models by number: their names are llama.cpp's, their records are in families.def.
 * Nothing else compares a family's name. */
#ifndef MT_MODEL_FAMILIES_H
#define MT_MODEL_FAMILIES_H

enum mt_arch {
#define FAMILY(id, name) MT_ARCH_##id,
#include "model/families.def"
    MT_ARCH_UNKNOWN
};

/* The family called so; MT_ARCH_UNKNOWN where there is none, or no name. */
enum mt_arch mt_arch_of(const char *name);
/* Its name, static; NULL of MT_ARCH_UNKNOWN. */
const char *mt_arch_name(enum mt_arch arch);

/* Families that have something in common by descent. */
enum mt_lineage {
#define LINEAGE(id, beginning) MT_LINEAGE_##id,
#include "model/families.def"
    MT_LINEAGES
};

/* Whether a family of that name is of the lineage, also one that has no record yet. */
int mt_is_of_lineage(const char *name, enum mt_lineage lineage);

#endif
