/* SPDX-License-Identifier: MIT */
/* The account of a rehearsal: one file that the pretended devices write and their driver reads.
 *
 * The driver makes it with the devices and their rules filled in and names it in the environment
 * variable MT_ACCOUNT_VARIABLE. Every process of the rehearsed program that loads the pretended
 * devices maps the same file, shared, so that what was written is there after any end of theirs.
 * The file has a hole where nothing was written. All numbers are of the machine's own byte order:
 * writer and reader run on one machine and are built together; `format` tells when they were not.
 */
#ifndef MT_REHEARSAL_ACCOUNT_H
#define MT_REHEARSAL_ACCOUNT_H

#include <stdint.h>

#include "base/preload.h"
#include "gpu/spec.h"

#define MT_ACCOUNT_SHARED_NAME "memory that processes share" /* of what one gives others to map */
#define MT_ACCOUNT_POOL_NAME   "memory pool"                 /* of what a driver's pool takes */
#define MT_ACCOUNT_VARIABLE    MT_REHEARSAL_VARIABLE
#define MT_ACCOUNT_ALIVE       ".alive" /* a pipe beside it; while it has a writer, there is a driver */
#define MT_ACCOUNT_MAGIC       "mtrehear"
#define MT_ACCOUNT_FORMAT      11u
#define MT_ACCOUNT_DEVICES_MAX 64u
#define MT_ACCOUNT_EVENTS_MAX  262144u
#define MT_ACCOUNT_ERAS_MAX    32u
#define MT_ACCOUNT_SEEN_MAX    96u
#define MT_ACCOUNT_HOST        255u /* as `place`; else a device's number */
#define MT_ACCOUNT_SHARED_MAX  4096u
#define MT_ACCOUNT_PROCESSES   512u

/* As `object`: number of what processes share, which each that holds it tells of, and which is
 * counted once: the slot in mt_account.shared in the lowest 16 bits, and its generation. */
#define MT_ACCOUNT_SHARED (UINT64_C(1) << 63)

/* How devices of a kind and generation behave, by the engine's source; see rules.h. */
struct mt_pretend_rules {
    char kind[16];             /* "cuda", "rocm", "vulkan", "metal" */
    char generation[16];       /* "ampere" */
    char registry[16];         /* "CUDA": what the backend calls itself */
    char device_prefix[16];    /* "CUDA": devices are called CUDA0, CUDA1 … */
    char host_buffer[32];      /* "CUDA_Host", or "" where there is none */
    uint64_t alignment;        /* of tensors in a buffer, bytes */
    uint64_t host_alignment;   /* of tensors in pinned host memory */
    uint64_t row_padding;      /* elements that rows of quantised tensors are padded to; 0: none */
    uint64_t offload_batch;    /* rows from which work on host weights is taken over; 0: never */
    uint64_t buffer_bytes_max; /* of one buffer; 0: no limit */
    uint32_t has_events;
    uint32_t has_async;
    uint32_t has_split_buffers;  /* row split */
    uint32_t is_unified;         /* device and host share one memory, weights are mapped (Metal) */
    uint32_t flash_attention;    /* MT_PRETEND_FLASH_… */
    uint32_t build;              /* of the engine that these rules are of: 11434 */
    uint32_t capability;         /* of the generation, as the kind counts: 860, 0x1100 */
    uint32_t granule_bytes;      /* the device gives memory out in these; 0: to the byte */
    uint32_t graph_dependencies; /* MT_KEEP_…: what fused operations keep allocated */
    uint32_t flash_types;        /* MT_PRETEND_FLASH_TYPES_… */
    uint32_t host_extra_bytes;   /* that a buffer of pinned memory has over what was asked */
    uint32_t is_reordered; /* the device computes a graph in an order that is not known here */
    uint32_t perhaps_dependencies; /* of graph_dependencies, those that builds may have or not */
    uint32_t is_of_vendor;         /* alignment is that of one vendor's driver: MT_PRETEND_VENDOR */
    uint32_t is_generation_assumed; /* nobody said which generation the devices are of */
    uint32_t is_unconfirmed;        /* read in the engine's source alone: no log confirms it */
};

/* The generation of Vulkan's devices whose alignment is known. */
#define MT_PRETEND_VENDOR "nvidia"

enum mt_pretend_flash {
    MT_PRETEND_FLASH_PLAIN,      /* nothing beside its output */
    MT_PRETEND_FLASH_F16_COPIES, /* a cache of another type is copied to f16 behind the output */
    MT_PRETEND_FLASH_METAL       /* as Metal's kernels want; they want more for experts, too */
};

