/* SPDX-License-Identifier: MIT */
/* Reading what llama-bench printed; apart from its driver so that tests reach it. */
#ifndef DRIVE_LLAMA_BENCH_H
#define DRIVE_LLAMA_BENCH_H

#include "profile.h"

/* Takes the document that llama-bench printed into the journal: facts, runs, the ends of phases.
 * Returns 0, or MT_EFORMAT with the journal failed where it is no JSON or lacks what is needed. */
int mt_profile_llama_bench_take(struct mt_profile_job *job, const char *text, size_t length);

#endif
