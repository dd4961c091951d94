/* SPDX-License-Identifier: MIT */
#include "tests/support/emulated.h"
#include "tests/support/unit.h"

#include "budget/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB (1ull << 30)

/* Made processes 100 to 109: started at `start`, 0 where there is none. */
static uint64_t start[10];
static char state_of_made = 'S';
static const char *boot = "boot";
static int n_kills = 100; /* or as many as the program is told */
static char folder[] = "/tmp/memtally-budget-XXXXXX";
static char path[64];

static long made_read_file(void *context, const char *name, char *bytes, size_t capacity)
{
    int pid;
    (void)context;
    if (strcmp(name, "/proc/sys/kernel/random/boot_id") == 0)
        return snprintf(bytes, capacity, "%s", boot);
    if (sscanf(name, "/proc/%d/stat", &pid) != 1 || pid < 100 || pid > 109 || !start[pid - 100])
        return -ENOENT;
    return snprintf(bytes, capacity, "%d (a) %c 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %llu 0 0", pid,
                    pid == 100 ? state_of_made : 'S', (unsigned long long)start[pid - 100]);
}

static long made_read_link(void *context, const char *name, char *bytes, size_t capacity)
{
    (void)context;
    (void)name;
    return snprintf(bytes, capacity, "pid:[1]");
}

static struct mt_budget_os made(int pid)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    os.host.read_file = made_read_file;
    os.host.read_link = made_read_link;
    os.pid = pid;
    return os;
}

static int begin(void **state)
{
    (void)state;
    for (size_t i = 0; i < 10; i++)
        start[i] = 1000 + i;
    state_of_made = 'S';
    boot = "boot";
    unlink(path);
    return 0;
}

static uint64_t ask(int pid, uint64_t bytes)
{
    struct mt_budget_os os = made(pid);
    struct mt_budget_need need = {.place = "gpu0", .bytes = bytes};
    uint64_t id = 0;
    assert_int_equal(mt_budget_ask_in(&os, path, &need, 1, &id, NULL), 0);
    return id;
}

static int take(int pid, uint64_t id, uint64_t free_bytes, uint64_t min_free_bytes)
{
    struct mt_budget_os os = made(pid);
    struct mt_budget_place gpu = {"gpu0", 10 * GIB, free_bytes, min_free_bytes, 0};
    return mt_budget_take_in(&os, path, id, &gpu, 1, NULL);
}

static void release(int pid, uint64_t id)
{
    struct mt_budget_os os = made(pid);
    assert_int_equal(mt_budget_release_in(&os, path, id, NULL), 0);
}

static size_t count(size_t *n_damaged)
{
    struct mt_budget_os os = made(100);
    struct mt_budget_holder holders[MT_BUDGET_HOLDERS];
    size_t n = 0;
    assert_int_equal(mt_budget_list_in(&os, path, holders, &n, n_damaged, NULL), 0);
    return n;
}

static void test_a_promise_is_kept_from_others_until_it_is_released(void **state)
{
    (void)state;
    uint64_t first = ask(100, 6 * GIB);
    uint64_t second = ask(101, 6 * GIB);
    assert_int_equal(take(100, first, 10 * GIB, 0), 0);
    assert_int_equal(take(101, second, 10 * GIB, 0), MT_EBUSY);
    release(100, first);
    assert_int_equal(take(101, second, 10 * GIB, 0), 0);
    assert_int_equal(take(101, second, 0, 0), 0); /* holds it already */
}

static void test_what_others_took_and_what_stays_free_is_not_given(void **state)
{
    (void)state;
    uint64_t id = ask(100, 4 * GIB);
    assert_int_equal(take(100, id, 4 * GIB - 1, 0), MT_EBUSY);
    assert_int_equal(take(100, id, 5 * GIB, 2 * GIB), MT_EBUSY);
    assert_int_equal(take(100, id, 10 * GIB, 7 * GIB), MT_ELIMIT);
    assert_int_equal(take(100, id, 6 * GIB, 2 * GIB), 0);
}

