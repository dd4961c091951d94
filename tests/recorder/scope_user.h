/* SPDX-License-Identifier: MIT */
/* What the programs that try scope.h have in common, in C and in C++. */
#ifndef MT_TESTS_RECORDER_SCOPE_USER_H
#define MT_TESTS_RECORDER_SCOPE_USER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Sets a scope, labels and a mark of its own; returns how many calls it made. */
int use_scopes(const char *name);

#ifdef __cplusplus
}
#endif
#endif
