/* SPDX-License-Identifier: MIT */
/* Python's frames among a stack's native ones. */
#ifndef MT_TALLY_PYTHON_FRAMES_H
#define MT_TALLY_PYTHON_FRAMES_H

#include <stddef.h>
#include <stdint.h>

int mt_is_python_frame(uint64_t frame);

/* Puts the frames of Python, which come behind the native ones in a recording, where the
 * interpreter was called for them. names[] has a name for each of frames[]; returns how many are
 * left. */
size_t mt_python_frames_place(const uint64_t *frames, const char **names, size_t n);

#endif