static void test_what_a_holder_has_taken_is_not_counted_twice(void **state)
{
    (void)state;
    struct mt_budget_os os = made(100);
    uint64_t first = ask(100, 6 * GIB);
    uint64_t second = ask(101, 4 * GIB);
    assert_int_equal(take(100, first, 10 * GIB, 0), 0);
    assert_int_equal(take(101, second, 4 * GIB, 0), MT_EBUSY); /* free 4, still promised 6 */
    assert_int_equal(mt_budget_renew_in(&os, path, first, "gpu0", 6 * GIB, NULL), 0);
    assert_int_equal(take(101, second, 4 * GIB, 0), 0);
    assert_int_equal(mt_budget_renew_in(&os, path, second, "gpu0", 1, NULL), MT_ENOTFOUND);
}

static void test_a_holder_that_dies_frees_it_also_when_its_id_is_given_again(void **state)
{
    (void)state;
    assert_int_equal(take(100, ask(100, 6 * GIB), 10 * GIB, 0), 0);
    assert_int_equal(take(101, ask(101, 4 * GIB), 10 * GIB, 0), 0);
    assert_int_equal(count(NULL), 2);
    start[1] = 0;
    assert_int_equal(count(NULL), 1);
    start[0] = 5000;
    assert_int_equal(count(NULL), 0);
}

static void test_a_small_request_passes_a_large_one_only_so_often(void **state)
{
    (void)state;
    uint64_t holder = ask(100, 4 * GIB);
    assert_int_equal(take(100, holder, 10 * GIB, 0), 0);
    uint64_t large = ask(101, 8 * GIB);
    for (int i = 0; i < MT_BUDGET_PASSES; i++) {
        assert_int_equal(take(101, large, 10 * GIB, 0), MT_EBUSY);
        uint64_t small = ask(102, GIB);
        assert_int_equal(take(102, small, 10 * GIB, 0), 0);
        release(102, small);
    }
    uint64_t late = ask(102, GIB);
    assert_int_equal(take(102, late, 10 * GIB, 0), MT_EBUSY);
    release(100, holder);
    assert_int_equal(take(101, large, 10 * GIB, 0), 0);
    assert_int_equal(take(102, late, 10 * GIB, 0), 0);
}

static void test_who_came_first_and_fits_goes_first(void **state)
{
    (void)state;
    uint64_t first = ask(100, 6 * GIB);
    uint64_t second = ask(101, 6 * GIB);
    assert_int_equal(take(101, second, 10 * GIB, 0), MT_EBUSY);
    assert_int_equal(take(100, first, 10 * GIB, 0), 0);
}

/* Process 100 holds 8 of 10 GiB; another one may have 5 only once it counts as gone. */
static uint64_t hold_most(void)
{
    assert_int_equal(take(100, ask(100, 8 * GIB), 10 * GIB, 0), 0);
    uint64_t id = ask(101, 5 * GIB);
    assert_int_equal(take(101, id, 10 * GIB, 0), MT_EBUSY);
    return id;
}

static void test_a_zombie_holds_nothing(void **state)
{
    (void)state;
    uint64_t id = hold_most();
    state_of_made = 'Z';
    assert_int_equal(take(101, id, 10 * GIB, 0), 0);
}

static void test_what_was_held_before_the_boot_is_free(void **state)
{
    (void)state;
    hold_most();
    boot = "another boot";
    assert_int_equal(take(102, ask(102, 10 * GIB), 10 * GIB, 0), 0);
}

/* It may be given back and taken again: what is promised stays promised. */
static void test_what_a_holder_took_and_gave_back_is_still_its_own(void **state)
{
    (void)state;
    uint64_t id = ask(100, 8 * GIB);
    assert_int_equal(take(100, id, 10 * GIB, 0), 0);
    struct mt_budget_os os = made(100);
    assert_int_equal(mt_budget_renew_in(&os, path, id, "gpu0", 8 * GIB, NULL), 0);
    assert_int_equal(take(101, ask(101, 3 * GIB), 10 * GIB, 0), MT_EBUSY);
    assert_int_equal(take(102, ask(102, 2 * GIB), 10 * GIB, 0), 0);
}

