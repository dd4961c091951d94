/* SPDX-License-Identifier: MIT */
/* What is seen of a process tree while it runs, and what is left when someone is killed. */
#include <memtally/recording.h>
#include <memtally/units.h>

#include "tests/support/nobody.h"
#include "watch/watch.h"
#include "watched.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Watches until `pid` is stopped. */
static void wait_until_stopped(struct watched_run *run, int pid)
{
    while (watched_state(pid) != 'T')
        watched_poll_alive(run);
}

/* Watches until a picture shows a stopped process as it is, and returns the tally of it. */
static struct mt_tally *tally_of_stopped(struct watched_run *run, int pid)
{
    uint64_t resident = watched_rollup(pid, "Rss");
    for (;;) {
        watched_poll_alive(run);
        struct mt_tally *tally = watched_tally(run, MT_MOMENT_PEAK, 0);
        const struct mt_tally_process *process =
            tally ? watched_process(tally, (uint64_t)pid) : NULL;
        if (process && process->n_places && process->picture_time_ns != MT_UNKNOWN &&
            !process->is_carried && process->places[0].total_resident_bytes == resident)
            return tally;
        mt_tally_destroy(tally);
    }
}

static void wait_for_a_picture(struct watched_run *run)
{
    int found = 0;
    while (!found) {
        watched_poll_alive(run);
        struct mt_tally *tally = watched_tally(run, MT_MOMENT_PEAK, 0);
        for (size_t i = 0; tally && i < tally->n_processes; i++)
            found |= tally->processes[i].pictures_taken != 0;
        mt_tally_destroy(tally);
    }
}

static void kill_and_finish(struct watched_run *run, int pid)
{
    kill(pid, SIGKILL);
    watched_finish(run);
}

/* The rows against what the kernel says of a process that does not move: nothing is skewed. */
static void assert_exact(const struct mt_tally *tally, int pid)
{
    const struct mt_tally_place *place = watched_process(tally, (uint64_t)pid)->places;
    assert_true(place->skew_known);
    assert_int_equal(place->picture_skew_bytes, 0);
    assert_int_equal(place->total_resident_bytes, watched_rollup(pid, "Rss"));
}

static void test_a_stopped_process_is_pictured_to_the_byte(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "touch=64", "stop");
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    assert_exact(tally, pid);
    const struct mt_tally_place *place = watched_process(tally, (uint64_t)pid)->places;
    const struct mt_tally_row *runtime = mt_tally_row_of(place, MT_CATEGORY_RUNTIME);
    assert_true(runtime->resident_bytes >= 64 * MIB);
    /* With the recorder in it nothing of so simple a program stays unexplained. */
    assert_int_equal(place->unattributed_bytes, 0);
    assert_int_equal(tally->places[0].picture_skew_bytes, 0);
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
    assert_int_equal(run.result.signal, SIGKILL);
    assert_int_equal(run.result.exit_code, 128 + SIGKILL);
    tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    assert_string_equal(watched_process(tally, (uint64_t)pid)->end, "killed by SIGKILL");
    mt_tally_destroy(tally);
}

static void test_a_static_program_is_seen_from_outside_and_adds_up(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_static_child(), "touch=64", "stop");
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)pid);
    assert_string_equal(process->observed, "outside");
    assert_string_equal(process->observed_reason, "statically linked");
    assert_exact(tally, pid);
    /* Anonymous memory that nobody spoke of is not given a name. */
    assert_true(process->places[0].unattributed_bytes >= 64 * MIB);
    assert_null(mt_tally_row_of(process->places, MT_CATEGORY_CACHED));
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
}

static void test_without_a_recorder_a_program_is_seen_from_outside(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "touch=32", "stop");
    run.options.recorder_path = NULL;
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    assert_string_equal(watched_process(tally, (uint64_t)pid)->observed_reason,
                        "the recorder was not loaded");
    assert_exact(tally, pid);
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
}

/* Whether a program can start: that of another user needs a libc which that user can read. */
static int starts(const char *path)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* A copy of the child that belongs to another user and runs as that one. */
static int make_setuid(char path[128])
{
    char command[512];
    struct statvfs mounted;
    snprintf(path, 128, "%s/setuid", watched_folder);
    snprintf(command, sizeof command, "cp '%s' '%s'", watched_child(), path);
    if (getuid() != 0 || statvfs(watched_folder, &mounted) < 0 || mounted.f_flag & ST_NOSUID)
        return 0;
    return system(command) == 0 && chown(path, NOBODY, NOBODY) == 0 && chmod(path, 04755) == 0 &&
           starts(path);
}

