/* SPDX-License-Identifier: MIT */
/* What our programs in engines/ report of a profile: one JSON event a line of standard output. The
 * grammar is on top of node-llama-cpp.mjs. */
#ifndef DRIVE_PROGRAM_EVENTS_H
#define DRIVE_PROGRAM_EVENTS_H

#include "profile.h"

/* Writes an event into the journal; take_line of a driver. */
int mt_profile_take_event(struct mt_profile_job *job, enum mt_profile_stream stream,
                          const char *line, size_t length, uint64_t time_ns);

/* Makes the command line of such a program: the interpreter, the script, and the settings as JSON,
 * which it takes over. Errors: MT_EARG where `settings` is NULL, since a text was not UTF-8. */
int mt_profile_script_command(const struct mt_profile_job *job, struct mt_profile_command *words,
                              char *settings, struct mt_error *error);

#endif
