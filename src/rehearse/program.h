/* SPDX-License-Identifier: MIT */
/* Starting a program on pretended devices: what is laid out for it, its environment, its process.
 */
#ifndef MT_REHEARSAL_PROGRAM_H
#define MT_REHEARSAL_PROGRAM_H

#include <stdint.h>
#include <sys/types.h>

struct mt_error;             /* <memtally/error.h> */
struct mt_rehearsal_options; /* <memtally/rehearsal.h> */

/* Where the look-alikes of CUDA's libraries lie for a program. All owned. */
struct mt_cuda_stage {
    char *directory; /* with each under its soname */
    char *preload;   /* parted by colons, in the order in which they must stand */
    char *helper;    /* for PYTHONPATH, or NULL */
    char *caches;    /* folder for what compilers keep */
    char *temporary; /* folder for the program's temporary files */
    char *programs;  /* folder of the look-alikes of programs, for PATH */
};

/* The major version of CUDA that the PyTorch of a program was built with: of an interpreter, or of
 * what stands beside one, by its path. 0 where that cannot be told (cuda_major.c). */
int mt_cuda_major_beside(const char *program);

/* Copies the look-alikes into the rehearsal's folder (cuda_stage.c); those of another version than
 * `major` are not preloaded, with 0 all are. Errors: MT_ENOTFOUND (one is missing), MT_EARG (a
 * folder whose path cannot be preloaded from), MT_ELIMIT (a path that is too long), MT_EIO,
 * MT_ENOMEM. */
int mt_cuda_stage(const struct mt_rehearsal_options *options, const char *directory, int major,
                  struct mt_cuda_stage *stage, struct mt_error *error);
void mt_cuda_stage_finish(struct mt_cuda_stage *stage);

/* The environment that a program is rehearsed in (environment.c): `given` with the pretended
 * devices in and the real ones out; `stage` is NULL where CUDA programs are to find none. NULL
 * where memory ran out; freed with mt_environment_free(). */
char **mt_environment_make(char *const *given, const char *pretend_path, const char *account_path,
                           const struct mt_cuda_stage *stage);
void mt_environment_free(char **environment);

/* Looks a program up as mt_environment_find() does (program.c). Errors: MT_ENOTFOUND, MT_EPERM. */
int mt_program_find(const char *name, char *const *environment, char *found,
                    struct mt_error *error);
/* Finds and starts the program (program.c), as the leader of a process group. Returns its pid or an
 * MT_E code. */
int mt_program_start(const struct mt_rehearsal_options *options, char **environment,
                     const int output_fd[2], struct mt_error *error);
/* Kills every process that has `account_path` in its environment, whoever's child it is, and those
 * of `group`, if that is not 0; what cleans up after the others has a moment to do so. */
void mt_program_kill_rest(const char *account_path, pid_t group);
/* Whether a process has ended, taken by its parent or not. */
int mt_program_is_gone(uint32_t pid);

#endif
