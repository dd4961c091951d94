/* SPDX-License-Identifier: MIT */
/* The child's main program. It must know nothing of the recorder but scope.h. */
#include "recorder/child.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0 && write(STDOUT_FILENO, text, (size_t)length) != length)
        _exit(97);
}

void *keep(void *address)
{
    __asm__ volatile("" : "+r"(address) : : "memory");
    return address;
}

long number(int argc, char **argv, int i, long otherwise)
{
    return i < argc ? strtol(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
    const struct command *tables[] = {hook_commands,    heap_commands, thread_commands,
                                      process_commands, map_commands,  stack_commands,
                                      limit_commands};
    for (size_t i = 0; argc > 1 && i < sizeof tables / sizeof *tables; i++)
        for (const struct command *each = tables[i]; each->name; each++)
            if (strcmp(each->name, argv[1]) == 0)
                return each->run(argc - 1, argv + 1);
    say("no such command\n");
    return 96;
}
