/* SPDX-License-Identifier: MIT */
/* From settings to the command line of a program of llama.cpp. */
#ifndef DRIVE_COMMAND_LINE_H
#define DRIVE_COMMAND_LINE_H

#include "profile.h"

struct mt_predict_settings; /* <memtally/settings.h> */

/* What is to be started. All borrowed. */
struct mt_drive_line {
    const char *program;    /* path */
    const char *script;     /* of ours, where the program is Node.js */
    const char *modules;    /* then the folder that holds node_modules */
    const char *model_path; /* of a GGUF file */
    const struct mt_predict_settings
        *settings;     /* as they were asked for: what is open stays open */
    const char *flags; /* as the engine's version spells them, of an estimate of these settings */
    int port;          /* of a server */
    int places_itself; /* the version decides what goes to the devices where that is left open */
    int drafts;        /* the model has layers that draft */
};

/* Writes the command line of a program that plans memory and computes nothing. Errors: MT_ENOMEM,
 * MT_ELIMIT, MT_EUNSUPPORTED (the program takes no command line). */
int mt_drive_command_line(const struct mt_drive_line *line, struct mt_profile_command *command,
                          struct mt_error *error);

/* Writes what a user would type after the program, without what only a rehearsal needs; "" where
 * all is left to the engine. The caller frees it; NULL without memory. */
char *mt_drive_asked_flags(const struct mt_drive_line *line);

#endif
