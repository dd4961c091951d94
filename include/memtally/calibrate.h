/* SPDX-License-Identifier: MIT */
/* Measuring what CUDA's driver takes of a card: its context, a first kernel, cuBLAS, a node of a
 * graph. Takes a second or two, and memory of the card that stays taken until the process ends:
 * call it in a process of its own. NVIDIA's libraries are opened when they are needed. */
#ifndef MEMTALLY_CALIBRATE_H
#define MEMTALLY_CALIBRATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* What a card took. MT_UNKNOWN where it could not be measured. */
struct mt_calibration {
    char name[96];           /* "NVIDIA GeForce RTX 4090" */
    char uuid[48];           /* "GPU-…" */
    uint32_t driver_version; /* 13000 is CUDA 13.0 */
    uint32_t capability;     /* 90 is 9.0 */
    uint32_t multiprocessors;
    uint32_t threads;          /* that can be resident in one of these */
    uint64_t total_bytes;      /* by CUDA */
    uint64_t nvml_total_bytes; /* by NVML: with what the driver holds back of every process */
    uint64_t context_bytes;    /* of a process, before any kernel */
    uint64_t module_bytes;     /* a first kernel, loaded and launched */
    uint64_t blas_bytes;       /* a cuBLAS handle, with its workspace */
    uint64_t blas_code_bytes;  /* a first product of matrices beside that */
    uint64_t graph_node_bytes; /* each node of an instantiated graph */
    int is_disturbed;          /* other programs took or gave back memory of the card meanwhile */
};

/* Measures device `index`, as CUDA counts them. Errors: MT_ENOTFOUND (no driver, or no such device;
 * the text says what to do), MT_EUNSUPPORTED (a function is missing), MT_EIO (CUDA refused). */
int mt_calibrate(int index, struct mt_calibration *calibration, struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
