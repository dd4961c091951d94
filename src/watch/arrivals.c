/* SPDX-License-Identifier: MIT */
/* A large tree between two looks at the whole of it, which read of each process of the machine who
 * it is. Here only its number is read, and who it is of those that were not there before. What
 * moves into a control group later, and a number that is used again meanwhile, shows at the next
 * look at the whole. */
#include <stdlib.h>
#include <unistd.h>

#include "watch/watch.h"

/* `known` processes are sorted; those behind them have just come. */
static int has_parent(struct mt_run *run, size_t known, const struct mt_process *seen)
{
    size_t all = run->n_processes;
    run->n_processes = known;
    int has = mt_watch_find(run, seen->parent_pid) != NULL;
    run->n_processes = all;
    return has;
}

/* A group that the first process is not in tells nobody: then its descendants are the tree, as at a
 * look at the whole. */
static int belongs(struct mt_run *run, size_t known, const struct mt_process *seen)
{
    if (seen->pid == getpid())
        return 0;
    if (run->group && mt_process_is_in_group(&run->host, seen->pid, run->pid, run->group))
        return 1;
    return has_parent(run, known, seen) &&
           !(run->group && mt_process_is_in_group(&run->host, run->pid, run->pid, run->group));
}

/* Those of the tree whose numbers are no longer there. Both lists ascend. */
static void take_out_the_gone(struct mt_run *run)
{
    const struct mt_process_numbers *now = &run->numbers_now;
    size_t at = now->n;
    for (size_t i = run->n_processes; i-- > 0;) {
        pid_t pid = run->processes[i].seen.pid;
        while (at > 0 && now->items[at - 1] > pid)
            at--;
        if (at == 0 || now->items[at - 1] != pid)
            mt_watch_take_out(run, i);
    }
}

/* Gives the numbers that were not there before. */
static size_t find_new(struct mt_run *run, int *numbers)
{
    size_t n = 0;
    size_t at = 0;
    for (size_t i = 0; i < run->numbers_now.n; i++) {
        int pid = run->numbers_now.items[i];
        while (at < run->numbers.n && run->numbers.items[at] < pid)
            at++;
        if ((at == run->numbers.n || run->numbers.items[at] != pid) && !mt_watch_find(run, pid))
            numbers[n++] = pid;
    }
    return n;
}

/* A parent may have a higher number than its child: it is tried again as long as some belong. */
static void take_in(struct mt_run *run, int *numbers, size_t n, uint64_t now_ns)
{
    size_t known;
    do {
        size_t left = 0;
        known = run->n_processes;
        for (size_t i = 0; i < n; i++) {
            struct mt_process seen;
            if (mt_process_read(&run->host, numbers[i], &seen, NULL) < 0)
                continue;
            if (belongs(run, known, &seen))
                mt_watch_add(run, &seen, now_ns);
            else
                numbers[left++] = numbers[i];
        }
        n = left;
        mt_watch_sort(run);
    } while (run->n_processes > known && n);
}

void mt_watch_arrivals(struct mt_run *run, uint64_t now_ns)
{
    if (mt_process_numbers_read(&run->host, &run->numbers_now, NULL) < 0)
        return;
    if (run->numbers.n) {
        int *numbers = malloc(run->numbers_now.n * sizeof *numbers);
        if (!numbers)
            return;
        take_out_the_gone(run);
        take_in(run, numbers, find_new(run, numbers), now_ns);
        free(numbers);
    }
    struct mt_process_numbers before = run->numbers;
    run->numbers = run->numbers_now;
    run->numbers_now = before;
}
