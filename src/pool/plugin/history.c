/* SPDX-License-Identifier: MIT */
/* What the pools did, for who asks: blocks handed out and given back, pages attached and detached,
 * in the order in which they happened. Until it is asked for, nothing is noted. */
#include "pool/plugin/plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memtally/error_code.h>

#define MOST_EVENTS ((size_t)1 << 20)

static struct {
    pthread_mutex_t lock;
    _Atomic int is_on;
    struct memtally_pool_event *events; /* MOST_EVENTS of them, of which n wait to be taken */
    size_t n;
    uint64_t n_noted;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

int memtally_pool_history_begin(void)
{
    pthread_mutex_lock(&history.lock);
    if (!history.events)
        history.events = malloc(MOST_EVENTS * sizeof *history.events);
    int is_on = history.events != NULL;
    atomic_store(&history.is_on, is_on);
    pthread_mutex_unlock(&history.lock);
    return is_on ? MT_OK : MT_ENOMEM;
}

void mt_pool_note(char kind, int device, uint64_t address, uint64_t bytes)
{
    if (!atomic_load_explicit(&history.is_on, memory_order_relaxed))
        return;
    struct timespec time;
    pthread_mutex_lock(&history.lock);
    clock_gettime(CLOCK_MONOTONIC, &time);
    if (history.n < MOST_EVENTS)
        history.events[history.n++] = (struct memtally_pool_event){
            .time_ns = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec,
            .address = address,
            .bytes = bytes,
            .device = device,
            .kind = kind};
    history.n_noted++;
    pthread_mutex_unlock(&history.lock);
}

size_t memtally_pool_history_take(struct memtally_pool_event *events, size_t room)
{
    pthread_mutex_lock(&history.lock);
    size_t n = history.n < room ? history.n : room;
    if (n) {
        memcpy(events, history.events, n * sizeof *events);
        memmove(history.events, history.events + n, (history.n - n) * sizeof *events);
        history.n -= n;
    }
    pthread_mutex_unlock(&history.lock);
    return n;
}

uint64_t memtally_pool_history_count(void)
{
    pthread_mutex_lock(&history.lock);
    uint64_t n = history.n_noted;
    pthread_mutex_unlock(&history.lock);
    return n;
}
