/* SPDX-License-Identifier: MIT */
/* Control groups on made file systems of both versions, and on this machine where it may. */
#include <memtally/units.h>

#include "tests/support/group_join.h"
#include "tests/support/unit.h"

#include "device/group.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* A made machine: files of text and groups, by path. */
struct file {
    char path[160];
    char text[160];
};

static struct file made_files[96];
static size_t n_files;
static int is_forbidden; /* folders cannot be made in /cg/user */
static int last_signal;

static struct file *find(const char *path)
{
    for (size_t i = 0; i < n_files; i++)
        if (strcmp(made_files[i].path, path) == 0)
            return &made_files[i];
    return NULL;
}

static void put(const char *path, const char *text)
{
    struct file *file = find(path);
    if (!file)
        file = &made_files[n_files++];
    assert_true(n_files <= 96);
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->text, sizeof file->text, "%s", text);
}

static void put_in(const char *directory, const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    put(path, text);
}

static const char *text_of(const char *path)
{
    const struct file *file = find(path);
    return file ? file->text : "(none)";
}

static long made_read_file(void *context, const char *path, char *bytes, size_t capacity)
{
    (void)context;
    const struct file *file = find(path);
    return file ? snprintf(bytes, capacity, "%s", file->text) : -ENOENT;
}

static int made_list(void *context, const char *path, int (*each)(void *, const char *),
                     void *each_context)
{
    (void)context;
    size_t length = strlen(path);
    for (size_t i = n_files; i > 0; i--) {
        const char *name = made_files[i - 1].path;
        if (strncmp(name, path, length) == 0 && name[length] == '/' &&
            strcmp(made_files[i - 1].text, "(folder)") == 0 &&
            each(each_context, name + length + 1))
            break;
    }
    return 0;
}

/* As the kernel does, a new group has its files; of version 2 its controllers are those that the
 * one above hands down. */
static int made_make_folder(void *context, const char *path)
{
    char above[160];
    (void)context;
    if (is_forbidden && strncmp(path, "/cg/user/", 9) == 0)
        return -EACCES;
    if (find(path))
        return -EEXIST;
    put(path, "(folder)");
    put_in(path, "cgroup.procs", "");
    snprintf(above, sizeof above, "%s", path);
    *strrchr(above, '/') = '\0';
    strcat(above, "/cgroup.subtree_control");
    const struct file *handed = find(above);
    if (handed) {
        put_in(path, "cgroup.controllers", handed->text);
        put_in(path, "cgroup.subtree_control", "");
        put_in(path, "cgroup.freeze", "0");
    }
    if (!handed)
        put_in(path, "memory.limit_in_bytes", "9223372036854771712\n");
    else if (strstr(handed->text, "memory"))
        put_in(path, "memory.max", "max\n");
    return 0;
}

static int made_remove_folder(void *context, const char *path)
{
    (void)context;
    struct file *file = find(path);
    if (!file)
        return -ENOENT;
    snprintf(file->path, sizeof file->path, "removed %s", path);
    return 0;
}

/* A group that has processes hands nothing down, but for the root. */
static int made_write_file(void *context, const char *path, const char *text)
{
    char procs[160];
    (void)context;
    struct file *file = find(path);
    if (!file)
        return -ENOENT;
    const char *name = strrchr(path, '/');
    snprintf(procs, sizeof procs, "%.*s/cgroup.procs", (int)(name - path), path);
    if (strcmp(name, "/cgroup.subtree_control") == 0) {
        if (strcmp(procs, "/cg/cgroup.procs") != 0 && *text_of(procs))
            return -EBUSY;
        text += 1;
    }
    if (strcmp(name, "/cgroup.procs") == 0 && strcmp(text, "0") == 0) {
        put("/cg/user/cgroup.procs", ""); /* where the caller was */
        text = "77\n";
    }
    snprintf(file->text, sizeof file->text, "%s", text);
    return 0;
}

static int made_signal(void *context, int pid, int number)
{
    (void)context;
    last_signal = pid * 100 + number;
    put("/cg/user/memtally-77-0/cgroup.procs", "");
    return 0;
}

