/* SPDX-License-Identifier: MIT */
/* Which cuDNN this one passes for. */
#ifndef MT_CUDA_DNN_VERSION_H
#define MT_CUDA_DNN_VERSION_H

#include <stddef.h>

/* As cudnnGetVersion() counts: 91002 is 9.10.2. It is the one that the package of PyTorch or JAX
 * asks for, where that is loaded and says so, else the one of PyTorch 2.8 to 2.10 for CUDA 12. */
size_t pretend_dnn_version(void);

/* The version in a line of a package's metadata: "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; …"
 * gives 91002, "…<10.0,>=9.12.0.46" 91200; 0 where the line is another. */
size_t pretend_dnn_version_in(const char *line);

#endif
