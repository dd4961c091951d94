/* SPDX-License-Identifier: MIT */
/* Rehearsing a program on devices that are not there.
 *
 * An unmodified program that is built on ggml (llama.cpp and kin) runs with an object preloaded
 * that pretends to be devices of given sizes: it gives out addresses without memory, answers yes to
 * the operations that such a device takes, computes nothing, and refuses an allocation where the
 * device would. Where look-alikes of CUDA's libraries are given, so does one on PyTorch or whatever
 * else links them. What the program allocated is the engine's own word: a tally of kind estimate
 * with provenance exact. A rehearsal belongs to one thread. */
#ifndef MEMTALLY_REHEARSAL_H
#define MEMTALLY_REHEARSAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_tally; /* <memtally/tally.h> */

struct mt_rehearsal;

struct mt_rehearsal_device {
    uint64_t bytes;            /* in all; 1 MiB to 1 PiB */
    uint64_t reserved_bytes;   /* of these, taken by the driver's context and other programs */
    const char *name;          /* "NVIDIA GeForce RTX 3090", or NULL */
    const char *gpu;           /* of <memtally/gpu.h>: "H100-80GB"; NULL: of kind "cuda" that of
                                  mt_rehearsal_gpu_of_size(), of others not known */
    uint64_t context_bytes;    /* that a CUDA context takes, where it was measured; 0: as the GPU */
    uint64_t graph_node_bytes; /* likewise of each node of a graph */
};

struct mt_rehearsal_options {
    const char *directory;      /* for the account and the program's words; made if absent */
    const char *pretend_path;   /* libmemtally-pretend-ggml.so, no space or colon in it */
    const char *cuda_directory; /* of the look-alikes of CUDA's libraries; NULL: CUDA programs find
                                   no device */
    const char *helper_directory; /* of the module that Python processes load; NULL: none */
    uint32_t cuda_driver_version; /* 12080 is CUDA 12.8; 0: the newest that is known */
    const char *kind;             /* "cuda" (NULL too), "rocm", "vulkan", "metal" */
    const char *generation;     /* "ampere", "8.6", "gfx942"; NULL: each device's own; where that is
                                   not known the newest that the tables know, and nothing that
                                   may depend on it is exact */
    const char *engine_version; /* build that rules are chosen by; NULL: as its ggml says */
    const struct mt_rehearsal_device *devices;
    size_t n_devices;         /* 0: the program runs on the CPU alone */
    uint64_t host_bytes;      /* host buffers beyond these are refused; 0: no limit */
    char *const *argv;        /* NULL-terminated; argv[0] is looked up in PATH */
    char *const *environment; /* of the program, mostly environ; ends with NULL */
    int stdout_fd;            /* -1: kept in `directory`, as are errors */
    int stderr_fd;
};

struct mt_rehearsal_status {
    int running;
    int exit_code; /* or 128 + signal, once it ended; -1 where that was not to be known */
    int signal;    /* that killed it, or 0 */
    uint64_t elapsed_ns;
    uint64_t quiet_ns; /* since the last event, or the start */
    size_t n_events;
    uint32_t n_preloaded;        /* processes that have the object in them */
    int is_attached;             /* some process took the devices */
    uint32_t api_version;        /* of its ggml; 0: none was seen */
    const char *refusal;         /* why a process's ggml got no devices, else NULL */
    const char *engine_version;  /* NULL where it is not known; lives as long as the rehearsal */
    const char *ggml_version;    /* likewise */
    uint32_t build;              /* of the engine, that the devices' rules are of */
    uint32_t n_contexts;         /* processes that made a CUDA context on a device, each counted
                                    for each device */
    uint32_t n_missing;          /* functions of CUDA that were called and are not there */
    uint32_t n_private;          /* tables of NVIDIA's own libraries that were asked for in vain */
    const char *private_library; /* that asked first, by its path among Python's packages or its
                                    name, NULL where none did; lives as long as the rehearsal */
    uint32_t n_read_back;        /* results of kernels, which did not run, that the program read */
    uint32_t n_askings;          /* how often the program asked CUDA or NVML for devices */
    int is_build_known;          /* it was told to the rehearsal, or by the program */
};