/* Which types of keys and values flash attention takes. */
enum mt_pretend_flash_types {
    MT_PRETEND_FLASH_TYPES_ANY,  /* f32, f16, bf16 and the legacy quants, in any pair */
    MT_PRETEND_FLASH_TYPES_PAIRS /* equal ones only, and no q4_1, q5_0, q5_1 */
};

/* Beside MT_KEEP_…, what builds may differ in that are possible. */
#define MT_PRETEND_DOUBT_FLASH_TYPES 8u
#define MT_PRETEND_DOUBT_OTHERS      16u

/* Rules that hold from a build on. */
struct mt_pretend_era {
    uint64_t since;
    struct mt_pretend_rules rules;
};

/* What a build says of its ggml. */
struct mt_pretend_seen {
    uint32_t build;
    uint32_t ggml;        /* mt_pretend_ggml_number() of its version, 0: it is not noted here */
    uint32_t api_version; /* of ggml's backends, 0: it is not noted here */
};

/* Which builds a program may be of. The driver says what it knows of builds, and whether `rules`
 * are those of a build that it was told; else the program's processes take the rules of the build
 * that their ggml is of. */
struct mt_pretend_builds {
    uint32_t is_told;
    uint32_t n_eras;
    uint32_t n_seen;
    struct mt_pretend_era era[MT_ACCOUNT_ERAS_MAX];   /* newest first */
    struct mt_pretend_seen seen[MT_ACCOUNT_SEEN_MAX]; /* newest first */

    /* What the program's processes say. */
    char ggml_version[24]; /* "0.25.1", "" where it does not say */
    uint32_t low, high;    /* the first and the last build that it may be of; high 0: no limit */
    uint32_t doubts;       /* in what the rules of these differ: MT_KEEP_…, …DOUBT_… */
    uint32_t doubts_met;   /* of these, what was there in the program's graphs, atomic */
    uint32_t generations_differ; /* in what attention takes of its graphs, atomic */
};

#define PRETEND_GRAPH_NODES "graph nodes" /* the name of what instantiated graphs take */

/* What CUDA programs see. */
struct mt_account_cuda {
    uint32_t driver_version;  /* 13000 is CUDA 13.0; 0: no CUDA devices are pretended */
    uint32_t copy_bytes_most; /* larger copies from and to devices are not done */

    /* What the program's processes say, atomic. */
    uint32_t n_contexts;  /* primary contexts ever made */
    uint32_t n_missing;   /* functions that were called and are not there, each counted once */
    uint32_t n_private;   /* askings for private tables, which are not answered */
    uint32_t n_read_back; /* small results of kernels that the program read */
    uint32_t n_askings;   /* how often the driver or NVML was started to tell of devices */
};

struct mt_account_device {
    char name[32];        /* "CUDA0" */
    char description[64]; /* "NVIDIA GeForce RTX 3090" */
    uint64_t total_bytes;
    uint64_t free_bytes; /* before the program started: total less context and other processes */
    uint64_t used_bytes; /* by the program, now; atomic, over all its processes */
    uint64_t peak_bytes;
    uint64_t held_bytes; /* used_bytes with each buffer rounded up to rules.granule_bytes */
    struct mt_gpu_spec gpu;
};

/* Memory of a device that several processes hold. It goes back with the last of them. */
struct mt_account_shared {
    uint64_t bytes;
    uint32_t holders; /* processes, atomic; 0: the slot is empty */
    uint32_t generation;
    uint32_t place;
};

/* What a process has taken of devices itself, so that they have it back from one that is gone also
 * when the list of events was full. A thread that looks at once with another may leave its process
 * two rows, of which the sum counts. What processes share is in no row. A process that becomes
 * another program by exec() finds its row there, of another image: what it had is gone with that.
 */
struct mt_account_process {
    uint32_t pid; /* atomic; 0: the row is empty */
    uint32_t padding;
    uint64_t image;           /* atomic; a number of each exec(); 0: the row is being taken */
    uint64_t host_used_bytes; /* atomic */
    uint64_t used_bytes[MT_ACCOUNT_DEVICES_MAX]; /* atomic, as those of devices */
    uint64_t held_bytes[MT_ACCOUNT_DEVICES_MAX];
};

