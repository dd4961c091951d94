/* SPDX-License-Identifier: MIT */
/* NCCL as programs see it: counts, ranks, splits over processes, and what a communicator takes of a
 * device. Error codes are those of NCCL's documentation. */
#include "look_alike.h"

#include <sys/wait.h>

enum { SUCCESS, CUDA_FAILED, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE };
enum { FLOAT = 7, SUM = 0 };

struct id {
    char bytes[128];
};
struct comm;
struct config {
    size_t size;
    unsigned magic, version;
    int fields[16];
};

static void *nccl;
static int (*get_id)(struct id *);
static int (*init_rank)(struct comm **, int, struct id, int);
static int (*init_all)(struct comm **, int, const int *);
static int (*split)(struct comm *, int, int, struct comm **, struct config *);
static int (*destroy)(struct comm *);
static int (*count)(const struct comm *, int *), (*user_rank)(const struct comm *, int *);
static int (*all_reduce)(const void *, void *, size_t, int, int, struct comm *, void *);
static int (*group_start)(void), (*group_end)(void);

static void find_all(void)
{
    start_driver();
    nccl = load(NCCL_PATH);
    *(void **)&get_id = find(nccl, "ncclGetUniqueId");
    *(void **)&init_rank = find(nccl, "ncclCommInitRank");
    *(void **)&init_all = find(nccl, "ncclCommInitAll");
    *(void **)&split = find(nccl, "ncclCommSplit");
    *(void **)&destroy = find(nccl, "ncclCommDestroy");
    *(void **)&count = find(nccl, "ncclCommCount");
    *(void **)&user_rank = find(nccl, "ncclCommUserRank");
    *(void **)&all_reduce = find(nccl, "ncclAllReduce");
    *(void **)&group_start = find(nccl, "ncclGroupStart");
    *(void **)&group_end = find(nccl, "ncclGroupEnd");
}

static int set_up(void **state)
{
    (void)state;
    make_account();
    find_all();
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -f %s*", account_path);
    return system(command);
}

static void test_ids_differ(void **state)
{
    struct id a, b;
    (void)state;
    assert_int_equal(get_id(&a), SUCCESS);
    assert_int_equal(get_id(&b), SUCCESS);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_int_equal(get_id(NULL), INVALID_ARGUMENT);
}

static void test_communicator_knows_its_rank_and_takes_memory_until_destroyed(void **state)
{
    struct comm *comm;
    struct id id;
    int n = 0, rank = 0;
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 8, id, 3), SUCCESS);
    assert_int_equal(count(comm, &n), SUCCESS);
    assert_int_equal(user_rank(comm, &rank), SUCCESS);
    assert_int_equal(n, 8);
    assert_int_equal(rank, 3);
    assert_int_equal(account->device[0].used_bytes - before, 700 * MIB);
    assert_int_equal(held_as(0, MT_CATEGORY_COMMUNICATION), 700 * MIB);
    assert_int_equal(destroy(comm), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
    assert_int_equal(init_rank(&comm, 2, id, 1), SUCCESS);
    assert_int_equal(account->device[0].used_bytes - before, 300 * MIB);
    assert_int_equal(destroy(comm), SUCCESS);
}

static void test_communicator_of_one_takes_nothing(void **state)
{
    struct comm *comm;
    struct id id;
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 1, id, 0), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
    assert_int_equal(destroy(comm), SUCCESS);
}

static void test_wrong_ranks_and_handles_are_refused(void **state)
{
    struct comm *comm = NULL;
    struct id id;
    int n;
    (void)state;
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 0, id, 0), INVALID_ARGUMENT);
    assert_int_equal(init_rank(&comm, 2, id, 2), INVALID_ARGUMENT);
    assert_int_equal(init_rank(&comm, 2, id, -1), INVALID_ARGUMENT);
    assert_int_equal(init_rank(NULL, 2, id, 0), INVALID_ARGUMENT);
    assert_int_equal(count(NULL, &n), INVALID_ARGUMENT);
    assert_int_equal(destroy(NULL), SUCCESS); /* as the real one has it */
    assert_int_equal(group_end(), INVALID_USAGE);
}

