/* SPDX-License-Identifier: MIT */
/* Rows of quantised tensors on ggml's CUDA devices (MATRIX_ROW_PADDING of ggml-cuda): kernels read
 * a row in whole steps, so the last row of a tensor has room for one. Rules and rehearsals share
 * it. */
#ifndef MT_ENGINE_ROW_PADDING_H
#define MT_ENGINE_ROW_PADDING_H

#include <stdint.h>

/* How many elements are behind the last row, in steps of so many; 0: there are no steps. */
static inline uint64_t mt_row_padding(uint64_t elements, uint64_t step)
{
    uint64_t over = step ? elements % step : 0;
    return over ? step - over : 0;
}

#endif
