/* SPDX-License-Identifier: MIT */
/* The recording format, version 3. docs/FORMATS.md explains it; this is its grammar.
 *
 *   1. file    := header block*                raw, as the recorder maps it
 *               | header packed                after `memtally run` has compacted it
 *   2. header  := struct mt_file_header, zeros up to `header_bytes`: a page, at least 4096
 *   3. block   := struct mt_block_header, `used` bytes of events, anything up to `block_bytes`
 *   4. packed  := (frame of the events of all streams, merged and in columns: recording/frame.h)*
 *   5. event   := op delta field*              op is one byte, all else varints unless said
 *   6. delta   := ticks since the previous event of the block, or since the block's start_ticks
 *   7. skipped := op(64..127) delta length byte*length   what a later minor version may add
 *
 * Integers of the structs are in the byte order of the machine that recorded, which `byte_order`
 * shows. A block belongs to one stream; a stream is written by one thread, its blocks are numbered
 * from 0. Time never goes back in a stream. Addresses in heap events are zigzag differences to the
 * previous heap address of the block (0 at its start) in units of 8 bytes; all other addresses are
 * plain. Strings and stacks are numbered per stream and defined before they are used.
 *
 * `used` grows by release stores, an event at a time, so that what a killed process wrote is there.
 * A finished block is sealed: its checksum covers the header before `sealed` and the events. */
#ifndef MT_RECORDING_FORMAT_H
#define MT_RECORDING_FORMAT_H

#include <stdint.h>

#define MT_FILE_MAGIC   "MEMTALLY"
#define MT_FILE_VERSION 3u
#define MT_FILE_OLDEST  2u          /* that is read: it has no events of devices */
#define MT_HEADER_BYTES 4096u       /* at least; a page of the machine where that is more */
#define MT_BLOCK_MAGIC  0x4b42544du /* "MTBK" */
#define MT_BLOCK_BYTES  65536u
#define MT_BYTE_ORDER   0x01020304u
#define MT_MAX_STRING   4096u
#define MT_MAX_FRAMES   64u
/* A frame of Python in a stack: its bits 63 and 62 are 10, which no address has, bit 61 says that
 * the interpreter was entered for it, the rest are a number that its name gives it. */
#define MT_FRAME_PYTHON  ((uint64_t)2 << 62)
#define MT_FRAME_ENTERED ((uint64_t)1 << 61)
#define MT_TEXT_PIECE    16384u
#define MT_RUNS_PIECE    512u
#define MT_HEAP_UNIT     8u
#define MT_GRANULE_BYTES 1048576u

enum mt_record_file_kind { MT_FILE_PROCESS = 1, MT_FILE_WATCH = 2 };

enum mt_file_flags { MT_FILE_PACKED = 1, MT_FILE_FORKED = 2 };

enum mt_clock_kind { MT_CLOCK_TSC = 1, MT_CLOCK_MONOTONIC = 2, MT_CLOCK_CNTVCT = 3 };

/* What a file says before its first event. Fields from `next_block` on change while it is written
 * and are not covered by `crc32c`, in a packed file by `tail_crc32c`. */
struct mt_file_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t block_bytes;
    uint32_t flags;
    uint32_t kind;
    uint32_t pid;
    uint32_t parent_pid;
    uint32_t page_bytes;
    uint32_t clock_kind;
    uint32_t depth;
    uint32_t stacks;
    uint64_t start_ticks;
    uint64_t start_monotonic_ns;
    uint64_t start_realtime_ns;
    uint64_t fork_ticks;            /* of a forked child: when its parent forked */
    uint64_t exact_from_bytes;      /* blocks from this size on are events; 0: all */
    uint64_t sample_interval_bytes; /* mean distance of samples among smaller ones; 0: none */
    uint64_t picture_share_ppm;
    uint32_t crc32c;     /* of all before, with MT_FILE_PACKED clear */
    uint32_t next_block; /* number of the block to claim next; packed: how many blocks there are */
    uint32_t end_kind;   /* enum mt_end_kind */
    uint32_t blocks_backed; /* claimed and in the file; packed: how many frames there are */
    uint64_t end_ticks;
    uint64_t end_monotonic_ns;
    uint64_t looks;
    uint64_t pictures_taken;
    uint64_t pictures_skipped;
    uint64_t skipped_resident_bytes; /* largest resident size whose picture was skipped */
    uint64_t picture_ns;             /* processor time that pictures took */
    uint64_t events_lost;
    uint64_t samples_dropped;
    uint32_t blocks_dropped; /* packed: so many blocks of the raw file could not be read */
    uint32_t tail_crc32c;    /* packed: of `next_block` and all up to here */
};