enum mt_account_kind {
    MT_ACCOUNT_NONE,   /* not written yet */
    MT_ACCOUNT_ALLOC,  /* a buffer; category may be refined by a later USAGE */
    MT_ACCOUNT_FREE,   /* `object` of an earlier ALLOC by the same process */
    MT_ACCOUNT_USAGE,  /* `category` of `object` is now known; or its `address`; or, of a part of a
                        * pool's, that the part was given back: without a category */
    MT_ACCOUNT_REFUSE, /* an allocation that does not fit; `bytes` asked, `free_bytes` there */
    MT_ACCOUNT_MARK,   /* a moment: `name` ("start", "model", "context", "serving", "ready") */
    MT_ACCOUNT_NOTE,   /* a sentence for the reader, in `name` and `detail` */
    MT_ACCOUNT_END     /* `pid` is gone, by the driver's word, or has become another program by its
                        * own; and with it what it held */
};

/* What a note can hold, with its end. */
#define MT_ACCOUNT_NOTE_BYTES 143u

/* A note on who asked for private tables: what stands after the library's name. */
#define MT_ACCOUNT_PRIVATE " brings NVIDIA's own runtime: it is not rehearsed"

#define MT_ACCOUNT_MAPPED  1u /* the engine's own mapping of the model file */
#define MT_ACCOUNT_PINNED  2u /* host memory of a device's pinned type */
#define MT_ACCOUNT_PLANNED 4u /* a dry run's answer: nothing was allocated */

struct mt_account_event {
    uint32_t kind; /* written last, with release; read first, with acquire */
    uint8_t place;
    uint8_t category; /* enum mt_category */
    uint16_t flags;
    uint32_t pid;
    uint32_t tid;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t object;  /* identity of the buffer in its process */
    uint64_t bytes;
    union {
        uint64_t free_bytes; /* of a REFUSE: what was there */
        uint64_t address;    /* of a USAGE: where `object` lies; 0: it says what that is for */
    };
    char name[48]; /* the buffer type: "CUDA0", "CPU_Mapped", "CUDA_Host" */
    char
        detail[96]; /* what it is of, as far as the engine says: "cache_k_l0 and 63 more tensors" */
};

struct mt_account {
    char magic[8];
    uint32_t format;
    uint32_t n_devices;
    uint64_t start_ns;
    uint64_t host_bytes; /* that the program may take in host buffers; 0: no limit */
    struct mt_pretend_rules rules;
    struct mt_pretend_builds builds;
    struct mt_account_cuda cuda;
    struct mt_account_device device[MT_ACCOUNT_DEVICES_MAX];

    /* What the program's processes say. */
    uint32_t n_preloaded;     /* processes that the object was loaded into, atomic */
    uint32_t n_attached;      /* of these, such whose ggml took the devices */
    uint32_t api_version;     /* of ggml's backends, 0: not known */
    uint32_t is_refused;      /* ggml is there and not known to us; a note says why */
    char refusal[144];        /* why it is refused, "" where nothing is */
    char engine_version[64];  /* as libggml or libllama says it, "" where it does not */
    uint64_t host_used_bytes; /* host buffers, atomic */
    uint64_t host_peak_bytes;
    struct mt_account_shared shared[MT_ACCOUNT_SHARED_MAX];

    uint64_t
        n_events; /* claimed, atomic; may stand above MT_ACCOUNT_EVENTS_MAX: the rest is lost */
    struct mt_account_event event[MT_ACCOUNT_EVENTS_MAX];
    uint64_t n_rows; /* of `process` that were ever taken, all below this one; atomic */
    struct mt_account_process process[MT_ACCOUNT_PROCESSES];
};

/* A version of ggml ("0.25.1", "0.26.0-dev") as a number that grows with it; 0 for what is none. */
static inline uint32_t mt_pretend_ggml_number(const char *version)
{
    uint32_t number = 0;
    for (int part = 0; part < 3; part++) {
        uint32_t value = 0;
        if (*version < '0' || *version > '9')
            return 0;
        for (; *version >= '0' && *version <= '9'; version++)
            value = value < 100 ? value * 10 + (uint32_t)(*version - '0') : 1000;
        if (value > 999 || (part < 2 && *version++ != '.'))
            return 0;
        number = number * 1000 + value;
    }
    return number;
}

/* What a buffer of `bytes` takes of a device. */
static inline uint64_t mt_account_held(const struct mt_pretend_rules *rules, uint64_t bytes)
{
    uint64_t granule = rules->granule_bytes;
    uint64_t over = granule ? bytes % granule : 0;
    return !over || bytes > UINT64_MAX - granule ? bytes : bytes + granule - over;
}

#endif
