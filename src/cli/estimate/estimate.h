/* SPDX-License-Identifier: MIT */
/* The parts of 'memtally estimate': by the engine itself where it is there, several files, a
 * matrix, two versions.
 */
#ifndef CLI_ESTIMATE_ESTIMATE_H
#define CLI_ESTIMATE_ESTIMATE_H

#include "cli/model/model.h"

/* Whether the options leave room for a rehearsal, as MEMTALLY_NO_REHEARSE in the environment does
 * not. */
int estimate_may_rehearse(const struct estimate_options *options);

/* What estimate_rehearse() does; where the engine itself fails the estimate by rules stays, with a
 * note. */
int estimate_must_rehearse(struct estimate_result *result, const char *name,
                           struct estimate_request *request, const struct estimate_options *options,
                           struct mt_error *error);

/* The same where an engine of the version that was asked for is at hand; where it cannot be done
 * the estimate by rules stays, with a note. */
void estimate_try_to_rehearse(struct estimate_result *result, const char *name,
                              struct estimate_request *request,
                              const struct estimate_options *options);

/* By the engine itself where it is there; one that was named must be. */
int estimate_confirm(struct estimate_result *result, const char *name,
                     struct estimate_request *request, const struct estimate_options *options,
                     struct mt_error *error);

/* Why one of several files has no estimate, as an object of a list. */
void estimate_put_failure(const char *name, const struct mt_error *error, struct mt_json *json);

/* Estimates each of several files, and writes which is the largest that fits, the engine itself
 * being asked of that. *found says whether one does. */
int estimate_best(const struct cli_call *call, struct estimate_request *request,
                  struct mt_strbuf *out, int *found, struct mt_error *error);

/* Estimates types by contexts, by rules. *found says whether one of them fits. */
int estimate_matrix(const struct cli_call *call, const struct estimate_request *request,
                    struct mt_strbuf *out, int *found, struct mt_error *error);

/* Compares two versions of an engine (--changes), by rules. */
int estimate_changes(const struct cli_call *call, const struct estimate_request *request,
                     struct mt_strbuf *out, struct mt_error *error);

#endif
