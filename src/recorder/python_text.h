/* SPDX-License-Identifier: MIT */
/* The name of a place in Python's code: "Model.forward (model.py:31)". */
#ifndef MT_RECORDER_PYTHON_TEXT_H
#define MT_RECORDER_PYTHON_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "recorder/recorder.h"

#define PYTHON_TEXT_BYTES 384u

/* Where the fields of a code object lie, and how long the heads of strings are. */
struct python_code_layout {
    uint16_t first_line;
    uint16_t name;
    uint16_t file;
    uint16_t lines;
    uint16_t instructions; /* where they begin; none up to 3.10 */
    uint16_t ascii_head;
    uint16_t wide_head;
};

struct python_layout {
    long version; /* 100 * major + minor */
    uint16_t state_frame;
    uint16_t cframe_frame;
    uint16_t frame_code;
    uint16_t frame_previous;
    uint16_t frame_instruction;
    uint16_t frame_owner;
    uint16_t frame_is_entry;
    struct python_code_layout code;
};

struct python_code {
    const struct python_code_layout *layout;
    long version;
    uintptr_t code;
    uintptr_t instruction;
    int (*get)(uintptr_t from, void *to, size_t length); /* 0 where it cannot be read */
};

/* Writes the text, not terminated, and returns its length; at most PYTHON_TEXT_BYTES - 1. */
HIDDEN size_t python_put_text(const struct python_code *code, char text[PYTHON_TEXT_BYTES]);

#endif
