/* SPDX-License-Identifier: MIT */
/* Names of control groups, and archives beside those of tar(1). */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container/archive.h"
#include "container/container.h"

#define ID    "4e1cb93097446fd42036c27f70ea3beab8f8ff833c0e6fc3cd140eb7f75ac47a"
#define OTHER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void check_group(const char *line, const char *wanted_id, const char *wanted_engine)
{
    char id[MT_CONTAINER_ID] = "";
    char engine[32] = "";
    int found = mt_container_of_group(line, strlen(line), id, engine);
    assert_int_equal(found, wanted_id != NULL);
    if (found) {
        assert_string_equal(id, wanted_id);
        assert_string_equal(engine, wanted_engine);
    }
}

/* As systemd, cgroupfs, Kubernetes and nesting name them. */
static void test_groups_name_their_containers(void **state)
{
    (void)state;
    check_group("0::/system.slice/docker-" ID ".scope\n", ID, "Docker");
    check_group("4:memory:/docker/" ID "\n", ID, "Docker");
    check_group("0::/libpod_parent/libpod-" ID "\n", ID, "Podman");
    check_group("0::/machine.slice/libpod-" ID ".scope/container\n", ID, "Podman");
    check_group("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope\n", ID,
                "containerd");
    check_group("0::/kubepods/burstable/pod1/" ID "\n", ID, "containerd");
    check_group("0::/kubepods.slice/crio-" ID ".scope\n", ID, "CRI-O");
    check_group("0::/docker/" OTHER "/libpod-" ID "\n", ID, "Podman");
}

static void test_other_groups_name_none(void **state)
{
    (void)state;
    check_group("0::/user.slice/user-1000.slice\n", NULL, NULL);
    check_group("0::/libpod_parent/libpod-conmon-" ID "x\n", NULL, NULL);
    check_group("0::/" ID "0\n", NULL, NULL);
    check_group("", NULL, NULL);
}

/* ---- archives ---- */

struct folder {
    char path[64];
};

static int setup(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    snprintf(folder->path, sizeof folder->path, "/tmp/memtally-test.XXXXXX");
    *state = folder;
    return mkdtemp(folder->path) ? 0 : -1;
}

static int sh(const struct folder *folder, const char *words)
{
    char command[512];
    snprintf(command, sizeof command, "cd %s && { %s; }", folder->path, words);
    return system(command);
}

static int teardown(void **state)
{
    struct folder *folder = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder->path);
    int status = system(command);
    free(folder);
    return status;
}

static void write_all(const struct folder *folder, const char *name, const struct mt_strbuf *bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, bytes->length, file), bytes->length);
    assert_int_equal(fclose(file), 0);
}

static void read_all(const struct folder *folder, const char *name, struct mt_strbuf *bytes)
{
    char path[128];
    char piece[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        mt_strbuf_append(bytes, piece, n);
    fclose(file);
}

static int extract(const struct folder *folder, const struct mt_strbuf *archive, size_t n,
                   const char *into, struct mt_error *error)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder->path, into);
    mkdir(path, 0777);
    return mt_archive_extract(archive->data, n, path, error);
}

static void test_tar_reads_what_goes_in(void **state)
{
    const struct folder *folder = *state;
    struct mt_strbuf archive = {0};
    char big[5000];
    memset(big, 'b', sizeof big);
    mt_archive_add_folder(&archive, "made", 0755);
    mt_archive_add(&archive, "made/empty", 0666, "", 0);
    mt_archive_add(&archive, "made/whole", 0755, big, 512);
    mt_archive_add(&archive, "made/big", 0640, big, sizeof big);
    mt_archive_end(&archive);
    write_all(folder, "a.tar", &archive);
    assert_int_equal(sh(folder, "tar -xpf a.tar --warning=all 2>said && [ ! -s said ]"), 0);
    assert_int_equal(sh(folder, "[ \"$(stat -c '%a %s' made/* | tr '\\n' ,)\" = "
                                "'640 5000,666 0,755 512,' ]"),
                     0);
    assert_int_equal(sh(folder, "[ \"$(stat -c %a made)\" = 755 ]"), 0);
    assert_int_equal(sh(folder, "[ \"$(tr -d b <made/big | wc -c)\" = 0 ]"), 0);
    mt_strbuf_finish(&archive);
}

static void test_only_files_of_the_one_folder_come_out(void **state)
{
    const struct folder *folder = *state;
    struct mt_strbuf archive = {0};
    struct mt_strbuf file = {0};
    assert_int_equal(sh(folder,
                        "mkdir -p recording/below && printf seven >recording/7-0.mtz && "
                        "ln -s /etc/passwd recording/link && printf x >recording/.hidden && "
                        "printf x >recording/below/deep && mkfifo recording/pipe && "
                        "tar -cf out.tar recording"),
                     0);
    read_all(folder, "out.tar", &archive);
    assert_int_equal(extract(folder, &archive, archive.length, "came", NULL), 0);
    assert_int_equal(sh(folder, "[ \"$(ls -A came)\" = 7-0.mtz ]"), 0);
    read_all(folder, "came/7-0.mtz", &file);
    assert_string_equal(mt_strbuf_text(&file), "seven");
    assert_int_equal(extract(folder, &archive, archive.length, "came", NULL), MT_EBUSY);
    mt_strbuf_finish(&archive);
    mt_strbuf_finish(&file);
}

static void test_names_that_lead_elsewhere_are_left(void **state)
{
    const struct folder *folder = *state;
    struct mt_strbuf archive = {0};
    mt_archive_add(&archive, "../out", 0644, "x", 1);
    mt_archive_add(&archive, "recording/../../out", 0644, "x", 1);
    mt_archive_add(&archive, "/out", 0644, "x", 1);
    mt_archive_add(&archive, "recording/..", 0644, "x", 1);
    mt_archive_end(&archive);
    assert_int_equal(extract(folder, &archive, archive.length, "came", NULL), 0);
    assert_int_equal(sh(folder, "[ -z \"$(find . -type f)\" ]"), 0);
    mt_strbuf_finish(&archive);
}

static void test_damaged_archives_are_refused(void **state)
{
    const struct folder *folder = *state;
    struct mt_strbuf archive = {0};
    char into[32];
    mt_archive_add(&archive, "recording/file", 0644, "x", 1);
    mt_archive_end(&archive);
    assert_int_equal(extract(folder, &archive, 512, "cut", NULL), MT_ETRUNCATED);
    for (size_t i = 0; i < 512; i += 7) {
        snprintf(into, sizeof into, "flip%zu", i);
        archive.data[i] ^= 1;
        assert_int_equal(extract(folder, &archive, archive.length, into, NULL), MT_EFORMAT);
        archive.data[i] ^= 1;
    }
    for (size_t n = 0; n < 512; n++)
        assert_int_equal(extract(folder, &archive, n, "short", NULL), 0);
    mt_strbuf_finish(&archive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_name_their_containers),
        cmocka_unit_test(test_other_groups_name_none),
        cmocka_unit_test_setup_teardown(test_tar_reads_what_goes_in, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_files_of_the_one_folder_come_out, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_names_that_lead_elsewhere_are_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_archives_are_refused, setup, teardown),
    };
    return RUN_TESTS(tests);
}
