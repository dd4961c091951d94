/* SPDX-License-Identifier: MIT */
/* The tables that are built in. */
#ifndef MT_ENGINE_TABLES_H
#define MT_ENGINE_TABLES_H

struct mt_engine_table {
    const char *name;
    const char *text;
    const char *end;
};

/* Ends with a row without a name. */
extern const struct mt_engine_table mt_engine_tables[];

#endif