static void test_a_setuid_program_is_seen_from_outside(void **state)
{
    (void)state;
    struct watched_run run;
    char path[128];
    if (!make_setuid(path)) {
        print_message("# not possible here: no program starts as another user\n");
        return;
    }
    PREPARE(&run, path, "touch=32", "stop");
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    assert_string_equal(watched_process(tally, (uint64_t)pid)->observed_reason,
                        "setuid, setgid or capabilities");
    assert_exact(tally, pid);
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
}

static void test_a_program_that_another_becomes_is_another_image(void **state)
{
    (void)state;
    struct watched_run run;
    char line[256];
    char exec[300];
    snprintf(exec, sizeof exec, "exec=%s", watched_static_child());
    PREPARE(&run, watched_child(), "touch=16", "say=ready", "hold", exec, "touch=64", "stop");
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    watched_read_line(&run, line);
    wait_for_a_picture(&run); /* of what it is at first */
    close(run.input);         /* lets it go on */
    run.input = -1;
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)pid);
    assert_string_equal(process->observed_reason, "statically linked");
    assert_int_equal(tally->n_processes, 1);
    assert_exact(tally, pid);
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
}

/* Its folder is root's own, and the program that another user becomes writes elsewhere: all of what
 * it allocates is known. */
static void leave_to_another_user(const char *recorder)
{
    struct watched_run run;
    struct stat status;
    char exec[300];
    if (geteuid() != 0 || !is_for_everybody(watched_child())) {
        print_message("# not possible here: root alone becomes another user\n");
        return;
    }
    snprintf(exec, sizeof exec, "exec=%s", watched_child());
    PREPARE(&run, watched_child(), "touch=16", "user=65534", exec, "touch=64", "hold");
    run.options.recorder_path = recorder;
    assert_int_equal(mkdir(run.directory, 0700), 0);
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 0);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)pid);
    assert_string_equal(process->observed, "recorder");
    const struct mt_tally_row *row = mt_tally_row_of(process->places, MT_CATEGORY_RUNTIME);
    assert_non_null(row);
    assert_true(row->resident_bytes >= 64 * MIB);
    assert_true(process->places[0].unattributed_bytes < MIB);
    mt_tally_destroy(tally);
    char path[160];
    for (int i = 0; i < 2; i++) { /* of root's program, and of the other's */
        snprintf(path, sizeof path, "%s/%d-%d.mtz", run.directory, pid, i);
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(status.st_uid, 0);
    }
    watched_close(&run);
}

static void test_a_program_that_root_leaves_to_another_user_is_recorded(void **state)
{
    (void)state;
    leave_to_another_user(watched_recorder());
}