enum mt_end_kind { MT_END_UNKNOWN = 0, MT_END_EXIT = 1, MT_END_STOPPED = 2 };

/* What becomes of a block. `crc32c` is right from MT_BLOCK_SEALED on. */
enum mt_block_state {
    MT_BLOCK_OPEN = 0,
    MT_BLOCK_SEALED = 1,
    MT_BLOCK_CUT = 2 /* its writer left it open, and it was sealed when it was packed */
};

struct mt_block_header {
    uint32_t magic;
    uint32_t stream;
    uint32_t tid;
    uint32_t sequence;
    uint64_t start_ticks;
    uint64_t clock_ticks; /* both clocks when the block was begun; where the process cannot */
    uint64_t clock_monotonic_ns; /* say when it ends, the last of these pairs gives the rate */
    /* Running totals of the stream at the block's end: blocks below exact_from_bytes. */
    uint64_t small_allocs;
    uint64_t small_alloc_bytes;
    uint64_t small_frees;
    uint64_t small_free_bytes;
    uint32_t sealed; /* enum mt_block_state */
    uint32_t used;
    uint32_t crc32c;
    uint32_t reserved;
};

/* X(NAME, value, "fields after op and delta") */
#define MT_EVENT_LIST(X)                                                                           \
    X(ALLOC, 1, "address size stack")                                                              \
    X(FREE, 2, "address")                                                                          \
    X(SAMPLE_ALLOC, 3, "address size stack")                                                       \
    X(SAMPLE_FREE, 4, "address")                                                                   \
    X(HEAP_REGION, 5, "granule count")                                                             \
    X(MMAP, 6, "address length protection flags file offset stack")                                \
    X(MUNMAP, 7, "address length")                                                                 \
    X(MREMAP, 8, "old_address old_length address length took")                                     \
    X(MADVISE, 9, "address length advice")                                                         \
    X(FTRUNCATE, 10, "descriptor length file")                                                     \
    X(MEMFD, 11, "descriptor name")                                                                \
    X(BUFFER_ALLOC, 12, "handle address size flags category name stack")                           \
    X(BUFFER_USAGE, 13, "handle usage")                                                            \
    X(BUFFER_FREE, 14, "handle")                                                                   \
    X(SCOPE_BEGIN, 15, "category name")                                                            \
    X(SCOPE_END, 16, "")                                                                           \
    X(LABEL, 17, "address length category name")                                                   \
    X(UNLABEL, 18, "address length")                                                               \
    X(MARK, 19, "name")                                                                            \
    X(STRING, 20, "number length bytes")                                                           \
    X(STACK, 21, "number complete count frame*count, zigzag differences")                          \
    X(THREAD, 22, "tid stack_low stack_high")                                                      \
    X(LOOK, 23, "resident_bytes")                                                                  \
    X(CLOCK, 24, "monotonic_ns")                                                                   \
    X(TOTALS, 25, "allocs alloc_bytes frees free_bytes, over all streams")                         \
    X(PICTURE_BEGIN, 26, "pid reason monotonic_ns resident_bytes")                                 \
    X(PICTURE_TEXT, 27, "kind length bytes")                                                       \
    X(PICTURE_RUNS, 28, "count (gap length flags)*count, in pages from the last run's end")        \
    X(PICTURE_END, 29, "complete cost_ns method")                                                  \
    X(SELF, 30, "address length")                                                                  \
    X(PROCESS, 31, "pid parent_pid start_monotonic_ns command")                                    \
    X(PROCESS_END, 32, "pid how value")                                                            \
    X(PROCESS_SAMPLE, 33, "pid resident_bytes high_water_bytes")                                   \
    X(OUTSIDE_ONLY, 34, "pid reason")                                                              \
    X(MACHINE, 35, "kind length bytes")                                                            \
    X(DEVICE, 36, "device total_bytes uuid name")                                                  \
    X(DEVICE_ALLOC, 37, "device kind object size stack")                                           \
    X(DEVICE_FREE, 38, "kind object")                                                              \
    X(DEVICE_MAP, 39, "address length object")                                                     \
    X(DEVICE_UNMAP, 40, "address length")                                                          \
    X(DEVICE_HELD, 41, "object")                                                                   \
    X(DEVICE_USED, 42, "device used_bytes reason")                                                 \
    X(DEVICE_REFUSED, 43, "device kind size free_bytes stack")                                     \
    X(DEVICE_RESET, 44, "device")                                                                  \
    X(DEVICE_POOL, 45, "device pool reserved_bytes")                                               \
    X(DEVICE_CALLER, 46, "object library")                                                         \
    X(DEVICE_OTHERS, 47, "uuid others_bytes")                                                      \
    X(LABEL_BLOCK, 50, "address length category name")

