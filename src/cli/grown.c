/* SPDX-License-Identifier: MIT */
/* Asking a recording what grew. */
#include "cli/grown.h"

#include <memtally/growth.h>
#include <memtally/recording.h>
#include <memtally/units.h>
#include <signal.h>

#define STACKS_TOLD 3u

static void read_growth(struct cli_grown *grown)
{
    if (mt_recording_open(grown->directory, &grown->recording, NULL) < 0)
        grown->recording = NULL;
    if (!grown->recording || mt_recording_grown(grown->recording, grown->span_ns, MT_UNKNOWN,
                                                STACKS_TOLD, &grown->growth, NULL) < 0)
        grown->growth = NULL;
}

static void forget(struct cli_grown *grown)
{
    mt_recording_growth_destroy(grown->growth);
    mt_recording_close(grown->recording);
    grown->growth = NULL;
    grown->recording = NULL;
}

static void *answer(void *context)
{
    struct cli_grown *grown = context;
    read_growth(grown);
    atomic_store(&grown->is_answered, 1);
    return NULL;
}

void cli_grown_ask(struct cli_grown *grown, int pid, uint64_t span_ns)
{
    sigset_t all;
    sigset_t before;
    if (grown->is_asked ||
        mt_recording_of_process(pid, grown->directory, sizeof grown->directory, NULL) < 0)
        return;
    forget(grown);
    grown->span_ns = span_ns;
    atomic_store(&grown->is_answered, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    grown->is_asked = pthread_create(&grown->thread, NULL, answer, grown) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

const struct mt_recording_growth *cli_grown_take(struct cli_grown *grown, int waits)
{
    if (grown->is_asked && (waits || atomic_load(&grown->is_answered))) {
        pthread_join(grown->thread, NULL);
        grown->is_asked = 0;
        grown->is_owed = !grown->growth;
        return grown->growth;
    }
    if (!waits || !grown->is_owed)
        return NULL;
    grown->is_owed = 0;
    forget(grown);
    read_growth(grown);
    return grown->growth;
}

void cli_grown_finish(struct cli_grown *grown)
{
    if (grown->is_asked)
        pthread_join(grown->thread, NULL);
    grown->is_asked = 0;
    forget(grown);
}
