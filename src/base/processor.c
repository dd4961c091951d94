/* SPDX-License-Identifier: MIT */
/* Names of processors. What a machine has is for others to find out. */
#include <memtally/processor.h>
#include <stddef.h>

const char *mt_processor_name(enum mt_processor processor)
{
    static const char *const names[] = {
#define NAME(NAME_, name) name,
        MT_PROCESSOR_LIST(NAME)
#undef NAME
    };
    return (size_t)processor < sizeof names / sizeof *names ? names[processor] : names[0];
}
