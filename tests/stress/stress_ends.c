/* SPDX-License-Identifier: MIT */
/* Programs that end at random moments, each way and in each depth: every event that was written
 * before is read, and every report answers.
 *
 * stress_ends MEMTALLY ENDER RUNS [SEED]: so many runs of each way in each depth */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/error.h>

#include "ender.h"
#include "tally/replay.h"

#define LONGEST_US 60000u

static const char *const ways[] = {"kill", "segv", "abort", "exit"};
static const int statuses[] = {128 + SIGKILL, 128 + SIGSEGV, 128 + SIGABRT, 3};
static const char *const depths[] = {"default", "full"};

struct totals {
    unsigned n;
    unsigned n_answered;
    unsigned n_no_picture; /* reports that say that there is none */
    unsigned n_no_file;    /* ended before the recorder's first event */
    uint64_t n_events;
    unsigned n_wrong;
};

struct run {
    const char *memtally;
    const char *ender;
    char folder[64];
    char recording[96];
    char counts_path[96];
    struct ender_counts *counts;
};

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)kind;
    (void)at;
    return remove(path);
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "stress_ends: cannot %s: %s\n", what, strerror(errno));
    exit(2);
}

static void make_folder(struct run *run)
{
    strcpy(run->folder, "/tmp/memtally-stress-XXXXXX");
    must(mkdtemp(run->folder) != NULL, "make a folder");
    snprintf(run->recording, sizeof run->recording, "%s/rec", run->folder);
    snprintf(run->counts_path, sizeof run->counts_path, "%s/counts", run->folder);
    int fd = open(run->counts_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && ftruncate(fd, sizeof *run->counts) == 0, "make the counts' file");
    run->counts = mmap(NULL, sizeof *run->counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(run->counts != MAP_FAILED, "map the counts");
    close(fd);
}

static void remove_folder(struct run *run)
{
    munmap(run->counts, sizeof *run->counts);
    nftw(run->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Runs a command, its standard output and error into `output`. Returns its status as a shell has
 * it. */
static int run_command(const char *output, const char *const *words)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    must(waitpid(child, &status, 0) == child, "wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int has_text(const char *path, const char *text)
{
    char found[4096] = "";
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(found, 1, sizeof found - 1, file) : 0;
    found[n] = '\0';
    if (file)
        fclose(file);
    return strstr(found, text) != NULL;
}

/* What the recording of the process says: allocations and frees of the program's own blocks. */
struct read {
    uint64_t allocated;
    uint64_t freed;
    uint64_t n_events;
    int is_damaged;
};

static void read_file(const char *path, struct read *read)
{
    struct mt_record_file *file;
    struct mt_merge *merge;
    struct mt_event event;
    struct mt_blocks alive = {0};
    uint64_t size;
    struct mt_error error;
    if (mt_record_file_open(path, &file, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        read->is_damaged = 1;
        return;
    }
    must(mt_merge_create(file, &merge) == 0, "read events");
    for (; mt_merge_next(merge, &event); read->n_events++) {
        const struct mt_heap_block block = {event.field[0], event.field[1], 0, 0};
        if (event.op == MT_EVENT_ALLOC && event.field[1] == ENDER_BLOCK_BYTES) {
            read->allocated++;
            must(mt_blocks_put(&alive, &block) == 0, "keep blocks");
        } else if (event.op == MT_EVENT_FREE) {
            read->freed += (uint64_t)mt_blocks_take(&alive, event.field[0], &size);
        }
    }
    read->is_damaged = mt_merge_failed(merge) || mt_merge_blocks_bad(merge) || file->blocks_bad ||
                       file->header.events_lost;
    mt_blocks_finish(&alive);
    mt_merge_destroy(merge);
    mt_record_file_close(file);
}

/* Whether what was read lies between the calls that returned and those that began. */
static int is_all(const struct run *run, const struct read *read)
{
    uint64_t least[2] = {0, 0}, most[2] = {0, 0};
    for (size_t i = 0; i < ENDER_THREADS; i++) {
        least[0] += run->counts->thread[i].allocated;
        most[0] += run->counts->thread[i].allocating;
        least[1] += run->counts->thread[i].freed;
        most[1] += run->counts->thread[i].freeing;
    }
    if (!read->is_damaged && read->allocated >= least[0] && read->allocated <= most[0] &&
        read->freed >= least[1] && read->freed <= most[1])
        return 1;
    printf("# %llu allocations read, %llu to %llu made; %llu frees read, %llu to %llu made%s\n",
           (unsigned long long)read->allocated, (unsigned long long)least[0],
           (unsigned long long)most[0], (unsigned long long)read->freed,
           (unsigned long long)least[1], (unsigned long long)most[1],
           read->is_damaged ? "; the recording is damaged" : "");
    return 0;
}

static void check_events(const struct run *run, struct totals *totals)
{
    char pattern[128];
    glob_t found;
    struct read read = {0};
    snprintf(pattern, sizeof pattern, "%s/*-0.mt[rz]", run->recording);
    if (glob(pattern, 0, NULL, &found) == 0) {
        read_file(found.gl_pathv[0], &read);
        globfree(&found);
    } else {
        totals->n_no_file++;
    }
    totals->n_events += read.n_events;
    totals->n_wrong += !is_all(run, &read);
}

static void check_report(const struct run *run, struct totals *totals)
{
    char output[96];
    snprintf(output, sizeof output, "%s/report", run->folder);
    const char *const report[] = {run->memtally, "report", run->recording, NULL};
    int status = run_command(output, report);
    if (status == 0) {
        totals->n_answered++;
    } else if ((status == 1 || status == 2) && has_text(output, "no picture")) {
        totals->n_no_picture++;
    } else {
        totals->n_wrong++;
        printf("# the report ended with %d\n", status);
    }
}

static void run_one(const struct run *given, size_t way, size_t depth, unsigned us,
                    struct totals *totals)
{
    struct run run = *given;
    char delay[16], output[96];
    make_folder(&run);
    snprintf(delay, sizeof delay, "%u", us);
    snprintf(output, sizeof output, "%s/output", run.folder);
    const char *const words[] = {run.memtally, "run",         "-q", "-o",      run.recording,
                                 "--depth",    depths[depth], "--", run.ender, run.counts_path,
                                 ways[way],    delay,         NULL};
    const unsigned before = totals->n_wrong;
    int status = run_command(output, words);
    if (status != statuses[way]) {
        totals->n_wrong++;
        printf("# the program ended with %d\n", status);
    }
    check_events(&run, totals);
    check_report(&run, totals);
    totals->n++;
    if (totals->n_wrong > before)
        printf("# so it was with %s after %u us in the %s depth\n", ways[way], us, depths[depth]);
    remove_folder(&run);
}

int main(int argc, char **argv)
{
    unsigned failures = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: stress_ends MEMTALLY ENDER RUNS [SEED]\n");
        return 2;
    }
    const struct run run = {.memtally = argv[1], .ender = argv[2]};
    const unsigned n = (unsigned)atoi(argv[3]);
    srandom(argc > 4 ? (unsigned)atoi(argv[4]) : 1u);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..8\n");
    for (size_t depth = 0; depth < 2; depth++)
        for (size_t way = 0; way < 4; way++) {
            struct totals totals = {0};
            for (unsigned i = 0; i < n; i++)
                run_one(&run, way, depth, (unsigned)random() % LONGEST_US, &totals);
            printf("%s %zu - %s, %s depth: %u runs, %llu events read, %u reports answered, %u said "
                   "that there is no picture, %u programs ended before the first event\n",
                   totals.n_wrong ? "not ok" : "ok", depth * 4 + way + 1, ways[way], depths[depth],
                   totals.n, (unsigned long long)totals.n_events, totals.n_answered,
                   totals.n_no_picture, totals.n_no_file);
            failures += totals.n_wrong;
        }
    return failures != 0;
}
