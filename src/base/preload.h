/* SPDX-License-Identifier: MIT */
/* Whether the loader takes a preloaded library into a program, told by the program's file. */
#ifndef MT_BASE_PRELOAD_H
#define MT_BASE_PRELOAD_H

enum mt_preload_bar {
    MT_PRELOAD_FREE,   /* nothing stands against it, as far as the file says */
    MT_PRELOAD_STATIC, /* linked statically: no loader runs */
    MT_PRELOAD_SETUID  /* it has rights of its own: the loader drops LD_PRELOAD */
};

/* What stands against it. A file that cannot be read or is no ELF of 64 bits is taken to be free of
 * obstacles: a script's interpreter is another file. */
enum mt_preload_bar mt_preload_bar_of(const char *path);

#endif
