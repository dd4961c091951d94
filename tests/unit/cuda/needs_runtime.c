/* SPDX-License-Identifier: MIT */
/* A library that names the runtime of CUDA 13 as needed. */
int cudaDriverGetVersion(int *version);
int needs_runtime(int *version);

int needs_runtime(int *version)
{
    return cudaDriverGetVersion(version);
}
