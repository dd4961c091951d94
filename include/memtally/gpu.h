/* SPDX-License-Identifier: MIT */
/* The GPUs that the tables know. Any function may be called from any thread. */
#ifndef MEMTALLY_GPU_H
#define MEMTALLY_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* A GPU of the tables. Those of kind "cuda" can be pretended to CUDA programs. */
struct mt_rehearsal_gpu {
    char key[32];           /* "H100-80GB" */
    char name[64];          /* "NVIDIA H100 80GB HBM3" */
    char kind[16];          /* "cuda", "rocm", "metal" */
    char generation[16];    /* "hopper", "cdna3"; "" where it is not known: Apple's */
    uint64_t memory_bytes;  /* as the driver answers: less than what the card is sold as */
    uint64_t context_bytes; /* of each process; 0 where the kind is another than "cuda" */
    uint32_t capability;    /* 90 is 9.0; 0x1000942 is AMD's gfx942 */
    int is_typical;         /* what a device of such a size mostly is */
};

/* The GPUs that are known, in the tables' order: NVIDIA's come first. Errors: MT_ENOTFOUND (past
 * the last). */
int mt_rehearsal_gpu_at(size_t index, struct mt_rehearsal_gpu *gpu);

/* The GPU of a name ("h100-80gb", "RTX 3090"). Errors: MT_EARG, whose text says which are near. */
int mt_rehearsal_gpu_find(const char *name, struct mt_rehearsal_gpu *gpu, struct mt_error *error);

/* The NVIDIA GPU that a device is taken for of which only the size is known: the nearest in size of
 * those that such a size mostly is, or of a generation ("ampere", "8.6"; NULL: of any).
 * Errors: MT_EARG (no such generation; the text names those that there are). */
int mt_rehearsal_gpu_of_size(uint64_t bytes, const char *generation, struct mt_rehearsal_gpu *gpu,
                             struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