static void test_memory_that_is_not_there_fails_the_communicator(void **state)
{
    struct comm *comm = NULL;
    struct id id;
    uint64_t room = account->device[0].free_bytes;
    (void)state;
    assert_int_equal(get_id(&id), SUCCESS);
    account->device[0].free_bytes = account->device[0].used_bytes + 299 * MIB;
    assert_int_equal(init_rank(&comm, 2, id, 0), CUDA_FAILED);
    account->device[0].free_bytes = room;
    assert_null(comm);
}

static void test_communicators_are_made_for_all_devices_or_for_none(void **state)
{
    const int devices[] = {1, 0, 9};
    struct comm *comm[3];
    uint64_t before[] = {account->device[0].used_bytes, account->device[1].used_bytes};
    int rank = -1;
    (void)state;
    assert_int_equal(init_all(comm, 3, devices), INVALID_USAGE); /* there is no tenth device */
    assert_int_equal(account->device[0].used_bytes, before[0]);
    assert_int_equal(account->device[1].used_bytes, before[1]);
    assert_int_equal(init_all(comm, 2, devices), SUCCESS);
    assert_int_equal(account->device[0].used_bytes - before[0], 300 * MIB);
    assert_int_equal(account->device[1].used_bytes - before[1], 300 * MIB);
    assert_int_equal(user_rank(comm[1], &rank), SUCCESS);
    assert_int_equal(rank, 1);
    assert_int_equal(destroy(comm[0]), SUCCESS);
    assert_int_equal(destroy(comm[1]), SUCCESS);
}