static struct mt_group_os made(void)
{
    struct mt_group_os os;
    mt_group_os_init(&os);
    os.pid = 77;
    os.host.read_file = made_read_file;
    os.host.list = made_list;
    os.make_folder = made_make_folder;
    os.remove_folder = made_remove_folder;
    os.write_file = made_write_file;
    os.signal = made_signal;
    return os;
}

/* The caller is in /user of the hierarchy at /cg, with a shell where `procs` says so. */
static struct mt_group_os begin(int version, const char *procs)
{
    n_files = 0;
    is_forbidden = 0;
    last_signal = 0;
    put("/proc/self/cgroup", version == 1 ? "4:memory:/user\n" : "0::/user\n");
    put("/proc/self/mountinfo", version == 1 ? "36 25 0:32 / /cg rw - cgroup cgroup rw,memory\n"
                                             : "36 25 0:32 / /cg rw - cgroup2 cgroup2 rw\n");
    put("/cg/cgroup.procs", "1\n");
    put("/cg/user/cgroup.procs", procs);
    if (version == 1) {
        put("/cg/user/memory.usage_in_bytes", "4096\n");
    } else {
        put("/cg/cgroup.controllers", "cpu memory\n");
        put("/cg/cgroup.subtree_control", "memory");
        put("/cg/user/cgroup.controllers", "memory\n");
        put("/cg/user/cgroup.subtree_control", "");
        put("/cg/user/memory.current", "4096\n");
    }
    return made();
}

static void test_a_group_of_version_1_is_made_below_the_callers_and_limited(void **state)
{
    (void)state;
    struct mt_group_os os = begin(1, "77\n");
    struct mt_group group;
    assert_int_equal(mt_group_make(&os, 0, &group, NULL), 0);
    assert_string_equal(group.directory, "/cg/user/memtally-77-0");
    put("/cg/user/memtally-77-0/memory.memsw.limit_in_bytes", "");
    assert_int_equal(mt_group_limit(&os, &group, 64 * MIB, NULL), 0);
    assert_string_equal(text_of("/cg/user/memtally-77-0/memory.limit_in_bytes"), "67108864");
    assert_string_equal(text_of("/cg/user/memtally-77-0/memory.memsw.limit_in_bytes"), "67108864");
    char procs[PATH_MAX];
    assert_int_equal(mt_group_procs_path(&group, procs), 0);
    assert_string_equal(procs, "/cg/user/memtally-77-0/cgroup.procs");
    put(procs, "123\n");
    mt_group_kill(&os, &group);
    assert_int_equal(last_signal, 12309);
    assert_int_equal(mt_group_freeze(&os, &group, 1, NULL), MT_EUNSUPPORTED);
    assert_int_equal(mt_group_remove(&os, &group), 0);
    assert_null(find("/cg/user/memtally-77-0"));
}

static void test_who_is_alone_in_a_group_of_version_2_makes_room(void **state)
{
    (void)state;
    struct mt_group_os os = begin(2, "77\n");
    struct mt_group group;
    assert_int_equal(mt_group_make(&os, 3, &group, NULL), 0);
    assert_string_equal(group.directory, "/cg/user/memtally-77-3");
    assert_string_equal(text_of("/cg/user/memtally-itself/cgroup.procs"), "77\n");
    assert_string_equal(text_of("/cg/user/cgroup.subtree_control"), "memory");
    assert_int_equal(mt_group_limit(&os, &group, 64 * MIB, NULL), 0);
    assert_string_equal(text_of("/cg/user/memtally-77-3/memory.max"), "67108864");
    assert_int_equal(mt_group_freeze(&os, &group, 1, NULL), 0);
    assert_string_equal(text_of("/cg/user/memtally-77-3/cgroup.freeze"), "1");
}

