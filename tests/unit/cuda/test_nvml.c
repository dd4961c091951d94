/* SPDX-License-Identifier: MIT */
/* NVML as programs see it. Codes, versions of structures and their layouts are those of NVML's
 * documentation; facts are those of the account. */
#include "look_alike.h"

enum {
    SUCCESS,
    UNINITIALIZED,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE,
    DRIVER_NOT_LOADED = 9,
    VERSION_MISMATCH = 25
};

static void *nvml;
struct device;
static int (*init)(void), (*shut_down)(void);
static int (*by_index)(unsigned, struct device **);
static int (*get_count)(unsigned *);

static int set_up(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* which is no matter of NVML */
    make_account();
    start_driver();
    nvml = load(NVML_PATH);
    *(void **)&init = find(nvml, "nvmlInit_v2");
    *(void **)&shut_down = find(nvml, "nvmlShutdown");
    *(void **)&by_index = find(nvml, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&get_count = find(nvml, "nvmlDeviceGetCount_v2");
    return 0;
}

static int start(void **state)
{
    (void)state;
    return init();
}

static int stop(void **state)
{
    (void)state;
    return shut_down();
}

static struct device *device(unsigned index)
{
    struct device *found = NULL;
    assert_int_equal(by_index(index, &found), SUCCESS);
    return found;
}

static void test_nothing_is_answered_before_init_or_after_as_many_ends(void **state)
{
    struct device *found;
    unsigned n;
    (void)state;
    assert_int_equal(get_count(&n), UNINITIALIZED);
    assert_int_equal(by_index(0, &found), UNINITIALIZED);
    assert_int_equal(shut_down(), UNINITIALIZED);
    assert_int_equal(init(), SUCCESS);
    assert_int_equal(init(), SUCCESS); /* it counts */
    assert_int_equal(shut_down(), SUCCESS);
    assert_int_equal(get_count(&n), SUCCESS);
    assert_int_equal(shut_down(), SUCCESS);
    assert_int_equal(get_count(&n), UNINITIALIZED);
}

static void test_account_without_cuda_is_no_driver(void **state)
{
    (void)state;
    account->cuda.driver_version = 0;
    assert_int_equal(init(), DRIVER_NOT_LOADED);
    account->cuda.driver_version = 12080;
}

static void test_all_devices_of_the_account_are_seen(void **state)
{
    struct device *found;
    int (*get_index)(struct device *, unsigned *);
    unsigned n = 0, index = 9;
    (void)state;
    *(void **)&get_index = find(nvml, "nvmlDeviceGetIndex");
    assert_int_equal(get_count(&n), SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(by_index(2, &found), INVALID_ARGUMENT);
    assert_int_equal(get_index(device(1), &index), SUCCESS);
    assert_int_equal(index, 1);
    assert_int_equal(get_index((struct device *)&n, &index), INVALID_ARGUMENT);
}

static void test_name_wants_room_for_its_end(void **state)
{
    int (*get_name)(struct device *, char *, unsigned);
    char name[96];
    (void)state;
    *(void **)&get_name = find(nvml, "nvmlDeviceGetName");
    assert_int_equal(get_name(device(0), name, sizeof name), SUCCESS);
    assert_string_equal(name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(get_name(device(0), name, 22), SUCCESS); /* 21 letters and the end */
    assert_int_equal(get_name(device(0), name, 21), INSUFFICIENT_SIZE);
}

/* CUDA sees one device, the account's second. */
static void test_identity_is_the_drivers(void **state)
{
    int (*uuid_of)(struct device *, char *, unsigned), (*by_uuid)(const char *, struct device **);
    int (*by_bus)(const char *, struct device **);
    int (*cuda_uuid)(unsigned char *, int), (*cuda_bus)(char *, int, int);
    struct device *found = NULL;
    unsigned char bytes[16];
    char text[96], bus[32], expected[64];
    (void)state;
    *(void **)&uuid_of = find(nvml, "nvmlDeviceGetUUID");
    *(void **)&by_uuid = find(nvml, "nvmlDeviceGetHandleByUUID");
    *(void **)&by_bus = find(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&cuda_uuid = find(RTLD_DEFAULT, "cuDeviceGetUuid_v2");
    *(void **)&cuda_bus = find(RTLD_DEFAULT, "cuDeviceGetPCIBusId");
    assert_int_equal(cuda_uuid(bytes, 0), 0);
    assert_int_equal(cuda_bus(bus, sizeof bus, 0), 0);
    assert_int_equal(uuid_of(device(1), text, sizeof text), SUCCESS);
    snprintf(expected, sizeof expected,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", bytes[0],
             bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8],
             bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]);
    assert_string_equal(text, expected);
    assert_int_equal(by_uuid(text, &found), SUCCESS);
    assert_ptr_equal(found, device(1));
    found = NULL;
    assert_int_equal(by_bus(bus, &found), SUCCESS);
    assert_ptr_equal(found, device(1));
    assert_int_equal(by_uuid("GPU-00000000-0000-0000-0000-000000000000", &found), NOT_FOUND);
    assert_int_equal(by_bus("0000:F0:00.0", &found), NOT_FOUND);
    assert_int_equal(by_bus("here", &found), INVALID_ARGUMENT);
}

struct memory {
    unsigned long long total, free, used;
};
struct memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static void test_memory_is_what_the_account_has_left(void **state)
{
    int (*ask)(struct device *, struct memory *), (*ask_2)(struct device *, struct memory_2 *);
    struct memory memory;
    struct memory_2 memory_2 = {.version = 40 | 2u << 24}; /* nvmlMemory_v2 */
    (void)state;
    *(void **)&ask = find(nvml, "nvmlDeviceGetMemoryInfo");
    *(void **)&ask_2 = find(nvml, "nvmlDeviceGetMemoryInfo_v2");
    account->device[0].used_bytes = account->device[0].held_bytes = 5 * GIB;
    assert_int_equal(ask(device(0), &memory), SUCCESS);
    assert_int_equal(memory.total, 80 * GIB);
    assert_int_equal(memory.free, 74 * GIB); /* 79 were free before */
    assert_int_equal(memory.used, 6 * GIB);
    assert_int_equal(ask_2(device(0), &memory_2), SUCCESS);
    assert_int_equal(memory_2.total, memory_2.reserved + memory_2.free + memory_2.used);
    assert_int_equal(memory_2.used, 6 * GIB);
    memory_2.version = 1;
    assert_int_equal(ask_2(device(0), &memory_2), VERSION_MISMATCH);
    account->device[0].used_bytes = account->device[0].held_bytes = 0;
}

static void say(uint32_t kind, uint32_t pid, uint8_t place, uint64_t bytes)
{
    struct mt_account_event *event = &account->event[account->n_events++];
    event->pid = pid;
    event->place = place;
    event->bytes = bytes;
    event->kind = kind;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

static void test_processes_have_their_shares(void **state)
{
    int (*list)(struct device *, unsigned *, struct process *);
    int (*list_1)(struct device *, unsigned *, struct memory *);
    struct process process[8];
    struct {
        unsigned pid;
        unsigned long long bytes;
    } process_1[8];
    uint64_t n_before = account->n_events;
    unsigned n = 0;
    (void)state;
    *(void **)&list = find(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&list_1 = find(nvml, "nvmlDeviceGetComputeRunningProcesses");
    say(MT_ACCOUNT_ALLOC, 41, 0, 3 * GIB);
    say(MT_ACCOUNT_ALLOC, 42, 0, 2 * GIB);
    say(MT_ACCOUNT_ALLOC, 42, 1, 9 * GIB); /* elsewhere */
    say(MT_ACCOUNT_FREE, 41, 0, GIB);
    say(MT_ACCOUNT_ALLOC, 43, 0, GIB);
    say(MT_ACCOUNT_END, 43, 0, 0);
    assert_int_equal(list(device(0), &n, NULL), INSUFFICIENT_SIZE);
    assert_int_equal(n, 2);
    assert_int_equal(list(NULL, &n, process), INVALID_ARGUMENT);
    n = 8;
    assert_int_equal(list(device(0), &n, process), SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(process[0].pid, 41);
    assert_int_equal(process[0].bytes, 2 * GIB);
    assert_int_equal(process[1].pid, 42);
    assert_int_equal(process[1].bytes, 2 * GIB);
    assert_int_equal(process[0].gpu_instance, 0xffffffff);
    n = 8;
    assert_int_equal(list_1(device(1), &n, (struct memory *)process_1), SUCCESS);
    assert_int_equal(n, 1);
    assert_int_equal(process_1[0].bytes, 9 * GIB);
    while (account->n_events > n_before)
        account->event[--account->n_events].kind = MT_ACCOUNT_NONE;
}

static void test_devices_with_nvlink_reach_each_other_over_it(void **state)
{
    int (*p2p)(struct device *, struct device *, int, int *);
    int (*link)(struct device *, unsigned, unsigned *), (*remote)(struct device *, unsigned, int *);
    int status = -1, type = -1;
    unsigned is_active = 9;
    (void)state;
    *(void **)&p2p = find(nvml, "nvmlDeviceGetP2PStatus");
    *(void **)&link = find(nvml, "nvmlDeviceGetNvLinkState");
    *(void **)&remote = find(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType");
    assert_int_equal(p2p(device(0), device(1), 2, &status), SUCCESS); /* NVLINK */
    assert_int_equal(status, 0);                                      /* NVML_P2P_STATUS_OK */
    assert_int_equal(link(device(0), 17, &is_active), SUCCESS);       /* the last of an H100 */
    assert_int_equal(is_active, 1);
    assert_int_equal(link(device(0), 18, &is_active), INVALID_ARGUMENT);
    assert_int_equal(remote(device(0), 0, &type), SUCCESS);
    assert_int_equal(type, 2); /* NVML_NVLINK_DEVICE_TYPE_SWITCH */
}

static void test_geforce_on_pci_reaches_nobody(void **state)
{
    int (*p2p)(struct device *, struct device *, int, int *);
    int (*link)(struct device *, unsigned, unsigned *);
    int status = 0;
    unsigned is_active;
    struct mt_gpu_spec kept = account->device[0].gpu;
    (void)state;
    *(void **)&p2p = find(nvml, "nvmlDeviceGetP2PStatus");
    *(void **)&link = find(nvml, "nvmlDeviceGetNvLinkState");
    account->device[0].gpu.link = MT_GPU_LINK_PCI;
    strcpy(account->device[0].gpu.name, "NVIDIA GeForce RTX 4090");
    assert_int_equal(p2p(device(0), device(1), 2, &status), SUCCESS);
    assert_int_equal(status, 5); /* NVML_P2P_STATUS_NOT_SUPPORTED */
    assert_int_equal(p2p(device(0), device(1), 0, &status), SUCCESS); /* READ */
    assert_int_not_equal(status, 0);
    assert_int_equal(link(device(0), 0, &is_active), NOT_SUPPORTED);
    account->device[0].gpu = kept;
}

static void test_facts_are_the_tables(void **state)
{
    static const struct {
        const char *name;
        unsigned value;
    } facts[] = {
        {"nvmlDeviceGetNumGpuCores", 16896}, /* 132 times 128, as NVIDIA says of the H100 */
        {"nvmlDeviceGetArchitecture", 9},    /* NVML_DEVICE_ARCH_HOPPER */
        {"nvmlDeviceGetMemoryBusWidth", 5120},
        {"nvmlDeviceGetMinorNumber", 1},
    };
    int (*capability)(struct device *, int *, int *), (*clock)(struct device *, int, unsigned *);
    int major = 0, minor = -1;
    unsigned value = 0;
    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        int (*ask)(struct device *, unsigned *);
        *(void **)&ask = find(nvml, facts[i].name);
        assert_int_equal(ask(device(1), &value), SUCCESS);
        assert_int_equal(value, facts[i].value);
        assert_int_equal(ask(device(1), NULL), INVALID_ARGUMENT);
    }
    *(void **)&capability = find(nvml, "nvmlDeviceGetCudaComputeCapability");
    *(void **)&clock = find(nvml, "nvmlDeviceGetMaxClockInfo");
    assert_int_equal(capability(device(0), &major, &minor), SUCCESS);
    assert_int_equal(major * 10 + minor, 90);
    assert_int_equal(clock(device(0), 2, &value), SUCCESS); /* NVML_CLOCK_MEM */
    assert_int_equal(value, 2619);
}

/* nvmlDeviceArchitecture_t: Turing 6, Ampere 7, Ada 8, Hopper 9, Blackwell 10. */
static void test_architectures_have_their_numbers(void **state)
{
    static const struct {
        uint32_t capability;
        unsigned architecture;
    } known[] = {{75, 6}, {80, 7}, {86, 7}, {89, 8}, {90, 9}, {100, 10}, {120, 10}};
    int (*ask)(struct device *, unsigned *);
    unsigned value = 0;
    (void)state;
    *(void **)&ask = find(nvml, "nvmlDeviceGetArchitecture");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        account->device[0].gpu.capability = known[i].capability;
        assert_int_equal(ask(device(0), &value), SUCCESS);
        assert_int_equal(value, known[i].architecture);
    }
    account->device[0].gpu.capability = 90;
}

static void test_sensors_are_not_there_and_nothing_is_noted_of_it(void **state)
{
    int (*temperature)(struct device *, int, unsigned *), (*drain)(void);
    uint32_t before = account->cuda.n_missing;
    unsigned value;
    (void)state;
    *(void **)&temperature = find(nvml, "nvmlDeviceGetTemperature");
    *(void **)&drain = find(nvml, "nvmlDeviceModifyDrainState");
    assert_int_equal(temperature(device(0), 0, &value), NOT_SUPPORTED);
    assert_int_equal(account->cuda.n_missing, before);
    assert_int_equal(drain(), NOT_SUPPORTED);
    assert_int_equal(account->cuda.n_missing, before + 1);
}

static void test_driver_is_of_the_cuda_that_is_told(void **state)
{
    int (*driver)(char *, unsigned), (*cuda)(int *);
    char version[80];
    int number = 0;
    (void)state;
    *(void **)&driver = find(nvml, "nvmlSystemGetDriverVersion");
    *(void **)&cuda = find(nvml, "nvmlSystemGetCudaDriverVersion_v2");
    assert_int_equal(driver(version, sizeof version), SUCCESS);
    assert_string_equal(version, "570.86.10"); /* CUDA 12.8's */
    assert_int_equal(cuda(&number), SUCCESS);
    assert_int_equal(number, 12080);
}

#define STARTED(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_answered_before_init_or_after_as_many_ends),
        cmocka_unit_test(test_account_without_cuda_is_no_driver),
        STARTED(test_all_devices_of_the_account_are_seen),
        STARTED(test_name_wants_room_for_its_end),
        STARTED(test_identity_is_the_drivers),
        STARTED(test_memory_is_what_the_account_has_left),
        STARTED(test_processes_have_their_shares),
        STARTED(test_devices_with_nvlink_reach_each_other_over_it),
        STARTED(test_geforce_on_pci_reaches_nobody),
        STARTED(test_facts_are_the_tables),
        STARTED(test_architectures_have_their_numbers),
        STARTED(test_sensors_are_not_there_and_nothing_is_noted_of_it),
        STARTED(test_driver_is_of_the_cuda_that_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, drop_account);
}