static void test_a_damaged_head_is_told_and_no_number_is_given_twice(void **state)
{
    struct mt_budget_holder holders[MT_BUDGET_HOLDERS];
    struct mt_budget_os os = made(100);
    size_t n;
    size_t n_damaged;
    (void)state;
    uint64_t id = ask(100, GIB);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pwrite(fd, "\1", 1, 8) == 1); /* the next number, without its checksum */
    close(fd);
    assert_int_equal(mt_budget_list_in(&os, path, holders, &n, &n_damaged, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(n_damaged, 1);
    assert_true(ask(101, GIB) > id);
}

static void test_a_damaged_slot_is_given_up_and_the_others_stay(void **state)
{
    (void)state;
    size_t n_damaged;
    uint64_t first = ask(100, GIB);
    ask(101, GIB);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "damage", 6, 1024 + 100), 6);
    assert_int_equal(pwrite(fd, "damage", 6, 0), 6);
    assert_int_equal(count(&n_damaged), 1);
    assert_int_equal(n_damaged, 2);
    assert_int_equal(take(100, first, 10 * GIB, 0), MT_ENOTFOUND);
    assert_int_equal(ask(102, GIB), 3); /* ids go on after those that are left */
    assert_int_equal(count(&n_damaged), 2);
    assert_int_equal(n_damaged, 0);
    assert_int_equal(ftruncate(fd, 700), 0);
    close(fd);
    assert_int_equal(count(NULL), 0);
}

static void test_a_file_that_others_may_write_is_refused(void **state)
{
    (void)state;
    uint64_t id;
    struct mt_budget_need need = {.place = "host", .bytes = 1};
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    assert_int_equal(mt_budget_ask(path, &need, 1, &id, NULL), MT_EPERM);
}

/* ---- any device ---- */

static int take_any(int pid, uint64_t id, struct mt_error *error)
{
    struct mt_budget_os os = made(pid);
    struct mt_budget_place places[] = {{"host", 8 * GIB, 8 * GIB, 0, 0},
                                       {"gpu0", 4 * GIB, 4 * GIB, 0, GIB},
                                       {"gpu1", 6 * GIB, 6 * GIB, 0, GIB}};
    return mt_budget_take_in(&os, path, id, places, 3, error);
}

static uint64_t ask_any(int pid, const struct mt_budget_need *needs, size_t n)
{
    struct mt_budget_os os = made(pid);
    uint64_t id;
    assert_int_equal(mt_budget_ask_in(&os, path, needs, n, &id, NULL), 0);
    return id;
}

static const char *place_of(uint64_t id, size_t i)
{
    static struct mt_budget_holder holders[MT_BUDGET_HOLDERS];
    struct mt_budget_os os = made(100);
    size_t n;
    assert_int_equal(mt_budget_list_in(&os, path, holders, &n, NULL, NULL), 0);
    for (size_t k = 0; k < n; k++)
        if (holders[k].id == id)
            return holders[k].needs[i].place;
    return "";
}

/* Each holder takes 1 GiB beside: gpu0 has room for 3 GiB of needs, gpu1 for 5. */
static void test_any_device_is_the_first_with_room_and_overhead_counts(void **state)
{
    (void)state;
    const struct mt_budget_need need = {.place = "gpu*", .bytes = 3 * GIB};
    uint64_t id[3];
    for (int i = 0; i < 3; i++)
        id[i] = ask_any(100 + i, &need, 1);
    assert_int_equal(take_any(100, id[0], NULL), 0);
    assert_int_equal(take_any(101, id[1], NULL), 0);
    assert_int_equal(take_any(102, id[2], NULL), MT_EBUSY); /* gpu1: 6 - 3 - 1 is less than 3 + 1 */
    assert_string_equal(place_of(id[0], 0), "gpu0");
    assert_string_equal(place_of(id[1], 0), "gpu1");
    assert_string_equal(place_of(id[2], 0), "gpu*");
    release(100, id[0]);
    assert_int_equal(take_any(102, id[2], NULL), 0);
}

static void test_two_of_any_device_are_two_devices(void **state)
{
    (void)state;
    struct mt_error error;
    const struct mt_budget_need two[] = {{.place = "gpu*", .bytes = GIB},
                                         {.place = "gpu0", .bytes = GIB}};
    uint64_t id = ask_any(100, two, 2);
    assert_int_equal(take_any(100, id, NULL), 0);
    assert_string_equal(place_of(id, 0), "gpu1");
    release(100, id);
    const struct mt_budget_need three[] = {{.place = "gpu*", .bytes = GIB},
                                           {.place = "gpu*", .bytes = GIB},
                                           {.place = "gpu*", .bytes = GIB}};
    assert_int_equal(take_any(101, ask_any(101, three, 3), &error), MT_ELIMIT);
    const struct mt_budget_need large = {.place = "gpu*", .bytes = 5 * GIB + 1};
    assert_int_equal(take_any(102, ask_any(102, &large, 1), &error), MT_ELIMIT);
    const struct mt_budget_need other = {.place = "npu*", .bytes = 1};
    assert_int_equal(take_any(103, ask_any(103, &other, 1), &error), MT_EARG);
}