enum mt_event_op {
#define MT_EVENT_ENUM(NAME, value, fields) MT_EVENT_##NAME = value,
    MT_EVENT_LIST(MT_EVENT_ENUM)
#undef MT_EVENT_ENUM
        MT_EVENT_SKIPPED_FROM = 64,
    MT_EVENT_PROCESS_PEAK = 64, /* "pid resident_bytes" within its bytes; in watch files */
    MT_EVENT_FRAME_NAME = 65,   /* "frame" and the name of a Python frame in its bytes */
    MT_EVENT_SKIPPED_TO = 127
};

/* Flags of BUFFER_ALLOC. */
enum mt_buffer_flags {
    MT_BUFFER_HOST = 1,     /* its memory is host memory */
    MT_BUFFER_HOST_PTR = 2, /* made over memory that was there before */
    MT_BUFFER_TENSORS = 4   /* allocated for the tensors of a context */
};

/* Usage of BUFFER_USAGE, as ggml numbers it. */
enum mt_buffer_usage { MT_USAGE_ANY = 0, MT_USAGE_WEIGHTS = 1, MT_USAGE_COMPUTE = 2 };

enum mt_picture_reason {
    MT_PICTURE_START = 1,
    MT_PICTURE_FALL = 2, /* resident memory was about to fall from a new height */
    MT_PICTURE_EXIT = 3,
    MT_PICTURE_MARK = 4,
    MT_PICTURE_OUTSIDE = 5, /* taken by the watching process */
    MT_PICTURE_BUFFER = 6   /* an engine was about to give a buffer back */
};

enum mt_picture_text {
    MT_TEXT_MAPS = 1,
    MT_TEXT_ROLLUP = 2,
    MT_TEXT_STATUS = 3,
    MT_TEXT_MEMINFO = 4
};

enum mt_picture_method { MT_METHOD_NONE = 0, MT_METHOD_SCAN = 1, MT_METHOD_PAGEMAP = 2 };

/* Flags of a run of pages. Only present pages that count as resident are in a run. */
enum mt_run_flags { MT_RUN_FILE = 1, MT_RUN_HUGE = 2 };

/* How a process ended (PROCESS_END). */
enum mt_process_end { MT_PROCESS_EXITED = 1, MT_PROCESS_KILLED = 2, MT_PROCESS_GONE = 3 };

/* Or-ed into the flags of MMAP: the caller was the module that provides malloc. */
#define MT_MAP_BY_ALLOCATOR ((uint64_t)1 << 40)

/* How memory of a device was had; `object` is its address but for physical memory. */
enum mt_device_kind {
    MT_DEVICE_LINEAR = 1,
    MT_DEVICE_MANAGED = 2,
    MT_DEVICE_POOLED = 3,     /* in the order of a stream */
    MT_DEVICE_PHYSICAL = 4,   /* a handle; there until its last handle and mapping are gone */
    MT_DEVICE_IMPORTED = 5,   /* another process's: takes nothing here */
    MT_DEVICE_HOST = 6,       /* pinned host memory */
    MT_DEVICE_REGISTERED = 7, /* host memory that was there, pinned */
    MT_DEVICE_ARRAY = 8,      /* for textures; `object` is its handle */
    MT_DEVICE_KIND_END
};

/* The pool of DEVICE_POOL that graphs take the memory of their nodes from. */
#define MT_DEVICE_POOL_OF_GRAPHS 2u

/* Why the driver was asked how much of a device is used. */
enum mt_device_reason {
    MT_DEVICE_BEFORE = 1, /* a call that may change it */
    MT_DEVICE_BY_CALL = 2,
    MT_DEVICE_BY_POOL = 3,
    MT_DEVICE_BY_CONTEXT = 4,
    MT_DEVICE_BY_MODULE = 5,
    MT_DEVICE_BY_GRAPH = 6,
    MT_DEVICE_BY_ARRAY = 7,
    MT_DEVICE_REASON_END
};

enum mt_machine_text {
    MT_MACHINE_MEMINFO = 1,
    MT_MACHINE_PRESSURE = 2,
    MT_MACHINE_CGROUP = 3,
    MT_MACHINE_COMMAND = 4,
    MT_MACHINE_OTHERS = 5,
    MT_MACHINE_UNSEEN = 6
};

_Static_assert(sizeof(struct mt_file_header) == 208, "the file header is part of the format");
_Static_assert(sizeof(struct mt_block_header) == 88, "the block header is part of the format");

#endif