/* Starts the program, with nothing to read on standard input. On success the caller owns
 * *rehearsal, mt_rehearsal_destroy() ends it. Several may run at a time, each in a folder of its
 * own; each ends with the thread that started it. Its output is kept in the files "output" and
 * "errors" of the folder, of which only the beginning and the end are kept where they grow past
 * some megabytes.
 * Errors: MT_EARG (too many devices, too small; an object or a folder that cannot be preloaded
 * from; a kind, generation or GPU that is not known), MT_ENOTFOUND (no such program; a look-alike
 * is missing), MT_ELIMIT (the folder's path is too long), MT_EPERM (it cannot be run),
 * MT_EUNSUPPORTED (a static program, a setuid one; the text says what would work), MT_EBUSY (the
 * folder holds an account), MT_EIO, MT_ENOMEM. */
int mt_rehearsal_start(const struct mt_rehearsal_options *options, struct mt_rehearsal **rehearsal,
                       struct mt_error *error);

/* The same for a program that the caller starts: mt_run_start() with a recorder, mostly.
 * *environment is that of the program, given back with mt_rehearsal_free_environment(). Of the
 * options the outputs do not count. What the caller starts with it is the rehearsal's until
 * mt_rehearsal_stop(), which kills what is left of it; the status says that it runs until then.
 * Errors: those of mt_rehearsal_start() but for what a program has that cannot be run. */
int mt_rehearsal_open(const struct mt_rehearsal_options *options, struct mt_rehearsal **rehearsal,
                      char ***environment, struct mt_error *error);

/* Gives back what mt_rehearsal_open() made. Takes NULL. */
void mt_rehearsal_free_environment(char **environment);

/* Waits until the program has ended or `timeout_ns` have passed, and says how it stands. Call it
 * in a loop: ends of processes are taken here. Errors: MT_ENOMEM (the account grew too large). */
int mt_rehearsal_wait(struct mt_rehearsal *rehearsal, uint64_t timeout_ns,
                      struct mt_rehearsal_status *status, struct mt_error *error);

/* Ends the program and what it started: SIGTERM, then SIGKILL after `grace_ns`. Does nothing where
 * both are gone. */
void mt_rehearsal_stop(struct mt_rehearsal *rehearsal, uint64_t grace_ns);

/* Notes a moment that the caller knows of ("ready", "request"). */
void mt_rehearsal_mark(struct mt_rehearsal *rehearsal, const char *name);

/* What the program held after the event at `index`; SIZE_MAX: at its peak, place by place, since it
 * settled for what to put where: what an engine tried before is left out. Of kind
 * estimate, provenance exact, low and high bounds as the bytes; buffers for computing on devices
 * are derived where builds that the program may be of differ in what they take. Of a CUDA program
 * contexts, kernels and communicators are assumed, with the bounds of the table of GPUs, and what
 * neither it nor PyTorch's allocator says the use of is inferred as cached. Places are "host",
 * then "gpu:0" and so on, with their capacity. What was only planned is counted where nothing was
 * allocated. The caller owns *tally, mt_tally_destroy() frees it. Errors: MT_EARG (no such event),
 * MT_ENOMEM. */
int mt_rehearsal_tally(struct mt_rehearsal *rehearsal, size_t index, struct mt_tally **tally,
                       struct mt_error *error);

/* The last lines that the program wrote on standard error, at most `size` bytes with the zero; ""
 * where it wrote elsewhere. */
void mt_rehearsal_last_words(struct mt_rehearsal *rehearsal, char *text, size_t size);

/* Stops the program and frees the rehearsal; files in the directory stay. Takes NULL. */
void mt_rehearsal_destroy(struct mt_rehearsal *rehearsal);

#ifdef __cplusplus
}
#endif
#endif
