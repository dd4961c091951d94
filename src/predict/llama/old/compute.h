/* SPDX-License-Identifier: MIT */
/* Compute buffers of ik_llama.cpp, and of llama.cpp before its rules of 2026. */
#ifndef MT_PREDICT_LLAMA_COMPUTE_OLD_H
#define MT_PREDICT_LLAMA_COMPUTE_OLD_H

#include "predict/llama/llama.h"

/* The same as mt_llama_compute_buffers(), for engines whose table says `compute.rules old`: one
 * buffer for each device, then the host's.
 * Errors: MT_ENOMEM, MT_ELIMIT (the graph is larger than any engine's). */
int mt_llama_compute_buffers_old(const struct mt_llama_plan *plan,
                                 struct mt_compute_buffer *buffers, struct mt_error *error);

#endif
