/* SPDX-License-Identifier: MIT */
/* How a public function of a look-alike is written: its name, its arguments, what it does. */
#ifndef MT_CUDA_CALL_H
#define MT_CUDA_CALL_H

#include "pretend/cuda/abi/driver_base.h"

#define CALL(name, arguments, ...)                                                                 \
    PRETEND_CALL int name arguments;                                                               \
    PRETEND_CALL int name arguments                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#endif
