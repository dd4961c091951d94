/* SPDX-License-Identifier: MIT */
/* A pool of a CUDA device's memory, over the pretended driver: what the device's account says it
 * holds is what the pool says. */
#include <memtally/error.h>

#include "look_alike.h"

#include "pool/driver.h"

#define PAGE (2 * MIB)

static struct mt_cuda_driver driver;

static int set_up(void **state)
{
    (void)state;
    make_account();
    start_driver();
    assert_int_equal(mt_cuda_driver_open(DRIVER_PATH, &driver, NULL), MT_OK);
    return 0;
}

static uint64_t held(void)
{
    return account->device[0].used_bytes;
}

struct made {
    struct mt_pool_cuda *cuda;
    struct mt_pool *pool;
};

typedef int make_fn(const struct mt_cuda_driver *functions, int device, struct mt_pool_cuda **cuda,
                    struct mt_error *error);

static int make_virtual(const struct mt_cuda_driver *functions, int device,
                        struct mt_pool_cuda **cuda, struct mt_error *error)
{
    return mt_pool_cuda_create_over(functions, device, 0, cuda, error);
}

static struct made make_as(make_fn *create, const struct mt_cuda_driver *functions,
                           uint64_t max_bytes)
{
    struct made made;
    struct mt_pool_options options = {
        .max_bytes = max_bytes, .address_bytes = 4 * GIB, .no_front = 1};
    assert_int_equal(create(functions, 0, &made.cuda, NULL), MT_OK);
    assert_int_equal(mt_pool_create(mt_pool_cuda_backend(made.cuda), &options, &made.pool, NULL),
                     MT_OK);
    return made;
}

static struct made make(const struct mt_cuda_driver *functions, uint64_t max_bytes)
{
    return make_as(make_virtual, functions, max_bytes);
}

static void finish(struct made made)
{
    mt_pool_destroy(made.pool);
    mt_pool_cuda_destroy(made.cuda);
}

static void test_device_holds_what_the_pool_says(void **state)
{
    (void)state;
    uint64_t before = held(), first, second;
    struct made made = make(&driver, 0);
    struct mt_pool_stats stats;
    assert_int_equal(mt_pool_cuda_total_bytes(made.cuda), 80 * GIB);
    assert_int_equal(mt_pool_allocate(made.pool, 30 * MIB, 1, &first), MT_OK);
    assert_int_equal(mt_pool_allocate(made.pool, 1000, 1, &second), MT_OK);
    assert_int_equal(held() - before, 32 * MIB); /* 15 pages, and one for what is small */
    mt_pool_stats_read(made.pool, &stats);
    assert_int_equal(stats.reserved_bytes, 32 * MIB);
    assert_int_equal(mt_pool_free(made.pool, first), MT_OK);
    assert_int_equal(held() - before, 32 * MIB);
    assert_int_equal(mt_pool_trim(made.pool, 0), 30 * MIB);
    assert_int_equal(held() - before, 2 * MIB);
    assert_int_equal(mt_pool_free(made.pool, second), MT_OK);
    finish(made);
    assert_int_equal(held(), before);
}

/* 60 and 20 MiB lie between live blocks, and 80 MiB in one piece fit without more memory. */
static void test_pages_move_to_where_room_is_needed(void **state)
{
    (void)state;
    struct made made = make(&driver, 100 * MIB);
    uint64_t before = held(), blocks[4], large;
    const uint64_t sizes[4] = {60 * MIB, 10 * MIB, 20 * MIB, 10 * MIB};
    for (int i = 0; i < 4; i++)
        assert_int_equal(mt_pool_allocate(made.pool, sizes[i], 1, &blocks[i]), MT_OK);
    assert_int_equal(held() - before, 100 * MIB);
    assert_int_equal(mt_pool_free(made.pool, blocks[0]), MT_OK);
    assert_int_equal(mt_pool_free(made.pool, blocks[2]), MT_OK);
    assert_int_equal(mt_pool_allocate(made.pool, 82 * MIB, 1, &large), MT_ELIMIT);
    assert_int_equal(mt_pool_allocate(made.pool, 80 * MIB, 1, &large), MT_OK);
    assert_int_equal(held() - before, 100 * MIB);
    finish(made);
}

/* What the account says is held of the kind of memory that a backend takes. */
static uint64_t held_by(make_fn *create)
{
    return create == mt_cuda_pinned_over ? account->host_used_bytes : held();
}

