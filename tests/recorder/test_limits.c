/* SPDX-License-Identifier: MIT */
/* Where the recorder cannot write it says so once, and the program goes on as if it were not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder/harness.h"
#include "recording/writer.h"
#include "support/nobody.h"

static int is_one_message(const char *err)
{
    const char *end = strchr(err, '\n');
    return strncmp(err, "memtally: ", 10) == 0 && end && end[1] == '\0';
}

/* Does its work, says "done" and ends with 0; the recorder says one thing. */
static void works_and_says(const struct ran *ran, const char *what)
{
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    if (!is_one_message(ran->err) || !strstr(ran->err, what))
        fail_msg("expected one message with '%s', got: %s", what, ran->err);
}

static size_t number_of(const struct mt_record_file *file, enum mt_event_op op)
{
    struct mt_cursor cursor;
    struct mt_event event;
    size_t n = 0;
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event))
        n += event.op == op;
    return n;
}

static void test_a_folder_that_cannot_be_written_is_said_once(void **state)
{
    static const char *const folders[] = {"/no/such/folder", "/dev/null", "/proc/self", "relative"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const struct how how = {.depth = DEPTH_FULL, .directory = folders[i]};
        struct ran *ran = RUN(&how, CHILD, "works");
        works_and_says(ran, i < 3 ? "unrecorded" : "absolute");
        assert_int_equal(ran->n_files, 0);
        ran_free(ran);
    }
}

static void test_a_folder_that_may_not_be_written_is_said_once(void **state)
{
    char folder[] = "/tmp/memtally-test-XXXXXX";
    (void)state;
    if (geteuid() == 0)
        NOT_HERE(); /* root may */
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0500), 0);
    const struct how how = {.depth = DEPTH_FULL, .directory = folder};
    struct ran *ran = RUN(&how, CHILD, "works");
    works_and_says(ran, "unrecorded");
    ran_free(ran);
    rmdir(folder);
}

static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void limit_to_nothing(void)
{
    limit_files(100);
}

static void limit_to_three_blocks(void)
{
    limit_files(MT_HEADER_BYTES + 3 * MT_BLOCK_BYTES + 5);
}

/* Writing past the limit raises SIGXFSZ, which ends a program that does not expect it. */
static void test_the_limit_of_file_sizes_ends_the_recording_and_not_the_program(void **state)
{
    const struct how none = {.depth = DEPTH_FULL, .prepare = limit_to_nothing};
    const struct how some = {.depth = DEPTH_FULL, .prepare = limit_to_three_blocks};
    (void)state;
    struct ran *ran = RUN(&none, CHILD, "works");
    works_and_says(ran, "no space left");
    assert_int_equal(ran->n_files, 0);
    ran_free(ran);
    ran = RUN(&some, CHILD, "works");
    works_and_says(ran, "no space left");
    assert_int_equal(the_file(ran)->n_blocks, 3);
    assert_true(the_file(ran)->header.end_kind == MT_END_EXIT);
    ran_free(ran);
}

static void test_a_full_disk_ends_the_recording_and_not_the_program(void **state)
{
    char folder[] = "/tmp/memtally-test-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    if (mount("tmpfs", folder, "tmpfs", 0, "size=300k") < 0) {
        rmdir(folder);
        NOT_HERE();
    }
    const struct how how = {.depth = DEPTH_FULL, .directory = folder};
    struct ran *ran = RUN(&how, CHILD, "works");
    umount2(folder, MNT_DETACH);
    rmdir(folder);
    works_and_says(ran, "no space left");
    assert_in_range(the_file(ran)->n_blocks, 3, 4);
    assert_int_equal(the_file(ran)->blocks_bad, 0);
    ran_free(ran);
}

/* What the program has opened in place of standard error is not the recorder's to write to. */
static void test_a_file_of_the_program_in_place_of_stderr_is_left_alone(void **state)
{
    char path[] = "/tmp/memtally-test-file-XXXXXX";
    struct stat status;
    (void)state;
    close(mkstemp(path));
    const struct how how = {.depth = DEPTH_FULL, .prepare = limit_to_three_blocks};
    struct ran *ran = RUN(&how, CHILD, "replaced", path);
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 0);
    unlink(path);
    ran_free(ran);
}

static void break_stderr(void)
{
    int ends[2];
    if (pipe(ends) < 0)
        return;
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    signal(SIGPIPE, SIG_DFL);
}

/* A pipe that nobody empties. */
static void fill_stderr(void)
{
    static const char text[4096];
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) < 0)
        return;
    while (write(ends[1], text, sizeof text) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], 2);
}

static void test_standard_error_that_takes_nothing_does_no_harm(void **state)
{
    void (*const ways[])(void) = {break_stderr, fill_stderr};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct how how = {.directory = "/no/such/folder", .prepare = ways[i]};
        struct ran *ran = RUN(&how, CHILD, "works");
        assert_true(exited(ran, 0));
        assert_string_equal(ran->out, "done\n");
        ran_free(ran);
    }
}