/* One that waits for any device and has been passed often is not passed by one for gpu1 alone. */
static void test_who_waits_for_any_device_does_not_starve(void **state)
{
    (void)state;
    const struct mt_budget_need all = {.place = "gpu1", .bytes = 4 * GIB};
    const struct mt_budget_need any = {.place = "gpu*", .bytes = 5 * GIB};
    const struct mt_budget_need small = {.place = "gpu1", .bytes = 0};
    uint64_t held = ask_any(100, &all, 1);
    assert_int_equal(take_any(100, held, NULL), 0);
    uint64_t waits = ask_any(101, &any, 1);
    for (int i = 0; i < MT_BUDGET_PASSES; i++) {
        uint64_t id = ask_any(102, &small, 1);
        assert_int_equal(take_any(102, id, NULL), 0);
        release(102, id);
    }
    assert_int_equal(take_any(102, ask_any(102, &small, 1), NULL), MT_EBUSY);
    release(100, held);
    assert_int_equal(take_any(101, waits, NULL), 0);
}

/* A process of another pid namespace cannot be looked at; its lock can. */
static void test_a_guarded_holder_is_known_by_its_lock_wherever_it_is(void **state)
{
    (void)state;
    int fd = -1;
    struct mt_budget_os os = made(100);
    uint64_t id = ask(100, 8 * GIB);
    assert_int_equal(mt_budget_guard_in(&os, path, id, &fd, NULL), 0);
    assert_int_equal(take(100, id, 10 * GIB, 0), 0);
    start[0] = 0;                    /* its number means nothing here */
    boot = "that of another kernel"; /* of a machine that shares the file */
    uint64_t second = ask(101, 8 * GIB);
    assert_int_equal(take(101, second, 10 * GIB, 0), MT_EBUSY);
    close(fd);
    assert_int_equal(take(101, second, 10 * GIB, 0), 0);
}

/* ---- each call fails once ---- */

static int calls_left;
static struct mt_budget_os whole;

static int fails(void)
{
    return calls_left-- == 0;
}

static int failing_open(void *context, const char *name)
{
    return fails() ? -EMFILE : whole.open(context, name);
}

static int failing_lock(void *context, int fd)
{
    return fails() ? -ENOLCK : whole.lock(context, fd);
}

static long failing_read(void *context, int fd, void *bytes, size_t n, uint64_t offset)
{
    return fails() ? -EIO : whole.read(context, fd, bytes, n, offset);
}

static long failing_write(void *context, int fd, const void *bytes, size_t n, uint64_t offset)
{
    return fails() ? -ENOSPC : whole.write(context, fd, bytes, n, offset);
}

static void test_any_call_may_fail_and_nothing_is_promised_twice(void **state)
{
    (void)state;
    struct mt_budget_place gpu = {"gpu0", 10 * GIB, 10 * GIB, 0, 0};
    struct mt_budget_need need = {.place = "gpu0", .bytes = 6 * GIB};
    int n = 0;
    for (int done = 0; !done; n++) {
        uint64_t id;
        begin(NULL);
        whole = made(101);
        struct mt_budget_os os = whole;
        os.open = failing_open;
        os.lock = failing_lock;
        os.read = failing_read;
        os.write = failing_write;
        calls_left = n;
        done = mt_budget_ask_in(&os, path, &need, 1, &id, NULL) == 0 &&
               mt_budget_take_in(&os, path, id, &gpu, 1, NULL) == 0;
        size_t n_damaged;
        assert_true(count(&n_damaged) <= 1);
        if (!done)
            start[1] = 0; /* else its request waits, and goes first */
        assert_int_equal(n_damaged, 0);
        assert_int_equal(take(100, ask(100, 6 * GIB), 10 * GIB, 0), done ? MT_EBUSY : 0);
    }
    assert_true(n > 8); /* open, lock, read, write the head and the slot; open, lock, read, write */
}

/* ---- killed ---- */

static void reserve_forever(int to)
{
    struct mt_budget_place host = {"host", 10 * GIB, 10 * GIB, 0, 0};
    struct mt_budget_need need = {.place = "host", .bytes = GIB};
    for (;;) {
        uint64_t id;
        if (mt_budget_ask(path, &need, 1, &id, NULL) < 0 ||
            mt_budget_take(path, id, &host, 1, NULL) < 0 || write(to, "a", 1) != 1 ||
            mt_budget_release(path, id, NULL) < 0)
            _exit(1);
    }
}

