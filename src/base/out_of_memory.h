/* SPDX-License-Identifier: MIT */
/* The failure that most functions have. */
#ifndef MT_BASE_OUT_OF_MEMORY_H
#define MT_BASE_OUT_OF_MEMORY_H

struct mt_error; /* <memtally/error.h> */

/* mt_fail() with MT_ENOMEM and "out of memory". */
int mt_out_of_memory(struct mt_error *error);

/* The same; the text begins with `name`, of the file or folder that memory was for. */
int mt_out_of_memory_for(struct mt_error *error, const char *name);

#endif