static void test_collectives_check_their_arguments(void **state)
{
    int (*broadcast)(const void *, void *, size_t, int, int, struct comm *, void *);
    int (*profiled)(const void *, void *, size_t, int, int, struct comm *, void *);
    struct comm *comm;
    struct id id;
    (void)state;
    *(void **)&broadcast = find(nccl, "ncclBroadcast");
    *(void **)&profiled = find(nccl, "pncclAllReduce");
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 2, id, 0), SUCCESS);
    assert_int_equal(all_reduce(NULL, NULL, 4, FLOAT, SUM, comm, NULL), SUCCESS);
    assert_int_equal(profiled(NULL, NULL, 4, FLOAT, SUM, comm, NULL), SUCCESS);
    assert_int_equal(all_reduce(NULL, NULL, 4, 12, SUM, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(all_reduce(NULL, NULL, 4, FLOAT, 5, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(all_reduce(NULL, NULL, 4, FLOAT, SUM, NULL, NULL), INVALID_ARGUMENT);
    assert_int_equal(broadcast(NULL, NULL, 4, FLOAT, 1, comm, NULL), SUCCESS);
    assert_int_equal(broadcast(NULL, NULL, 4, FLOAT, 2, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(broadcast(NULL, NULL, 4, FLOAT, -1, comm, NULL), INVALID_ARGUMENT);
    assert_int_equal(destroy(comm), SUCCESS);
}

static void test_own_operation_is_good_until_none_was_made(void **state)
{
    int (*make)(int *, void *, int, int, struct comm *), (*drop)(int, struct comm *);
    struct comm *comm;
    struct id id;
    int operation = -1;
    float scale = 0.5f;
    (void)state;
    *(void **)&make = find(nccl, "ncclRedOpCreatePreMulSum");
    *(void **)&drop = find(nccl, "ncclRedOpDestroy");
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 2, id, 0), SUCCESS);
    assert_int_equal(drop(SUM, comm), INVALID_ARGUMENT); /* none of the program's */
    assert_int_equal(make(&operation, &scale, FLOAT, 1, comm), SUCCESS);
    assert_int_equal(all_reduce(NULL, NULL, 4, FLOAT, operation, comm, NULL), SUCCESS);
    assert_int_equal(drop(operation, comm), SUCCESS);
    assert_int_equal(destroy(comm), SUCCESS);
}

/* One thread has all devices; the parts of a split come together at the end of the group. */
static void test_split_in_one_process_waits_for_the_groups_end(void **state)
{
    struct comm *comms[2], *parts[2];
    int n = 0, rank = -1;
    uint64_t before = account->device[1].used_bytes;
    (void)state;
    assert_int_equal(init_all(comms, 2, NULL), SUCCESS);
    assert_int_equal(account->device[1].used_bytes - before, 300 * MIB);
    assert_int_equal(group_start(), SUCCESS);
    assert_int_equal(split(comms[0], 0, 9, &parts[0], NULL), SUCCESS);
    assert_int_equal(split(comms[1], 0, 5, &parts[1], NULL), SUCCESS);
    assert_int_equal(group_end(), SUCCESS);
    assert_int_equal(account->device[1].used_bytes - before, 600 * MIB);
    assert_int_equal(count(parts[0], &n), SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(user_rank(parts[0], &rank), SUCCESS);
    assert_int_equal(rank, 1); /* ordered by key: 5 before 9 */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(destroy(parts[i]), SUCCESS);
        assert_int_equal(destroy(comms[i]), SUCCESS);
    }
    assert_int_equal(account->device[1].used_bytes, before);
}

static void test_shared_split_takes_no_memory_of_its_own(void **state)
{
    struct comm *comms[2], *parts[2];
    struct config config = {.size = sizeof(struct config)};
    uint64_t before;
    (void)state;
    for (int i = 0; i < 16; i++)
        config.fields[i] = INT32_MIN;
    config.fields[6] = 1; /* splitShare: after four numbers and a pointer */
    assert_int_equal(init_all(comms, 2, NULL), SUCCESS);
    before = account->device[0].used_bytes;
    assert_int_equal(group_start(), SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(split(comms[i], 0, 0, &parts[i], &config), SUCCESS);
    assert_int_equal(group_end(), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(destroy(parts[i]), SUCCESS);
        assert_int_equal(destroy(comms[i]), SUCCESS);
    }
}

static void test_rank_of_no_color_has_no_part(void **state)
{
    struct comm *comm, *part = (struct comm *)&comm;
    struct id id;
    (void)state;
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 1, id, 0), SUCCESS);
    assert_int_equal(split(comm, -1, 0, &part, NULL), SUCCESS); /* NCCL_SPLIT_NOCOLOR */
    assert_null(part);
    assert_int_equal(split(comm, -2, 0, &part, NULL), INVALID_ARGUMENT);
    assert_int_equal(destroy(comm), SUCCESS);
}

static void test_shrunk_communicator_leaves_ranks_out(void **state)
{
    int (*shrink)(struct comm *, const int *, int, struct comm **, struct config *, int);
    const int left_out[] = {0, 2}, itself[] = {3};
    struct comm *comm, *rest;
    struct id id;
    int n = 0, rank = -1;
    (void)state;
    *(void **)&shrink = find(nccl, "ncclCommShrink");
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 4, id, 3), SUCCESS);
    assert_int_equal(shrink(comm, left_out, 2, &rest, NULL, 0), SUCCESS);
    assert_int_equal(count(rest, &n), SUCCESS);
    assert_int_equal(user_rank(rest, &rank), SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(rank, 1); /* ranks 1 and 3 stay */
    assert_int_equal(shrink(comm, itself, 1, &rest, NULL, 0), INVALID_ARGUMENT);
    assert_int_equal(destroy(rest), SUCCESS);
    assert_int_equal(destroy(comm), SUCCESS);
}

/* Rank `rank` of four: even ones and odd ones part, the higher first. */
static int part_in_a_process(struct id id, int rank)
{
    struct comm *comm, *part;
    int n, own;
    find_all();
    if (init_rank(&comm, 4, id, rank) || split(comm, rank % 2, -rank, &part, NULL) ||
        count(part, &n) || user_rank(part, &own))
        return 100;
    return n * 10 + own;
}

static void run_ranks(const char *what, const int expected[4])
{
    struct id id;
    pid_t child[4];
    assert_int_equal(get_id(&id), SUCCESS);
    for (int i = 0; i < 4; i++) {
        char rank[8], hex[257];
        for (int j = 0; j < 128; j++)
            snprintf(hex + 2 * j, 3, "%02x", (unsigned char)id.bytes[j]);
        snprintf(rank, sizeof rank, "%d", i);
        child[i] = fork();
        if (child[i] == 0) {
            execl("/proc/self/exe", "test_nccl", what, rank, hex, (char *)NULL);
            _exit(103);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), expected[i]);
    }
}

