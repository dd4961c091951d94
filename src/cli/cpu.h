/* SPDX-License-Identifier: MIT */
/* The option --cpu: which processor an engine runs on. */
#ifndef CLI_CPU_H
#define CLI_CPU_H

#include <memtally/processor.h>

struct mt_error; /* <memtally/error.h> */

/* "here", then the kinds of enum mt_processor, ended by NULL. */
extern const char *const cli_cpus[];

/* The processor by the index of its name in cli_cpus; for "here" what MEMTALLY_CPU in the
 * environment names, else this machine's. Errors: MT_EARG (no such kind in the environment). */
int cli_take_cpu(int cpu, enum mt_processor *processor, struct mt_error *error);

#endif