static void test_a_program_out_of_descriptors_goes_on(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "few");
    (void)state;
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    assert_string_equal(ran->err, "");
    assert_int_equal(the_file(ran)->blocks_bad, 0);
    ran_free(ran);
}

/* MEMTALLY_TEST_ROUNDS: for more than can be waited for every time. */
static void test_other_threads_never_meet_a_descriptor(void **state)
{
    const char *rounds = getenv("MEMTALLY_TEST_ROUNDS");
    (void)state;
    for (int depth = DEPTH_DEFAULT; depth <= DEPTH_FULL; depth++) {
        const struct how how = {.depth = depth};
        struct ran *ran = RUN(&how, CHILD, "shared", rounds ? rounds : "3000");
        assert_true(exited(ran, 0));
        assert_string_equal(ran->out, "done\n");
        assert_string_equal(ran->err, "");
        assert_int_equal(the_file(ran)->blocks_bad, 0);
        ran_free(ran);
    }
}

static void test_a_program_never_meets_another_thread(void **state)
{
    (void)state;
    for (int depth = DEPTH_DEFAULT; depth <= DEPTH_FULL; depth++) {
        const struct how how = {.depth = depth};
        struct ran *ran = RUN(&how, CHILD, "alone", "200");
        assert_string_equal(ran->out, "done\n");
        assert_true(exited(ran, 0));
        ran_free(ran);
    }
}

/* As older containers do: what they do not know is refused. */
static void refuse_to_leave(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 436, 1, 0), /* close_range */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(97);
}

static void test_a_table_that_cannot_be_left_is_copied(void **state)
{
    const struct how how = {.prepare = refuse_to_leave};
    struct ran *ran = RUN(&how, CHILD, "shared", "500");
    (void)state;
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    assert_true(the_file(ran)->header.pictures_taken > 0);
    ran_free(ran);
}

/* Does its work and says nothing but "done". */
static void works_in_silence(const struct ran *ran)
{
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "done\n");
    assert_string_equal(ran->err, "");
}

static void test_a_folder_that_disappears_does_no_harm(void **state)
{
    char folder[] = "/tmp/memtally-test-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    const struct how how = {.depth = DEPTH_FULL, .directory = folder};
    struct ran *ran = RUN(&how, CHILD, "removes", folder);
    works_in_silence(ran);
    assert_int_equal(access(folder, F_OK), -1);
    ran_free(ran);
}

/* Nothing of the recording is opened again: what was mapped before goes on. */
static void test_recording_goes_on_under_another_root_and_user(void **state)
{
    char root[] = "/tmp/memtally-test-XXXXXX";
    const struct how free_how = {.depth = DEPTH_FULL};
    (void)state;
    if (geteuid() != 0)
        NOT_HERE();
    assert_non_null(mkdtemp(root));
    struct ran *plain = RUN(&free_how, CHILD, "works");
    struct ran *jailed = RUN(&free_how, CHILD, "jailed", root);
    works_in_silence(jailed);
    size_t n_plain = number_of(the_file(plain), MT_EVENT_ALLOC);
    assert_true(n_plain > 10000);
    assert_in_range(number_of(the_file(jailed), MT_EVENT_ALLOC), n_plain, n_plain + 100);
    assert_true(the_file(jailed)->header.end_kind == MT_END_EXIT);
    assert_int_equal(the_file(jailed)->header.events_lost, 0);
    ran_free(jailed);
    ran_free(plain);
    rmdir(root);
}

/* An ordinary user who may have no thread more. */
static void become_last(void)
{
    const struct rlimit limit = {1, 1};
    if (setrlimit(RLIMIT_NPROC, &limit) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        _exit(97);
}

static void test_a_user_who_may_have_no_more_threads_is_recorded(void **state)
{
    char folder[] = "/tmp/memtally-test-XXXXXX";
    (void)state;
    if (geteuid() != 0 || !is_for_everybody(CHILD) ||
        !is_for_everybody(program_path("MEMTALLY_TEST_RECORDER")))
        NOT_HERE();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0777), 0);
    const struct how how = {.depth = DEPTH_FULL, .directory = folder, .prepare = become_last};
    struct ran *ran = RUN(&how, CHILD, "works");
    works_in_silence(ran);
    assert_true(number_of(the_file(ran), MT_EVENT_ALLOC) > 10000);
    assert_int_equal(the_file(ran)->header.looks, 0); /* nothing can be done aside */
    assert_int_equal(unlink(the_file(ran)->path), 0);
    assert_int_equal(rmdir(folder), 0);
    ran_free(ran);
}

