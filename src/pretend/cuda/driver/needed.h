/* SPDX-License-Identifier: MIT */
/* The libraries that a shared object asks for. */
#ifndef MT_CUDA_DRIVER_NEEDED_H
#define MT_CUDA_DRIVER_NEEDED_H

/* Calls `each` with the name of every library that the object at `path` itself names as needed,
 * until it returns something other than 0, which is then returned; 0 where there is none, or the
 * file is no such object. errno stays. */
int pretend_needed(const char *path, int (*each)(const char *name));

#endif
