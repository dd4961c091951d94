/* SPDX-License-Identifier: MIT */
/* C++ names as their authors wrote them, where this machine has a C++ runtime. */
#ifndef MT_SYMBOL_DEMANGLE_H
#define MT_SYMBOL_DEMANGLE_H

#include <stddef.h>

struct mt_demangler {
    void *library;
    char *(*demangle)(const char *mangled, char *buffer, size_t *length, int *status);
};

/* Opens the C++ runtime; without one, names stay as they are. */
void mt_demangler_init(struct mt_demangler *demangler);
void mt_demangler_finish(struct mt_demangler *demangler);

/* The name written out, owned by the caller who frees it with free(); NULL where `mangled` is no
 * C++ name or one that is not worth its cost. */
char *mt_demangle(const struct mt_demangler *demangler, const char *mangled);

#endif
