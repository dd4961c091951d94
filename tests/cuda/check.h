/* SPDX-License-Identifier: MIT */
/* What the programs of these tests hold: where it does not, they end with 3. */
#ifndef MT_TEST_CUDA_CHECK_H
#define MT_TEST_CUDA_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

#endif
