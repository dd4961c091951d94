/* SPDX-License-Identifier: MIT */
/* Passing signals on. A handler has no argument for its caller's data, so what it needs stands in
 * the file's only variables. */
#include "cli/forward.h"

#include <signal.h>
#include <stddef.h>

#include <memtally/job.h>
#include <memtally/run.h>

static struct mt_run *volatile receiver;
static struct mt_job *volatile job_receiver;
static volatile sig_atomic_t early;

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

/* What the kernel sends for the terminal (Ctrl-C, a new size) goes to all of its foreground
 * processes; the program has it already. */
static void forward(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code > 0)
        return;
    struct mt_run *run = receiver;
    struct mt_job *job = job_receiver;
    if (run)
        mt_run_signal(run, signal);
    else if (job)
        mt_job_signal(job, signal);
    else
        early = signal;
}

void cli_forward_begin(void)
{
    struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
        struct sigaction old;
        if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(forwarded[i], &action, NULL);
    }
}

void cli_forward_to(struct mt_run *run)
{
    receiver = run;
    if (run && early) {
        mt_run_signal(run, early);
        early = 0;
    }
}

void cli_forward_to_job(struct mt_job *job)
{
    job_receiver = job;
    if (job && early) {
        mt_job_signal(job, early);
        early = 0;
    }
}