/* As of a build below root's home: the loader of the other user's programs would complain. */
static void test_another_user_who_cannot_reach_the_recorder_is_recorded(void **state)
{
    (void)state;
    char folder[96], recorder[160], command[512];
    snprintf(folder, sizeof folder, "%s/closed", watched_folder);
    snprintf(recorder, sizeof recorder, "%s/libmemtally-record.so", folder);
    snprintf(command, sizeof command, "cp '%s' '%s'", watched_recorder(), recorder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(system(command), 0);
    leave_to_another_user(recorder);
    assert_int_equal(unlink(recorder), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* It has left a file of the recorder, which is not its own any more. */
static void test_a_program_that_becomes_another_at_once_is_the_other(void **state)
{
    (void)state;
    struct watched_run run;
    char exec[300];
    snprintf(exec, sizeof exec, "exec=%s", watched_static_child());
    PREPARE(&run, watched_child(), exec, "touch=64", "stop");
    watched_start(&run);
    int pid = mt_run_pid(run.run);
    wait_until_stopped(&run, pid);
    struct mt_tally *tally = tally_of_stopped(&run, pid);
    assert_string_equal(watched_process(tally, (uint64_t)pid)->observed, "outside");
    assert_exact(tally, pid);
    mt_tally_destroy(tally);
    kill_and_finish(&run, pid);
}

static void test_children_and_theirs_are_seen_together(void **state)
{
    (void)state;
    struct watched_run run;
    struct mt_run_status status = {0};
    char line[256];
    PREPARE(&run, watched_child(), "fork", "fork", "touch=8", "pid", "hold");
    watched_start(&run);
    uint64_t pid = (uint64_t)mt_run_pid(run.run);
    watched_read_line(&run, line);
    while (status.n_processes != 3)
        assert_int_equal(mt_run_poll(run.run, 20, &status, NULL), 0);
    assert_true(status.resident_bytes >= 8 * MIB);
    watched_finish(&run);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    assert_int_equal(tally->n_processes, 3);
    const struct mt_tally_process *last = watched_process(tally, (uint64_t)atoi(line));
    const struct mt_tally_process *middle = watched_process(tally, last->parent_pid);
    assert_non_null(middle);
    assert_int_equal(middle->parent_pid, pid);
    assert_true(last->places[0].total_resident_bytes >= 8 * MIB);
    mt_tally_destroy(tally);
}

static void test_an_orphan_is_seen_and_its_end_too(void **state)
{
    (void)state;
    struct watched_run run;
    char line[256];
    PREPARE(&run, watched_child(), "fork", "leave", "touch=8", "pid", "hold", "exit=5");
    watched_start(&run);
    watched_read_line(&run, line);
    struct mt_run_status status = {.running = 1};
    while (status.running)
        assert_int_equal(mt_run_poll(run.run, 20, &status, NULL), 0);
    close(run.input); /* it ends now; a run that is finished waits a second for that at most */
    run.input = -1;
    while (kill(atoi(line), 0) == 0)
        watched_poll(&run);
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 0);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_EXIT, 0);
    assert_non_null(tally);
    const struct mt_tally_process *orphan = watched_process(tally, (uint64_t)atoi(line));
    assert_non_null(orphan);
    assert_string_equal(orphan->end, "exited 5");
    assert_string_equal(orphan->observed, "recorder");
    mt_tally_destroy(tally);
}

static int raw_files(const char *directory)
{
    DIR *folder = opendir(directory);
    int n = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += strstr(entry->d_name, ".mtr") != NULL;
    closedir(folder);
    return n;
}

static void test_a_daemon_that_is_left_behind_holds_nobody_up(void **state)
{
    (void)state;
    struct watched_run run;
    char line[256];
    PREPARE(&run, watched_child(), "leave", "touch=8", "pid", "hold");
    watched_start(&run);
    watched_read_line(&run, line);
    int daemon = atoi(line);
    int input = dup(run.input); /* keeps the daemon waiting */
    watched_finish(&run);
    assert_int_equal(run.result.exit_code, 0);
    assert_int_equal(kill(daemon, 0), 0);
    assert_int_equal(raw_files(run.directory), 1); /* it writes on */
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)daemon);
    assert_non_null(process);
    assert_string_equal(process->end, "running");
    mt_tally_destroy(tally);
    close(input);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0); /* it is ours, or no one's */
}

static void test_short_programs_are_known_by_their_end(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_child(), "exit=3");
    watched_start(&run);
    uint64_t pid = (uint64_t)mt_run_pid(run.run);
    watched_finish(&run);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_EXIT, 0);
    assert_non_null(tally);
    assert_string_equal(watched_process(tally, pid)->end, "exited 3");
    assert_string_equal(watched_process(tally, pid)->observed, "recorder");
    mt_tally_destroy(tally);
}

/* A tally of a time at which the process was there: it has no picture to name one. */
static struct mt_tally *tally_with(const struct watched_run *run, uint64_t pid)
{
    for (uint64_t ms = 0;; ms++) {
        struct mt_tally *tally = watched_tally(run, MT_MOMENT_TIME, ms * 1000000);
        assert_non_null(tally); /* the recording ends, and it was not there */
        if (watched_process(tally, pid))
            return tally;
        mt_tally_destroy(tally);
    }
}

/* A child of the program that ends, as the kernel may tell: when its parent has just been told the
 * end, the child is no child any more, and has no parent. */
static struct {
    long (*read_file)(void *context, const char *path, char *bytes, size_t capacity);
    char children[64];
    char stat[64]; /* and what it says; "" until it was read */
    char before_state[128], after_parent[512];
    int program, pid, is_gone, n_reads;
} dying;

