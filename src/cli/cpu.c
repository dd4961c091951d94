/* SPDX-License-Identifier: MIT */
/* Which processor an engine runs on: as typed, as the environment says, or this machine's. */
#include "cli/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *const cli_cpus[] = {"here",
#define NAME(NAME_, name) name,
                                MT_PROCESSOR_LIST(NAME)
#undef NAME
                                    NULL};

int cli_take_cpu(int cpu, enum mt_processor *processor, struct mt_error *error)
{
    const char *named = getenv("MEMTALLY_CPU");
    if (!cpu && (!named || !*named || !strcmp(named, cli_cpus[0]))) {
        *processor = mt_processor_here();
        return 0;
    }
    for (int i = 1; !cpu && cli_cpus[i]; i++)
        if (!strcmp(named, cli_cpus[i]))
            cpu = i;
    if (!cpu)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "MEMTALLY_CPU is '%.40s', which is no kind of processor; see --cpu of "
                       "'memtally help estimate'",
                       named);
    *processor = (enum mt_processor)(cpu - 1);
    return 0;
}