static void test_segments_are_held_to_the_byte(void **state)
{
    (void)state;
    static make_fn *const kinds[] = {mt_cuda_pinned_over, mt_cuda_ordered_over};
    for (int i = 0; i < 2; i++) {
        uint64_t least = i ? 32 * MIB : 2 * MIB; /* the driver's pools reserve 32 MiB at once */
        uint64_t large = i ? 64 * MIB : 34 * MIB;
        struct made made = make_as(kinds[i], &driver, 128 * MIB);
        struct mt_pool_stats stats;
        uint64_t before = held_by(kinds[i]), first, second, other;
        assert_int_equal(mt_pool_allocate(made.pool, 33 * MIB, 1, &first), MT_OK);
        assert_int_equal(mt_pool_allocate(made.pool, 1000, 1, &second), MT_OK);
        mt_pool_stats_read(made.pool, &stats);
        assert_int_equal(stats.reserved_bytes, large + least);
        assert_int_equal(held_by(kinds[i]) - before, large + least);
        if (kinds[i] == mt_cuda_pinned_over)
            memset((void *)(uintptr_t)first, 1, 33 * MIB);
        assert_int_equal(mt_pool_free(made.pool, first), MT_OK);
        assert_int_equal(held_by(kinds[i]) - before, large + least);
        /* Another stream has it once the first one's work is done. */
        assert_int_equal(mt_pool_allocate(made.pool, 34 * MIB, 2, &other), MT_OK);
        assert_int_equal(other, first);
        assert_int_equal(mt_pool_allocate(made.pool, 96 * MIB, 1, &first), MT_ELIMIT);
        assert_int_equal(mt_pool_free(made.pool, other), MT_OK);
        assert_int_equal(mt_pool_allocate(made.pool, 96 * MIB, 1, &first), MT_OK);
        assert_int_equal(held_by(kinds[i]) - before, 96 * MIB + least); /* the other went back */
        assert_int_equal(mt_pool_free(made.pool, first), MT_OK);
        assert_int_equal(mt_pool_trim(made.pool, 0), 96 * MIB);
        assert_int_equal(held_by(kinds[i]) - before, least);
        assert_int_equal(mt_pool_free(made.pool, second), MT_OK);
        finish(made);
        assert_int_equal(held_by(kinds[i]), before);
    }
}

static void test_device_has_its_memory_back_while_a_pool_sleeps(void **state)
{
    (void)state;
    struct made made = make(&driver, 0);
    uint64_t before = held(), weights, work, released;
    assert_int_equal(mt_pool_allocate_hinted(made.pool, 10 * MIB, 1, MT_POOL_LONG_LIVED, &weights),
                     MT_OK);
    assert_int_equal(mt_pool_allocate(made.pool, 20 * MIB, 1, &work), MT_OK);
    assert_int_equal(mt_pool_sleep(made.pool, MT_POOL_KEEP_LONG, &released), MT_OK);
    assert_int_equal(released, 30 * MIB);
    assert_int_equal(held(), before);
    assert_int_equal(mt_pool_wake(made.pool), MT_OK);
    assert_int_equal(held() - before, 30 * MIB);
    assert_int_equal(mt_pool_free(made.pool, weights), MT_OK);
    assert_int_equal(mt_pool_free(made.pool, work), MT_OK);
    assert_int_equal(mt_pool_sleep(made.pool, MT_POOL_KEEP_ALL, &released), MT_OK);
    finish(made);
    assert_int_equal(held(), before);
}

static struct mt_cuda_driver failing;
static uint64_t n_calls, fail_at;

static int fails(void)
{
    return ++n_calls == fail_at;
}

static int create(unsigned long long *handle, size_t bytes, const struct mt_cuda_property *property,
                  unsigned long long flags)
{
    return fails() ? MT_CUDA_OUT_OF_MEMORY : driver.create(handle, bytes, property, flags);
}

static int map(uint64_t address, size_t bytes, size_t offset, unsigned long long handle,
               unsigned long long flags)
{
    return fails() ? 1 : driver.map(address, bytes, offset, handle, flags);
}

static int set_access(uint64_t address, size_t bytes, const struct mt_cuda_access *access, size_t n)
{
    return fails() ? 1 : driver.set_access(address, bytes, access, n);
}

static int event_create(void **event, unsigned flags)
{
    return fails() ? 1 : driver.event_create(event, flags);
}

static int event_record(void *event, void *stream)
{
    return fails() ? 1 : driver.event_record(event, stream);
}

static int unmap(uint64_t address, size_t bytes)
{
    return fails() ? 1 : driver.unmap(address, bytes);
}