static void test_beside_others_a_group_of_version_2_is_made_above(void **state)
{
    (void)state;
    struct mt_group_os os = begin(2, "77\n78\n");
    struct mt_group group;
    assert_int_equal(mt_group_make(&os, 0, &group, NULL), 0);
    assert_string_equal(group.directory, "/cg/memtally-77-0");
    assert_null(find("/cg/user/memtally-itself"));
}

static void test_where_no_group_can_be_made_the_error_says_what_would_help(void **state)
{
    (void)state;
    struct mt_error error = {0};
    struct mt_group group = {.version = 9};
    struct mt_group_os os = begin(1, "77\n");
    is_forbidden = 1;
    assert_int_equal(mt_group_make(&os, 0, &group, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "run as root"));
    assert_int_equal(group.version, 9);
    os = begin(2, "77\n78\n");
    put("/cg/cgroup.subtree_control", "cpu");
    put("/cg/cgroup.controllers", "cpu\n");
    assert_int_equal(mt_group_make(&os, 0, &group, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "Delegate=yes"));
}

static void test_groups_of_callers_that_are_gone_are_removed(void **state)
{
    (void)state;
    struct mt_group_os os = begin(1, "77\n");
    struct mt_group group;
    put("/cg/user/memtally-55-0", "(folder)");
    put("/cg/user/memtally-66-0", "(folder)");
    put("/proc/66/stat", "66 (a) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0 0");
    assert_int_equal(mt_group_make(&os, 0, &group, NULL), 0);
    assert_null(find("/cg/user/memtally-55-0"));
    assert_non_null(find("/cg/user/memtally-66-0"));
}

static void test_a_group_says_what_it_holds_and_what_is_not_said_is_unknown(void **state)
{
    (void)state;
    struct mt_group_figures figures;
    struct mt_group_os os = begin(2, "77\n");
    struct mt_group group = {2, "/cg/g"};
    put("/cg/g/memory.current", "5000\n");
    put("/cg/g/memory.stat", "anon 1\nshmem 4096\n");
    put("/cg/g/memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n");
    mt_group_read(&os, &group, &figures);
    assert_int_equal(figures.usage_bytes, 5000);
    assert_int_equal(figures.shared_bytes, 4096);
    assert_int_equal(figures.refusals, 7);
    assert_int_equal(figures.oom_kills, 2);
    assert_true(figures.peak_bytes == MT_UNKNOWN);
}

/* A child that takes 64 MiB of 16. */
static void test_the_kernel_ends_who_goes_past_the_limit(void **state)
{
    struct mt_group_os os;
    struct mt_group group;
    struct mt_group_figures figures;
    int how;
    (void)state;
    mt_group_os_init(&os);
    if (mt_group_make(&os, 0, &group, NULL) < 0) {
        print_message("# no group may be made here: its limit was not tried\n");
        return;
    }
    assert_int_equal(mt_group_limit(&os, &group, 16 * MIB, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        if (group_join(&group, 0) < 0)
            _exit(1);
        char *bytes = malloc(64 * MIB);
        for (size_t i = 0; bytes && i < 64 * MIB; i += 4096)
            ((volatile char *)bytes)[i] = 1;
        _exit(2);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    mt_group_read(&os, &group, &figures);
    assert_true(figures.oom_kills == 1 || figures.oom_kills == MT_UNKNOWN);
    assert_true(figures.peak_bytes == MT_UNKNOWN || figures.peak_bytes <= 16 * MIB);
    assert_int_equal(mt_group_remove(&os, &group), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_group_of_version_1_is_made_below_the_callers_and_limited),
        cmocka_unit_test(test_who_is_alone_in_a_group_of_version_2_makes_room),
        cmocka_unit_test(test_beside_others_a_group_of_version_2_is_made_above),
        cmocka_unit_test(test_where_no_group_can_be_made_the_error_says_what_would_help),
        cmocka_unit_test(test_groups_of_callers_that_are_gone_are_removed),
        cmocka_unit_test(test_a_group_says_what_it_holds_and_what_is_not_said_is_unknown),
        cmocka_unit_test(test_the_kernel_ends_who_goes_past_the_limit),
    };
    return RUN_TESTS(tests);
}
