/* SPDX-License-Identifier: MIT */
/* How much of a program a recorder records. */
#ifndef MEMTALLY_DEPTH_H
#define MEMTALLY_DEPTH_H

#ifdef __cplusplus
extern "C" {
#endif

/* How much the recorder writes down. */
enum mt_depth {
    MT_DEPTH_DEFAULT, /* mappings, engine buffers, blocks of 64 KiB and more; smaller ones counted
                         in total and sampled */
    MT_DEPTH_FULL     /* every event */
};

/* How call stacks are taken. */
enum mt_stacks { MT_STACKS_FP, MT_STACKS_UNWIND, MT_STACKS_NONE };

#ifdef __cplusplus
}
#endif
#endif