static int copy_out(void *host, uint64_t address, size_t bytes)
{
    return fails() ? 1 : driver.copy_out(host, address, bytes);
}

static int copy_in(uint64_t address, const void *host, size_t bytes)
{
    return fails() ? 1 : driver.copy_in(address, host, bytes);
}

static int host_alloc(void **address, size_t bytes, unsigned flags)
{
    return fails() ? MT_CUDA_OUT_OF_MEMORY : driver.host_alloc(address, bytes, flags);
}

static int pool_alloc(uint64_t *address, size_t bytes, void *pool, void *stream)
{
    return fails() ? MT_CUDA_OUT_OF_MEMORY : driver.pool_alloc(address, bytes, pool, stream);
}

static int stream_wait(void *stream)
{
    return fails() ? 1 : driver.stream_wait(stream);
}

static void take_and_give(struct mt_pool *pool, uint64_t unit)
{
    uint64_t first, second, other;
    int has_first = mt_pool_allocate(pool, 6 * unit, 1, &first) == MT_OK;
    int has_second = mt_pool_allocate(pool, 4 * unit, 1, &second) == MT_OK;
    if (has_first)
        assert_int_equal(mt_pool_free(pool, first), MT_OK);
    if (mt_pool_allocate(pool, 8 * unit, 2, &other) == MT_OK)
        assert_int_equal(mt_pool_free(pool, other), MT_OK);
    uint64_t released;
    if (mt_pool_sleep(pool, MT_POOL_KEEP_ALL, &released) == MT_OK && mt_pool_wake(pool) != MT_OK)
        assert_int_equal(mt_pool_wake(pool), MT_OK);
    if (has_second)
        assert_int_equal(mt_pool_free(pool, second), MT_OK);
}

static void fail_each(make_fn *kind, uint64_t unit)
{
    uint64_t before = held_by(kind);
    fail_at = 0;
    for (uint64_t most = UINT64_MAX; fail_at <= most; fail_at++) {
        struct made made = make_as(kind, &failing, 12 * unit);
        struct mt_pool_stats stats;
        n_calls = 0;
        take_and_give(made.pool, unit);
        if (!fail_at)
            most = n_calls;
        mt_pool_stats_read(made.pool, &stats);
        assert_int_equal(held_by(kind) - before, stats.reserved_bytes);
        finish(made);
        assert_int_equal(held_by(kind), before);
    }
    assert_true(fail_at > 4);
}

static void test_nothing_stays_whichever_call_fails(void **state)
{
    (void)state;
    failing = driver;
    failing.create = create;
    failing.map = map;
    failing.set_access = set_access;
    failing.event_create = event_create;
    failing.event_record = event_record;
    failing.unmap = unmap;
    failing.copy_out = copy_out;
    failing.copy_in = copy_in;
    failing.host_alloc = host_alloc;
    failing.pool_alloc = pool_alloc;
    failing.stream_wait = stream_wait;
    static make_fn *const kinds[] = {make_virtual, mt_cuda_pinned_over, mt_cuda_ordered_over};
    for (int i = 0; i < 3; i++)
        fail_each(kinds[i], i < 2 ? MIB : 8 * MIB);
}

static void test_device_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct mt_pool_cuda *cuda;
    struct mt_error error;
    assert_int_equal(mt_pool_cuda_create_over(&driver, 7, 0, &cuda, &error), MT_ENOTFOUND);
    assert_string_equal(error.text, "CUDA device 7 cannot have a pool: not found");
    assert_int_equal(mt_pool_cuda_create_over(&driver, 0, MIB, &cuda, &error), MT_EARG);
    assert_int_equal(mt_pool_cuda_create_over(&driver, 0, 3 * MIB, &cuda, &error), MT_EARG);
    assert_int_equal(mt_cuda_driver_open("/nonexistent.so", &driver, &error), MT_ENOTFOUND);
    assert_string_equal(error.text, "no CUDA driver here: /nonexistent.so cannot be opened");
    assert_int_equal(mt_cuda_driver_open("libm.so.6", &driver, &error), MT_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_holds_what_the_pool_says),
        cmocka_unit_test(test_pages_move_to_where_room_is_needed),
        cmocka_unit_test(test_segments_are_held_to_the_byte),
        cmocka_unit_test(test_device_has_its_memory_back_while_a_pool_sleeps),
        cmocka_unit_test(test_nothing_stays_whichever_call_fails),
        cmocka_unit_test(test_device_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests_name("cuda_pool", tests, set_up, drop_account);
}