static void test_holders_killed_at_random_moments_leave_nothing_behind(void **state)
{
    (void)state;
    srand(18);
    for (int i = 0; i < n_kills; i++) {
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            reserve_forever(ends[1]);
        close(ends[1]);
        for (int k = rand() % 8; k >= 0; k--)
            assert_int_equal(read(ends[0], &byte, 1), 1);
        for (volatile int spin = rand() % 200000; spin > 0; spin--)
            ;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(ends[0]);

        struct mt_budget_holder holders[MT_BUDGET_HOLDERS];
        size_t n, n_damaged;
        assert_int_equal(mt_budget_list(path, holders, &n, &n_damaged, NULL), 0);
        assert_int_equal(n, 0);
        assert_int_equal(n_damaged, 0);
    }
}

/* Each takes more than half, so that whoever holds it must be alone. */
static void hold_alone_often(const char *mark)
{
    struct mt_budget_place host = {"host", 10 * GIB, 10 * GIB, 0, 0};
    struct mt_budget_need need = {.place = "host", .bytes = 6 * GIB};
    for (int i = 0; i < 50; i++) {
        uint64_t id;
        int status = mt_budget_ask(path, &need, 1, &id, NULL);
        while (status == 0 && (status = mt_budget_take(path, id, &host, 1, NULL)) == MT_EBUSY)
            status = 0;
        if (status < 0)
            _exit(1);
        int fd = open(mark, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0 || close(fd) < 0 || unlink(mark) < 0 || mt_budget_release(path, id, NULL) < 0)
            _exit(2);
    }
    _exit(0);
}

static void test_processes_that_ask_at_once_never_hold_more_than_there_is(void **state)
{
    (void)state;
    char mark[80];
    NOT_EMULATED(); /* a holder says another start of its own than others read */
    snprintf(mark, sizeof mark, "%s.held", path);
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            hold_alone_often(mark);
    int failed = 0;
    for (int i = 0; i < 4; i++) {
        int how;
        assert_true(wait(&how) > 0);
        failed += how != 0;
    }
    unlink(mark);
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_promise_is_kept_from_others_until_it_is_released, begin),
        cmocka_unit_test_setup(test_what_others_took_and_what_stays_free_is_not_given, begin),
        cmocka_unit_test_setup(test_what_a_holder_has_taken_is_not_counted_twice, begin),
        cmocka_unit_test_setup(test_a_holder_that_dies_frees_it_also_when_its_id_is_given_again,
                               begin),
        cmocka_unit_test_setup(test_a_small_request_passes_a_large_one_only_so_often, begin),
        cmocka_unit_test_setup(test_who_came_first_and_fits_goes_first, begin),
        cmocka_unit_test_setup(test_a_damaged_slot_is_given_up_and_the_others_stay, begin),
        cmocka_unit_test_setup(test_a_damaged_head_is_told_and_no_number_is_given_twice, begin),
        cmocka_unit_test_setup(test_what_a_holder_took_and_gave_back_is_still_its_own, begin),
        cmocka_unit_test_setup(test_what_was_held_before_the_boot_is_free, begin),
        cmocka_unit_test_setup(test_a_zombie_holds_nothing, begin),
        cmocka_unit_test_setup(test_any_device_is_the_first_with_room_and_overhead_counts, begin),
        cmocka_unit_test_setup(test_two_of_any_device_are_two_devices, begin),
        cmocka_unit_test_setup(test_who_waits_for_any_device_does_not_starve, begin),
        cmocka_unit_test_setup(test_a_guarded_holder_is_known_by_its_lock_wherever_it_is, begin),
        cmocka_unit_test_setup(test_a_file_that_others_may_write_is_refused, begin),
        cmocka_unit_test_setup(test_any_call_may_fail_and_nothing_is_promised_twice, begin),
        cmocka_unit_test_setup(test_holders_killed_at_random_moments_leave_nothing_behind, begin),
        cmocka_unit_test_setup(test_processes_that_ask_at_once_never_hold_more_than_there_is,
                               begin),
    };
    if (argc > 1)
        n_kills = atoi(argv[1]);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/budget", folder);
    int failed = RUN_TESTS(tests);
    unlink(path);
    rmdir(folder);
    return failed;
}