static void find_dying(const char *path, const char *text)
{
    int parent = 0, length = 0;
    char state;
    if (sscanf(text, "%d (%*[^)]) %n%c %d", &dying.pid, &length, &state, &parent) != 3 ||
        parent != dying.program)
        return;
    snprintf(dying.stat, sizeof dying.stat, "%s", path);
    snprintf(dying.before_state, sizeof dying.before_state, "%.*s", length, text);
    snprintf(dying.after_parent, sizeof dying.after_parent, "%s", strchr(text + length + 2, ' '));
}

/* It is never found alive but once, lest it should be judged by that. */
static long read_dying(void *context, const char *path, char *bytes, size_t capacity)
{
    char text[1024];
    if (dying.is_gone && strcmp(path, dying.children) == 0)
        return 0;
    if (strcmp(path, dying.stat) == 0) {
        if (dying.is_gone && dying.n_reads++ >= 2)
            return -ENOENT;
        return snprintf(bytes, capacity, "%sX %d%s", dying.before_state,
                        dying.is_gone ? 0 : dying.program, dying.after_parent);
    }
    long got = dying.read_file(context, path, bytes, capacity);
    if (got > 0 && !*dying.stat && strstr(path, "/stat") && !strstr(path, "/statm")) {
        snprintf(text, sizeof text, "%.*s", (int)got, bytes);
        find_dying(path, text);
    }
    return got;
}

/* It allocates nothing, so that its parent's recording is all that there is of it. */
static void test_a_fork_that_is_seen_as_it_ends_is_its_parents(void **state)
{
    (void)state;
    struct watched_run run;
    struct mt_run_status status = {0};
    PREPARE(&run, watched_child(), "touch=8", "fork", "hold");
    watched_start(&run);
    memset(&dying, 0, sizeof dying);
    dying.program = mt_run_pid(run.run);
    dying.read_file = run.run->host.read_file;
    snprintf(dying.children, sizeof dying.children, "/proc/%d/task/%d/children", dying.program,
             dying.program);
    run.run->host.read_file = read_dying;
    while (status.n_processes != 2)
        assert_int_equal(mt_run_poll(run.run, 20, &status, NULL), 0);
    dying.is_gone = 1;
    while (status.n_processes != 1)
        assert_int_equal(mt_run_poll(run.run, 20, &status, NULL), 0);
    watched_finish(&run);
    struct mt_tally *tally = tally_with(&run, (uint64_t)dying.pid);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)dying.pid);
    assert_int_equal(process->parent_pid, dying.program);
    assert_string_equal(process->observed, "recorder");
    mt_tally_destroy(tally);
}

/* How long it lived is up to the machine: either it was judged in time or it was not. */
static void test_short_programs_out_of_the_recorders_reach_are_named(void **state)
{
    (void)state;
    struct watched_run run;
    PREPARE(&run, watched_static_child(), "exit=4");
    watched_start(&run);
    uint64_t pid = (uint64_t)mt_run_pid(run.run);
    watched_finish(&run);
    struct mt_tally *tally = tally_with(&run, pid);
    const struct mt_tally_process *process = watched_process(tally, pid);
    assert_string_equal(process->end, "exited 4");
    assert_string_equal(process->observed, "outside");
    assert_true(strcmp(process->observed_reason, "ended before it could be looked at") == 0 ||
                strcmp(process->observed_reason, "statically linked") == 0);
    mt_tally_destroy(tally);
}

/* Runs the watcher in a process of its own, which is killed once the program says that it is ready
 * and the watcher has looked at it. */
static pid_t start_watcher(struct watched_run *run, int *program, int *output)
{
    int report[2];
    assert_int_equal(pipe(report), 0);
    pid_t watcher = fork();
    if (watcher == 0) {
        char line[256];
        dup2(run->fds[0], STDIN_FILENO);
        close(report[0]);
        if (mt_run_start(&run->options, &run->run, NULL) < 0)
            _exit(1); /* a failure here must not go on with the other tests */
        close(run->fds[1]);
        int pid = mt_run_pid(run->run);
        watched_read_line(run, line);
        wait_for_a_picture(run);
        if (write(report[1], &pid, sizeof pid) != sizeof pid)
            _exit(1);
        for (;;)
            watched_poll(run);
    }
    close(report[1]);
    close(run->fds[0]);
    close(run->fds[1]);
    assert_int_equal(read(report[0], program, sizeof *program), sizeof *program);
    *output = report[0];
    return watcher;
}

