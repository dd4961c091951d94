/* SPDX-License-Identifier: MIT */
/* Which pretended devices a program gets: those of ggml, or those of CUDA as well. */
#ifndef DRIVE_LAYER_H
#define DRIVE_LAYER_H

#include <limits.h>
#include <stddef.h>

struct mt_error; /* <memtally/error.h> */

/* Values of --layer, in the order of its names. */
enum mt_drive_layer {
    MT_DRIVE_LAYER_AUTO,
    MT_DRIVE_LAYER_GGML,
    MT_DRIVE_LAYER_CUDA /* with ggml's, which win where a program has both */
};

/* The layer for a program's command line: ggml's alone where it is a program of llama.cpp's or has
 * ggml in it, else CUDA's too. Never MT_DRIVE_LAYER_AUTO. */
enum mt_drive_layer mt_drive_layer_of(char *const *argv, char *const *environment);

/* Where the look-alikes of CUDA's libraries are, and the module for Python processes. */
struct mt_drive_cuda_paths {
    char directory[PATH_MAX];
    char helper[PATH_MAX]; /* "" where it is not there */
};

/* The folder of sitecustomize.py; "" if it is missing. */
void mt_drive_find_site(char *path, size_t size);

/* Errors: those of mt_drive_find_object(). */
int mt_drive_find_cuda(char *const *environment, struct mt_drive_cuda_paths *paths,
                       struct mt_error *error);

#endif
