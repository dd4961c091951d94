/* SPDX-License-Identifier: MIT */
/* Options that several commands have: rows of their option tables, which differ in where the value
 * goes and in what they say. */
#ifndef CLI_SHARED_OPTIONS_H
#define CLI_SHARED_OPTIONS_H

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

/* const char * at `place`; `what` is what is written. */
#define CLI_OPTION_OUTPUT(place, what)                                                             \
    {                                                                                              \
        .name = "output", .letter = 'o', .kind = CLI_FILE, .argument = "FILE", .offset = (place),  \
        .help = "write to FILE, and replace it only once the " what " is complete"                 \
    }
/* int at `place`. */
#define CLI_OPTION_ALL(place, says)                                                                \
    {                                                                                              \
        .name = "all", .letter = 'a', .kind = CLI_FLAG, .offset = (place), .help = (says)          \
    }
#define CLI_OPTION_QUIET(place, says)                                                              \
    {                                                                                              \
        .name = "quiet", .letter = 'q', .kind = CLI_FLAG, .offset = (place), .help = (says)        \
    }
/* uint64_t at `place`. */
#define CLI_OPTION_TIMEOUT(place, seconds, seconds_most, says)                                     \
    {                                                                                              \
        .name = "timeout", .kind = CLI_COUNT, .argument = "SECONDS", .fallback = (seconds),        \
        .least = 1, .most = (seconds_most), .offset = (place), .help = (says)                      \
    }
#define CLI_OPTION_PID(place, says)                                                                \
    {                                                                                              \
        .name = "pid", .letter = 'p', .kind = CLI_COUNT, .argument = "PID", .least = 1,            \
        .most = INT_MAX, .offset = (place), .help = (says)                                         \
    }
/* struct cli_texts at `place`: devices, by their names or their memory. */
#define CLI_OPTION_ON(place, says)                                                                 \
    {                                                                                              \
        .name = "on", .kind = CLI_TEXTS, .argument = "DEVICE[,DEVICE...]", .offset = (place),      \
        .words = cli_words_gpus, .is_list = 1, .help = (says)                                      \
    }
/* const char * at `place`: a moment of a recording. */
#define CLI_OPTION_AT(place, says)                                                                 \
    {                                                                                              \
        .name = "at", .kind = CLI_TEXT, .argument = "MOMENT", .fallback = "peak",                  \
        .offset = (place), .words = cli_words_moments, .help = (says)                              \
    }
/* const char * at `place`; `known` offers words for completion. */
#define CLI_OPTION_ENGINE(place, known, says)                                                      \
    {                                                                                              \
        .name = "engine", .letter = 'e', .kind = CLI_TEXT, .argument = "NAME[@VERSION]",           \
        .fallback = "llama.cpp", .offset = (place), .words = (known), .help = (says)               \
    }

#endif
