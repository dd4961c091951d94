/* SPDX-License-Identifier: MIT */
/* The multi-purpose program that the recorder's tests run: one sub-command for each behaviour. */
#ifndef MT_TESTS_RECORDER_CHILD_H
#define MT_TESTS_RECORDER_CHILD_H

#include <stddef.h>
#include <stdint.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command hook_commands[];
extern const struct command heap_commands[];
extern const struct command thread_commands[];
extern const struct command process_commands[];
extern const struct command map_commands[];
extern const struct command stack_commands[];
extern const struct command limit_commands[];

/* Prints without allocating. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* A pointer that the compiler knows nothing of, so that it cannot drop an allocation. */
void *keep(void *address);

/* argv[i] as a number, or `otherwise` where there is none. */
long number(int argc, char **argv, int i, long otherwise);

/* Stops the program where `condition` does not hold. */
#define MUST(condition)                                                                            \
    do                                                                                             \
        if (!(condition)) {                                                                        \
            say("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
            _exit(98);                                                                             \
        }                                                                                          \
    while (0)

#endif