static void test_processes_meet_to_split(void **state)
{
    static const int expected[] = {21, 21, 20, 20}; /* two in each, ranks 0 and 1 come last */
    (void)state;
    run_ranks("--split", expected);
}

static void test_small_integers_go_from_process_to_process(void **state)
{
    static const int expected[] = {46, 46, 46, 46}; /* 10 + 11 + 12 + 13 */
    (void)state;
    run_ranks("--gather", expected);
}

static void test_integers_change_places_and_are_reduced_in_parts(void **state)
{
    static const int expected[] = {0, 0, 0, 0};
    (void)state;
    run_ranks("--swap", expected);
}

/* What a rank has of a device: 64 integers, at an address that both sides of a copy take. */
struct device {
    uint64_t memory;
    int (*there)(uint64_t, const void *, size_t);
    int (*back)(void *, uint64_t, size_t);
};

static int take_device(struct device *device)
{
    int (*retain)(void **, int), (*use)(void *), (*take)(uint64_t *, size_t);
    void *context;
    *(void **)&retain = find(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
    *(void **)&use = find(RTLD_DEFAULT, "cuCtxSetCurrent");
    *(void **)&take = find(RTLD_DEFAULT, "cuMemAlloc_v2");
    *(void **)&device->there = find(RTLD_DEFAULT, "cuMemcpyHtoD_v2");
    *(void **)&device->back = find(RTLD_DEFAULT, "cuMemcpyDtoH_v2");
    return retain(&context, 0) || use(context) || take(&device->memory, 256);
}

/* Rank `rank` of four brings 10 and its rank, and says the sum of all. */
static int gather_in_a_process(struct id id, int rank)
{
    int (*gather)(const void *, void *, size_t, int, struct comm *, void *);
    int32_t own = 10 + rank, sum = 0, all[4] = {0};
    struct device device;
    struct comm *comm;
    find_all();
    *(void **)&gather = find(nccl, "ncclAllGather");
    if (take_device(&device) || device.there(device.memory, &own, 4) ||
        init_rank(&comm, 4, id, rank))
        return 100;
    char *at = (char *)(uintptr_t)device.memory;
    if (gather(at, at + 16, 1, 2, comm, NULL) || all_reduce(at, at + 4, 1, 2, SUM, comm, NULL) ||
        device.back(&sum, device.memory + 4, 4) || device.back(all, device.memory + 16, 16))
        return 101;
    for (int i = 0; i < 4; i++)
        if (all[i] != 10 + i)
            return 102;
    return sum;
}

/* Rank r of four brings the byte 60 r + 10 i for rank i. */
static int swap_in_a_process(struct id id, int rank)
{
    enum { INT8, UINT8, MOST = 2, AVERAGE = 4 };
    int (*swap)(const void *, void *, size_t, int, struct comm *, void *);
    int (*scatter)(const void *, void *, size_t, int, int, struct comm *, void *);
    int (*send)(const void *, size_t, int, int, struct comm *, void *);
    int (*receive)(void *, size_t, int, int, struct comm *, void *);
    uint8_t bytes[16] = {0};
    struct device device;
    struct comm *comm;
    find_all();
    *(void **)&swap = find(nccl, "ncclAlltoAll");
    *(void **)&scatter = find(nccl, "ncclReduceScatter");
    *(void **)&send = find(nccl, "ncclSend");
    *(void **)&receive = find(nccl, "ncclRecv");
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(60 * rank + 10 * i);
    if (take_device(&device) || device.there(device.memory, bytes, 4) ||
        init_rank(&comm, 4, id, rank))
        return 100;
    char *at = (char *)(uintptr_t)device.memory;
    if (swap(at, at + 4, 1, UINT8, comm, NULL) || scatter(at, at + 8, 1, UINT8, MOST, comm, NULL) ||
        scatter(at, at + 9, 1, INT8, MOST, comm, NULL) ||
        all_reduce(at, at + 12, 1, UINT8, AVERAGE, comm, NULL) || group_start() ||
        receive(at + 10, 1, UINT8, (rank + 3) % 4, comm, NULL) ||
        send(at, 1, UINT8, (rank + 1) % 4, comm, NULL) || group_end() ||
        device.back(bytes, device.memory, sizeof bytes))
        return 101;
    for (int i = 0; i < 4; i++)
        if (bytes[4 + i] != 60 * i + 10 * rank)
            return 102;
    if (bytes[8] != 180 + 10 * rank) /* of 0, 60, 120 and 180, and 10 for each rank */
        return 103;
    if (bytes[9] != (rank == 0 ? 120 : 60 + 10 * rank)) /* 130 and more are negative */
        return 104;
    if (bytes[10] != 60 * ((rank + 3) % 4))
        return 105;
    return bytes[12] == (0 + 60 + 120 + 180) % 256 / 4 ? 0 : 106;
}

static void test_memory_of_nccl_is_whole_pages_of_the_driver(void **state)
{
    int (*take)(void **, size_t), (*give)(void *);
    void *pointer = NULL;
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    *(void **)&take = find(nccl, "ncclMemAlloc");
    *(void **)&give = find(nccl, "ncclMemFree");
    assert_int_equal(take(&pointer, 2 * MIB + 1), SUCCESS);
    assert_non_null(pointer);
    assert_int_equal(account->device[0].used_bytes - before, 4 * MIB);
    assert_int_equal(give(pointer), SUCCESS);
    assert_int_equal(give(NULL), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
}

static void test_window_gives_back_the_buffer(void **state)
{
    int (*enter)(struct comm *, void *, size_t, void **, int);
    int (*leave)(struct comm *, void *), (*ask)(struct comm *, void *, void **);
    struct comm *comm;
    struct id id;
    void *window = NULL, *buffer = NULL;
    (void)state;
    *(void **)&enter = find(nccl, "ncclCommWindowRegister");
    *(void **)&leave = find(nccl, "ncclCommWindowDeregister");
    *(void **)&ask = find(nccl, "ncclWinGetUserPtr");
    assert_int_equal(get_id(&id), SUCCESS);
    assert_int_equal(init_rank(&comm, 2, id, 0), SUCCESS);
    assert_int_equal(enter(comm, &id, sizeof id, &window, 1), SUCCESS);
    assert_non_null(window);
    assert_int_equal(ask(comm, window, &buffer), SUCCESS);
    assert_ptr_equal(buffer, &id);
    assert_int_equal(leave(comm, window), SUCCESS);
    assert_int_equal(enter(NULL, &id, sizeof id, &window, 1), INVALID_ARGUMENT);
    assert_int_equal(destroy(comm), SUCCESS);
}

static void test_words_of_results(void **state)
{
    const char *(*words)(int);
    int (*version)(int *);
    int number = 0;
    (void)state;
    *(void **)&words = find(nccl, "ncclGetErrorString");
    *(void **)&version = find(nccl, "ncclGetVersion");
    assert_string_equal(words(0), "no error");
    assert_string_equal(words(7), "NCCL operation in progress");
    assert_string_equal(words(77), "unknown result code");
    assert_int_equal(version(&number), SUCCESS);
    assert_int_equal(number / 10000, 2); /* the major number, as of 2.9 */
}

/* PyTorch says in its own metadata with which NCCL it goes; before it is there, any will do. */
static void test_the_version_is_the_one_that_pytorch_goes_with(void **state)
{
    static const char wish[] = "Name: torch\nRequires-Dist: nvidia-cudnn-cu13==9.20.0.48\n"
                               "Requires-Dist: nvidia-nccl-cu13==2.30.7; platform_system\n";
    char folder[] = "/tmp/memtally-nccl-XXXXXX";
    char command[512], path[128];
    int (*version)(int *);
    int number = 0;
    (void)state;
    *(void **)&version = find(nccl, "ncclGetVersion");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "mkdir -p %s/torch/lib %s/torch-2.15.0.dist-info && ln -s %s "
             "%s/torch/lib/libtorch_cuda.so && printf '%s' > %s/torch-2.15.0.dist-info/METADATA",
             folder, folder, NEEDS_RUNTIME_PATH, folder, wish, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/torch/lib/libtorch_cuda.so", folder);
    void *runtime = load(RUNTIME_PATH "13.so"); /* which it needs, by its soname */
    void *torch = load(path);
    assert_int_equal(version(&number), SUCCESS);
    assert_int_equal(number, 23007);
    dlclose(torch);
    dlclose(runtime);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(version(NULL), INVALID_ARGUMENT);
}

static int run_rank(char **arguments)
{
    struct id id;
    for (int i = 0; i < 128; i++) {
        unsigned byte;
        if (sscanf(arguments[3] + 2 * i, "%2x", &byte) != 1)
            return 102;
        id.bytes[i] = (char)byte;
    }
    int rank = atoi(arguments[2]);
    if (strcmp(arguments[1], "--swap") == 0)
        return swap_in_a_process(id, rank);
    return strcmp(arguments[1], "--split") == 0 ? part_in_a_process(id, rank)
                                                : gather_in_a_process(id, rank);
}

int main(int n, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_differ),
        cmocka_unit_test(test_communicator_knows_its_rank_and_takes_memory_until_destroyed),
        cmocka_unit_test(test_communicator_of_one_takes_nothing),
        cmocka_unit_test(test_wrong_ranks_and_handles_are_refused),
        cmocka_unit_test(test_memory_that_is_not_there_fails_the_communicator),
        cmocka_unit_test(test_communicators_are_made_for_all_devices_or_for_none),
        cmocka_unit_test(test_collectives_check_their_arguments),
        cmocka_unit_test(test_own_operation_is_good_until_none_was_made),
        cmocka_unit_test(test_split_in_one_process_waits_for_the_groups_end),
        cmocka_unit_test(test_shared_split_takes_no_memory_of_its_own),
        cmocka_unit_test(test_rank_of_no_color_has_no_part),
        cmocka_unit_test(test_shrunk_communicator_leaves_ranks_out),
        cmocka_unit_test(test_processes_meet_to_split),
        cmocka_unit_test(test_small_integers_go_from_process_to_process),
        cmocka_unit_test(test_integers_change_places_and_are_reduced_in_parts),
        cmocka_unit_test(test_memory_of_nccl_is_whole_pages_of_the_driver),
        cmocka_unit_test(test_window_gives_back_the_buffer),
        cmocka_unit_test(test_words_of_results),
        cmocka_unit_test(test_the_version_is_the_one_that_pytorch_goes_with),
    };
    if (n == 4)
        return run_rank(arguments);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