/* What the recorder maps counts against a limit on locked memory. */
static void test_all_memory_can_be_locked_within_eight_mebibytes(void **state)
{
    const struct how plain_how = {.unrecorded = 1};
    const struct how how = {.depth = DEPTH_FULL};
    (void)state;
    struct ran *plain = RUN(&plain_how, CHILD, "locked");
    struct ran *ran = RUN(&how, CHILD, "locked");
    assert_true(exited(plain, 0) && exited(ran, 0));
    assert_null(strstr(plain->out, "refused"));
    assert_null(strstr(ran->out, "refused"));
    assert_non_null(strstr(ran->out, "done"));
    assert_string_equal(ran->err, "");
    /* docs/ARCHITECTURE.md says how much address space it is. */
    uint64_t more_kib = number_after(ran->out, "VmSize:") - number_after(plain->out, "VmSize:");
    assert_in_range(more_kib, 1, 2048);
    assert_int_equal(the_file(ran)->header.events_lost, 0);
    ran_free(ran);
    ran_free(plain);
}

/* What was taken in advance is filled, and the rest is counted. */
static void test_a_filter_of_system_calls_is_not_met(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "filtered");
    (void)state;
    works_in_silence(ran);
    assert_true(the_file(ran)->n_blocks > MT_IN_ADVANCE_MOST);
    assert_int_equal(the_file(ran)->header.end_kind, MT_END_EXIT);
    assert_int_equal(the_file(ran)->blocks_bad, 0);
    ran_free(ran);
}

/* As the watching process would, which has one filter more or less than this test. */
static const char *filters_given(int more)
{
    static char setting[64];
    char line[256];
    int n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Seccomp_filters: %d", &n) == 1)
            break;
    fclose(file);
    snprintf(setting, sizeof setting, "MEMTALLY_RECORD_FILTERS=%d", n + more);
    return setting;
}

#define KILL(call)                                                                                 \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

/* What neither the loader nor the program calls, and the recorder does. */
static void kill_for_others(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(clone),
        KILL(prctl),
        KILL(madvise),
        KILL(mremap),
        KILL(mincore),
        KILL(getrusage),
        KILL(ftruncate),
        KILL(rt_sigprocmask),
        KILL(gettid),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(97);
}

static void test_a_program_that_is_started_under_a_filter_is_left_alone(void **state)
{
    (void)state;
    for (int depth = DEPTH_DEFAULT; depth <= DEPTH_FULL; depth++) {
        const struct how how = {
            .depth = depth, .setting = filters_given(0), .prepare = kill_for_others};
        struct ran *ran = RUN(&how, CHILD, "works");
        works_in_silence(ran);
        assert_int_equal(ran->n_files, 0);
        ran_free(ran);
    }
}

/* In a container, say. */
static void test_filters_that_the_watching_process_has_too_are_no_reason(void **state)
{
    const struct how how = {.setting = filters_given(1), .prepare = refuse_to_leave};
    struct ran *ran = RUN(&how, CHILD, "shared", "500");
    (void)state;
    assert_true(exited(ran, 0));
    assert_true(the_file(ran)->header.pictures_taken > 0);
    ran_free(ran);
}

/* In the strict mode nothing but read, write, exit and sigreturn is left. */
static void test_strict_mode_stops_the_recording_before(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "strict");
    (void)state;
    works_in_silence(ran);
    assert_true(the_file(ran)->header.end_kind == MT_END_STOPPED);
    assert_true(number_of(the_file(ran), MT_EVENT_ALLOC) > 10000);
    ran_free(ran);
}

static void test_a_counter_that_may_not_be_read_stops_the_recording_before(void **state)
{
    const struct how how = {.depth = DEPTH_FULL};
    struct ran *ran = RUN(&how, CHILD, "counterless");
    (void)state;
    works_in_silence(ran);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_that_cannot_be_written_is_said_once),
        cmocka_unit_test(test_a_folder_that_may_not_be_written_is_said_once),
        cmocka_unit_test(test_the_limit_of_file_sizes_ends_the_recording_and_not_the_program),
        cmocka_unit_test(test_a_full_disk_ends_the_recording_and_not_the_program),
        cmocka_unit_test(test_a_file_of_the_program_in_place_of_stderr_is_left_alone),
        cmocka_unit_test(test_standard_error_that_takes_nothing_does_no_harm),
        cmocka_unit_test(test_a_program_out_of_descriptors_goes_on),
        cmocka_unit_test(test_other_threads_never_meet_a_descriptor),
        cmocka_unit_test(test_a_program_never_meets_another_thread),
        cmocka_unit_test(test_a_table_that_cannot_be_left_is_copied),
        cmocka_unit_test(test_a_folder_that_disappears_does_no_harm),
        cmocka_unit_test(test_recording_goes_on_under_another_root_and_user),
        cmocka_unit_test(test_a_user_who_may_have_no_more_threads_is_recorded),
        cmocka_unit_test(test_all_memory_can_be_locked_within_eight_mebibytes),
        cmocka_unit_test(test_a_filter_of_system_calls_is_not_met),
        cmocka_unit_test(test_a_program_that_is_started_under_a_filter_is_left_alone),
        cmocka_unit_test(test_filters_that_the_watching_process_has_too_are_no_reason),
        cmocka_unit_test(test_strict_mode_stops_the_recording_before),
        cmocka_unit_test(test_a_counter_that_may_not_be_read_stops_the_recording_before),
    };
    return RUN_TESTS(tests);
}