/* Nobody is left who would remove the folder for other users that root's watcher made. */
static void remove_side(int program)
{
    static const char name[] = "MEMTALLY_RECORD_OTHER_DIR=";
    char path[64];
    char text[65536] = "";
    snprintf(path, sizeof path, "/proc/%d/environ", program);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    char *found = memmem(text, length, name, sizeof name - 1);
    assert_non_null(found);
    if (geteuid() != 0)
        return;
    snprintf(path, sizeof path, "%s/libmemtally-record.so", found + sizeof name - 1);
    unlink(path); /* a copy, where others cannot reach ours */
    assert_int_equal(rmdir(found + sizeof name - 1), 0);
}

static void test_a_watcher_that_is_killed_leaves_what_it_saw(void **state)
{
    (void)state;
    struct watched_run run;
    struct mt_recording *recording;
    struct mt_recording_damage damage;
    int program, report, status;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* the program comes to us */
    PREPARE(&run, watched_child(), "touch=16", "say=ready", "hold", "exit=0");
    pid_t watcher = start_watcher(&run, &program, &report);
    kill(watcher, SIGKILL);
    assert_int_equal(waitpid(watcher, &status, 0), watcher);
    assert_int_equal(kill(program, 0), 0); /* it goes on without its watcher */
    remove_side(program);
    close(run.input);
    close(report);
    assert_int_equal(waitpid(program, &status, 0), program);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(run.output);
    assert_int_equal(mt_recording_open(run.directory, &recording, NULL), 0);
    mt_recording_damage(recording, &damage);
    assert_int_equal(damage.files_unreadable, 0);
    assert_int_equal(damage.blocks_bad, 0);
    assert_int_equal(damage.blocks_open, 1);
    mt_recording_close(recording);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    const struct mt_tally_process *process = watched_process(tally, (uint64_t)program);
    assert_string_equal(process->end, "exited"); /* its recorder said so; nobody knows the status */
    assert_true(process->places[0].total_resident_bytes >= 16 * MIB);
    mt_tally_destroy(tally);
}

static void test_marks_and_the_machine_are_in_the_recording(void **state)
{
    (void)state;
    struct watched_run run;
    char line[256];
    const struct mt_recording_mark *marks;
    struct mt_recording *recording;
    PREPARE(&run, watched_child(), "touch=16", "say=ready", "hold");
    watched_start(&run);
    watched_read_line(&run, line);
    mt_run_mark(run.run, "here");
    watched_finish(&run);
    assert_int_equal(mt_recording_open(run.directory, &recording, NULL), 0);
    assert_int_equal(mt_recording_marks(recording, &marks), 1);
    assert_string_equal(marks[0].name, "here");
    mt_recording_close(recording);
    struct mt_tally *tally = watched_tally(&run, MT_MOMENT_PEAK, 0);
    assert_non_null(tally);
    assert_int_not_equal(tally->machine.memory_total_bytes, MT_UNKNOWN);
    assert_int_not_equal(tally->machine.other_processes_resident_bytes, MT_UNKNOWN);
    assert_true(tally->processes[0].peak_resident_bytes >= 16 * MIB);
    assert_true(run.result.peak_resident_bytes > 0);
    mt_tally_destroy(tally);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, watched_setup, watched_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_stopped_process_is_pictured_to_the_byte),
        TEST(test_a_static_program_is_seen_from_outside_and_adds_up),
        TEST(test_without_a_recorder_a_program_is_seen_from_outside),
        TEST(test_a_setuid_program_is_seen_from_outside),
        TEST(test_a_program_that_another_becomes_is_another_image),
        TEST(test_a_program_that_root_leaves_to_another_user_is_recorded),
        TEST(test_another_user_who_cannot_reach_the_recorder_is_recorded),
        TEST(test_a_program_that_becomes_another_at_once_is_the_other),
        TEST(test_children_and_theirs_are_seen_together),
        TEST(test_an_orphan_is_seen_and_its_end_too),
        TEST(test_a_daemon_that_is_left_behind_holds_nobody_up),
        TEST(test_short_programs_are_known_by_their_end),
        TEST(test_a_fork_that_is_seen_as_it_ends_is_its_parents),
        TEST(test_short_programs_out_of_the_recorders_reach_are_named),
        TEST(test_a_watcher_that_is_killed_leaves_what_it_saw),
        TEST(test_marks_and_the_machine_are_in_the_recording),
    };
    return RUN_TESTS(tests);
}
