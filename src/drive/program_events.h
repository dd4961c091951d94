/* SPDX-License-Identifier: MIT */
/* What our programs in engines/ report of a profile: one JSON event a line of standard output. The
 * grammar is on top of node-llama-cpp.mjs. */
#ifndef DRIVE_PROGRAM_EVENTS_H
#define DRIVE_PROGRAM_EVENTS_H

#include "profile.h"

/* Writes an event into the journal; take_line of a driver. */
int mt_profile_take_event(struct mt_profile_job *job, enum mt_profile_stream stream,
                          const char *line, size_t length, uint64_t time_ns);

#endif
