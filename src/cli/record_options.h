/* SPDX-License-Identifier: MIT */
/* The options of commands that record a program: rows of their option tables, which differ in what
 * they say of the cost. */
#ifndef CLI_RECORD_OPTIONS_H
#define CLI_RECORD_OPTIONS_H

#include "cli/command.h"

/* In the order of enum mt_depth and enum mt_stacks. */
static const char *const cli_depths[] = {"default", "full", NULL};
static const char *const cli_stacks[] = {"fp", "unwind", "none", NULL};

/* int, int and double at `place`. */
#define CLI_OPTION_DEPTH(place, says)                                                              \
    {                                                                                              \
        .name = "depth", .kind = CLI_CHOICE, .argument = "DEPTH", .fallback = "default",           \
        .choices = cli_depths, .offset = (place), .help = (says)                                   \
    }
#define CLI_OPTION_STACKS(place, says)                                                             \
    {                                                                                              \
        .name = "stacks", .kind = CLI_CHOICE, .argument = "HOW", .fallback = "fp",                 \
        .choices = cli_stacks, .offset = (place), .help = (says)                                   \
    }
#define CLI_OPTION_PICTURE_SHARE(place, says)                                                      \
    {                                                                                              \
        .name = "picture-share", .kind = CLI_REAL, .argument = "PERCENT", .fallback = "2",         \
        .most = 100, .offset = (place), .help = (says)                                             \
    }

#endif
