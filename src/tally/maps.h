/* SPDX-License-Identifier: MIT */
/* The text of /proc/PID/maps, read. */
#ifndef MT_TALLY_MAPS_H
#define MT_TALLY_MAPS_H

#include <stddef.h>
#include <stdint.h>

/* What reports call memory of MT_VMA_SHARED_TENSORS. */
#define MT_SHARED_TENSORS "tensors that processes share"

/* What a mapping is by its name. */
enum mt_vma_kind {
    MT_VMA_ANONYMOUS, /* also "[anon:NAME]" */
    MT_VMA_HEAP,      /* [heap] */
    MT_VMA_STACK,     /* [stack] */
    MT_VMA_SPECIAL,   /* [vdso] and the like */
    MT_VMA_FILE,
    MT_VMA_SHARED_MEMORY,  /* memfd, /dev/shm, System V */
    MT_VMA_SHARED_TENSORS, /* PyTorch's, by the name that it gives them */
    MT_VMA_DEVICE,         /* /dev/…: its pages are not the process's memory */
    MT_VMA_HUGETLB         /* not part of the resident set */
};

struct mt_vma {
    uint64_t start;
    uint64_t end;
    uint64_t offset;
    uint64_t device;
    uint64_t inode;
    enum mt_vma_kind kind;
    int readable;
    int writable;
    int executable;
    int shared;
    char *name; /* "" where it has none; without " (deleted)" */
};

struct mt_maps {
    struct mt_vma *vmas; /* sorted by start, not overlapping; never NULL once parsed or copied */
    size_t n;
    size_t lines_bad;
};

/* Reads maps text of `length` bytes. Lines that make no sense are counted and left out. Returns 0
 * or MT_ENOMEM. */
int mt_maps_parse(const char *text, size_t length, struct mt_maps *maps);
void mt_maps_finish(struct mt_maps *maps);

/* Makes *copy another of `maps`. Returns 0 or MT_ENOMEM. */
int mt_maps_copy(const struct mt_maps *maps, struct mt_maps *copy);

/* The first mapping that ends above `address`, or the end of the mappings. */
const struct mt_vma *mt_maps_at_or_after(const struct mt_maps *maps, uint64_t address);

/* The mapping that `address` lies in, or NULL. */
const struct mt_vma *mt_maps_find(const struct mt_maps *maps, uint64_t address);

/* The value in bytes of a "Name:  123 kB" line in the text of status, smaps_rollup or meminfo;
 * UINT64_MAX where there is none. `name` comes without its colon. */
uint64_t mt_field_bytes(const char *text, size_t length, const char *name);

#endif
