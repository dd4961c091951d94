/* SPDX-License-Identifier: MIT */
/* Whether the loader takes a preloaded library into a program, told by the program's file, and what
 * our preloaded objects must know of each other. */
#ifndef MT_BASE_PRELOAD_H
#define MT_BASE_PRELOAD_H

#include "base/strbuf.h"

/* Names a rehearsal's account to the pretended devices. They must stand before any other object
 * that has hooks for ggml: those find the engine's own functions, past the devices' hooks. */
#define MT_REHEARSAL_VARIABLE "MEMTALLY_REHEARSAL"

enum mt_preload_bar {
    MT_PRELOAD_FREE,     /* nothing stands against it, as far as the file says */
    MT_PRELOAD_STATIC,   /* linked statically: no loader runs */
    MT_PRELOAD_SETUID,   /* it has rights of its own: the loader drops LD_PRELOAD */
    MT_PRELOAD_SANITIZED /* a sanitizer's runtime has its memory in hand and wants to be first */
};

/* What stands against it. A file that cannot be read or is no ELF of 64 bits is taken to be free of
 * obstacles: a script's interpreter is another file. */
enum mt_preload_bar mt_preload_bar_of(const char *path);

/* Appends the value of LD_PRELOAD with `recorder` before what was `preloaded` (or NULL). In a
 * rehearsal the object that pretends ggml's devices stays first; the recorder stands before the
 * look-alikes of CUDA's libraries, as before true ones. */
void mt_preload_put(struct mt_strbuf *text, const char *recorder, const char *preloaded,
                    int is_rehearsed);

#endif
