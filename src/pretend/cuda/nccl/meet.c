/* SPDX-License-Identifier: MIT */
/* Where the ranks of a communicator learn of each other: a file beside the rehearsal's account that
 * all of them map. It has a place for each rank at each meeting, and nothing is ever taken out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "rehearse/account.h"

#define TURNS_MOST   1024
#define WAIT_SECONDS 120

struct place {
    uint32_t is_here; /* written last */
    int32_t color, key;
};

/* A path that is too long, or a file that cannot be had, gives NULL. */
static struct place *open_meeting(const struct nccl_comm *comm, uint32_t turn, size_t *bytes)
{
    char path[4096];
    const char *account = getenv(MT_ACCOUNT_VARIABLE);
    void *at = MAP_FAILED;
    int length, fd;
    if (!account || turn >= TURNS_MOST)
        return NULL;
    length = snprintf(path, sizeof path, "%s.nccl-%016llx-%u", account,
                      (unsigned long long)comm->id, turn);
    if (length < 0 || (size_t)length >= sizeof path)
        return NULL;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    *bytes = (size_t)comm->n_ranks * sizeof(struct place);
    if (ftruncate(fd, (off_t)*bytes) == 0)
        at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

int nccl_bring(const struct nccl_comm *comm, uint32_t turn, int color, int key)
{
    size_t bytes;
    struct place *place = open_meeting(comm, turn, &bytes);
    if (!place)
        return NCCL_SYSTEM_ERROR;
    place[comm->rank].color = color;
    place[comm->rank].key = key;
    __atomic_store_n(&place[comm->rank].is_here, 1, __ATOMIC_RELEASE);
    munmap(place, bytes);
    return NCCL_SUCCESS;
}

static int wait_for(const struct place *place)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < WAIT_SECONDS * 1000; i++) {
        if (__atomic_load_n(&place->is_here, __ATOMIC_ACQUIRE))
            return NCCL_SUCCESS;
        nanosleep(&pause, NULL);
    }
    return NCCL_REMOTE_ERROR;
}

/* Ranks of a color are ordered by key, then by their rank in the parent. */
int nccl_meet(const struct nccl_comm *comm, uint32_t turn, int color, int key,
              struct nccl_group *group)
{
    size_t bytes;
    struct place *place = open_meeting(comm, turn, &bytes);
    int result = place ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
    *group = (struct nccl_group){0};
    for (int i = 0; i < comm->n_ranks && result == NCCL_SUCCESS; i++) {
        result = wait_for(&place[i]);
        if (result != NCCL_SUCCESS || place[i].color != color)
            continue;
        group->n_ranks++;
        group->rank += place[i].key < key || (place[i].key == key && i < comm->rank);
    }
    if (place)
        munmap(place, bytes);
    return result;
}
