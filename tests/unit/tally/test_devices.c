/* SPDX-License-Identifier: MIT */
/* Devices out of events: when memory is there, and what counts. */
#include "tests/support/unit.h"

#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pytorch/torch.h"
#include "tally/device_notes.h"
#include "tally/device_rows.h"
#include "tally/devices.h"

#define MIB UINT64_C(1048576)

struct story {
    struct mt_devices devices;
    struct mt_device_pass pass;
    uint64_t ns;
};

/* Each event comes a nanosecond after the one before. */
static void tell(struct story *story, enum mt_event_op op, uint64_t a, uint64_t b, uint64_t c,
                 uint64_t d)
{
    struct mt_event event = {.op = (uint8_t)op, .field = {a, b, c, d}};
    assert_int_equal(mt_device_take(&story->pass, &event, ++story->ns, "GPU-1", "Card"), 0);
}

static void begin(struct story *story, uint64_t pid)
{
    mt_device_pass_init(&story->pass, &story->devices, pid);
    tell(story, MT_EVENT_DEVICE, 0, 1000 * MIB, 0, 0);
}

static void end(struct story *story)
{
    assert_int_equal(mt_device_pass_finish(&story->pass, ++story->ns), 0);
}

static uint64_t allocated_now(const struct story *story)
{
    struct mt_device_moment moment;
    assert_int_equal(mt_device_at(&story->devices, 0, story->ns, &moment), 0);
    return moment.allocated_bytes;
}

static void take(struct story *story, enum mt_device_kind kind, uint64_t object, uint64_t bytes)
{
    tell(story, MT_EVENT_DEVICE_ALLOC, 0, kind, object, bytes);
}

static void give(struct story *story, enum mt_device_kind kind, uint64_t object)
{
    tell(story, MT_EVENT_DEVICE_FREE, kind, object, 0, 0);
}

static void refuse(struct story *story, uint64_t bytes)
{
    tell(story, MT_EVENT_DEVICE_REFUSED, 0, MT_DEVICE_LINEAR, bytes, 10 * MIB);
}

/* PyTorch lets go of what it keeps, and asks for the same again. */
static void test_what_is_asked_for_again_is_told_apart_from_others(void **state)
{
    (void)state;
    struct story story = {0};
    char text[1000];
    begin(&story, 7);
    refuse(&story, 300 * MIB);
    refuse(&story, 100 * MIB);
    refuse(&story, 100 * MIB);
    end(&story);
    assert_int_equal(mt_device_refusal_note(&story.devices, 0, 0, NULL, text, sizeof text), 0);
    assert_non_null(strstr(text, " refused 100.00 MiB to process 7 "));
    assert_non_null(strstr(text, "; the process asked for as much 2 times; 1 other allocation had "
                                 "been refused"));
    mt_devices_finish(&story.devices);
}

static void test_memory_is_there_until_it_is_given_back(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_MANAGED, 0x2000, 7 * MIB);
    assert_int_equal(allocated_now(&story), 12 * MIB);
    /* cuMemFree gives back memory of any kind. */
    give(&story, MT_DEVICE_LINEAR, 0x2000);
    assert_int_equal(allocated_now(&story), 5 * MIB);
    give(&story, MT_DEVICE_LINEAR, 0x2000);
    give(&story, MT_DEVICE_LINEAR, 0x9000);
    assert_int_equal(allocated_now(&story), 5 * MIB);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_an_address_that_is_given_out_again_was_given_back_unseen(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 3 * MIB);
    assert_int_equal(allocated_now(&story), 3 * MIB);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_physical_memory_goes_with_its_last_handle_and_mapping(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_PHYSICAL, 77, 4 * MIB);
    tell(&story, MT_EVENT_DEVICE_MAP, 0x100000, 4 * MIB, 77, 0);
    tell(&story, MT_EVENT_DEVICE_MAP, 0x900000, 4 * MIB, 77, 0);
    assert_int_equal(allocated_now(&story), 4 * MIB);
    give(&story, MT_DEVICE_PHYSICAL, 77);
    tell(&story, MT_EVENT_DEVICE_UNMAP, 0x100000, 4 * MIB, 0, 0);
    assert_int_equal(allocated_now(&story), 4 * MIB);
    tell(&story, MT_EVENT_DEVICE_HELD, 77, 0, 0, 0);
    tell(&story, MT_EVENT_DEVICE_UNMAP, 0x900000, 4 * MIB, 0, 0);
    assert_int_equal(allocated_now(&story), 4 * MIB);
    give(&story, MT_DEVICE_PHYSICAL, 77);
    assert_int_equal(allocated_now(&story), 0);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_one_unmapping_may_end_several_mappings(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_PHYSICAL, 1, 2 * MIB);
    take(&story, MT_DEVICE_PHYSICAL, 2, 2 * MIB);
    tell(&story, MT_EVENT_DEVICE_MAP, 0x200000, 2 * MIB, 1, 0);
    tell(&story, MT_EVENT_DEVICE_MAP, 0x400000, 2 * MIB, 2, 0);
    give(&story, MT_DEVICE_PHYSICAL, 1);
    give(&story, MT_DEVICE_PHYSICAL, 2);
    assert_int_equal(allocated_now(&story), 4 * MIB);
    tell(&story, MT_EVENT_DEVICE_UNMAP, 0x200000, 4 * MIB, 0, 0);
    assert_int_equal(allocated_now(&story), 0);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_what_is_imported_or_the_hosts_is_none_of_the_devices(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_IMPORTED, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_HOST, 0x2000, 5 * MIB);
    take(&story, MT_DEVICE_REGISTERED, 0x3000, 5 * MIB);
    assert_int_equal(allocated_now(&story), 0);
    tell(&story, MT_EVENT_DEVICE_RESET, 0, 0, 0, 0);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_a_reset_and_an_end_give_all_back_of_their_process_alone(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    tell(&story, MT_EVENT_DEVICE_RESET, 0, 0, 0, 0);
    assert_int_equal(allocated_now(&story), 0);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 6 * MIB);
    end(&story);
    assert_int_equal(allocated_now(&story), 0);
    begin(&story, 2);
    assert_int_equal(story.devices.n_places, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 9 * MIB);
    assert_int_equal(allocated_now(&story), 9 * MIB);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_the_peak_is_where_the_driver_said_most(void **state)
{
    struct story story = {0};
    struct mt_device_moment peak;
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 50 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 60 * MIB, MT_DEVICE_BY_CALL, 0);
    give(&story, MT_DEVICE_LINEAR, 0x1000);
    take(&story, MT_DEVICE_LINEAR, 0x2000, 10 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 90 * MIB, MT_DEVICE_BY_CALL, 0);
    end(&story);
    assert_int_equal(mt_device_peak(&story.devices, 0, &peak), 0);
    assert_int_equal(peak.used_bytes, 90 * MIB);
    assert_int_equal(peak.allocated_bytes, 10 * MIB);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_events_that_make_no_sense_do_no_harm(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_KIND_END, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_LINEAR, UINT64_MAX, 5 * MIB);
    tell(&story, MT_EVENT_DEVICE_ALLOC, 9, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    tell(&story, MT_EVENT_DEVICE_ALLOC, UINT64_MAX, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_LINEAR, 0x5000, MT_UNKNOWN);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, 1, MT_UNKNOWN, 0);
    tell(&story, MT_EVENT_DEVICE, UINT64_MAX, 1, 0, 0);
    tell(&story, MT_EVENT_DEVICE_MAP, UINT64_MAX, UINT64_MAX, 5, 0);
    tell(&story, MT_EVENT_DEVICE_UNMAP, 0, UINT64_MAX, 0, 0);
    tell(&story, MT_EVENT_DEVICE_HELD, UINT64_MAX, 0, 0, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 1, MT_DEVICE_REASON_END, 0);
    tell(&story, MT_EVENT_DEVICE_RESET, 77, 0, 0, 0);
    assert_int_equal(allocated_now(&story), 0);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

/* No engine was recorded beside a second observer that knows its buffers, so that they are derived.
 */
static void test_an_engines_buffer_says_what_memory_is_for(void **state)
{
    struct story story = {0};
    struct mt_device_moment now;
    struct mt_claims claims;
    uint64_t bytes[MT_CATEGORY_END] = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
    take(&story, MT_DEVICE_PHYSICAL, 0x77, 6 * MIB);
    tell(&story, MT_EVENT_DEVICE_MAP, 0x100000, 6 * MIB, 0x77, 0);
    take(&story, MT_DEVICE_LINEAR, 0x3000, 7 * MIB);
    tell(&story, MT_EVENT_BUFFER_ALLOC, 0xb1, 0x1000, 5 * MIB, 0);
    tell(&story, MT_EVENT_BUFFER_USAGE, 0xb1, MT_USAGE_WEIGHTS, 0, 0);
    tell(&story, MT_EVENT_BUFFER_ALLOC, 0xb2, 0x100000, 6 * MIB, 0);
    tell(&story, MT_EVENT_BUFFER_ALLOC, 0xb3, 0x3000, 7 * MIB, MT_BUFFER_HOST);
    assert_int_equal(mt_device_at(&story.devices, 0, story.ns, &now), 0);
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&story.devices, 0, &now, 0, NULL, &claims), 0);
    for (size_t i = 1; i < claims.n; i++) {
        bytes[claims.items[i].category] += claims.items[i].resident_bytes;
        assert_true(claims.items[i].provenance > MT_PROVENANCE_EXACT);
    }
    assert_int_equal(bytes[MT_CATEGORY_WEIGHTS], 5 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_ACTIVATIONS], 6 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 7 * MIB);
    mt_claims_finish(&claims);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void say(struct story *story, enum mt_event_op op, uint64_t a, uint64_t b, uint64_t c,
                const char *name)
{
    struct mt_event event = {.op = (uint8_t)op, .field = {a, b, c}};
    assert_int_equal(mt_device_take(&story->pass, &event, ++story->ns, NULL, name), 0);
}

static void rows_by(const struct story *story, struct mt_torch *torch,
                    uint64_t bytes[MT_CATEGORY_END])
{
    struct mt_device_moment now;
    struct mt_claims claims;
    assert_int_equal(mt_device_at(&story->devices, 0, story->ns, &now), 0);
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&story->devices, 0, &now, 0, torch, &claims), 0);
    memset(bytes, 0, MT_CATEGORY_END * sizeof *bytes);
    for (size_t i = 1; i < claims.n; i++)
        bytes[claims.items[i].category] += claims.items[i].resident_bytes;
    mt_claims_finish(&claims);
}

static void rows_now(const struct story *story, uint64_t bytes[MT_CATEGORY_END])
{
    rows_by(story, NULL, bytes);
}

static void test_a_library_that_asks_says_what_memory_is_for(void **state)
{
    static const struct {
        const char *file;
        enum mt_category category;
    } known[] = {
        {"libnccl.so.2", MT_CATEGORY_COMMUNICATION},
        {"libcublas.so.12", MT_CATEGORY_WORKSPACE},
        {"libcublasLt.so.13", MT_CATEGORY_WORKSPACE},
        {"libcudnn_engines_precompiled.so.9", MT_CATEGORY_WORKSPACE},
        {"libc10_cuda.so", MT_CATEGORY_CACHED},
        {"liblibnccl.so", MT_CATEGORY_CACHED},
        {"", MT_CATEGORY_CACHED},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct story story = {0};
        uint64_t bytes[MT_CATEGORY_END];
        begin(&story, 1);
        take(&story, MT_DEVICE_LINEAR, 0x1000, 5 * MIB);
        say(&story, MT_EVENT_DEVICE_CALLER, 0x1000, 0, 0, known[i].file);
        say(&story, MT_EVENT_DEVICE_CALLER, 0x9000, 0, 0, known[i].file);
        rows_now(&story, bytes);
        assert_int_equal(bytes[known[i].category], 5 * MIB);
        end(&story);
        mt_devices_finish(&story.devices);
    }
    (void)state;
}

/* A label of a part says nothing of the whole, and one of the host's memory nothing of devices. */
static void test_a_label_says_what_an_allocation_is_for(void **state)
{
    struct story story = {0};
    uint64_t bytes[MT_CATEGORY_END];
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x100000, 4 * MIB);
    take(&story, MT_DEVICE_LINEAR, 0x900000, 2 * MIB);
    say(&story, MT_EVENT_LABEL, 0x100000, 4 * MIB, MT_CATEGORY_WORKSPACE, "cuBLAS workspace");
    say(&story, MT_EVENT_LABEL, 0x900000, MIB, MT_CATEGORY_WORKSPACE, "cuBLAS workspace");
    say(&story, MT_EVENT_LABEL, 0x7000000, MIB, MT_CATEGORY_WEIGHTS, "of the host");
    assert_int_equal(story.devices.n_labels, 2);
    rows_now(&story, bytes);
    assert_int_equal(bytes[MT_CATEGORY_WORKSPACE], 4 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 2 * MIB);
    give(&story, MT_DEVICE_LINEAR, 0x100000);
    say(&story, MT_EVENT_LABEL, 0x100000, 4 * MIB, MT_CATEGORY_WEIGHTS, "gone");
    assert_int_equal(story.devices.n_labels, 2);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static struct mt_torch *traced(const char *trace)
{
    char folder[] = "/tmp/memtally-devices-XXXXXX";
    char path[64];
    struct mt_torch *torch = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/torch-1.trace", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(trace, file);
    fclose(file);
    assert_int_equal(mt_torch_open(folder, &torch, NULL), 0);
    unlink(path);
    rmdir(folder);
    return torch;
}

/* PyTorch gives cuBLAS all of its first segment, which says so, takes it back and keeps a gradient
 * of 1 MiB there. An engine's buffer in the second one stays the engine's. */
static void test_a_label_of_a_whole_segment_lasts_as_long_as_its_block(void **state)
{
    struct story story = {0};
    uint64_t bytes[MT_CATEGORY_END];
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x100000, 4 * MIB);
    say(&story, MT_EVENT_LABEL, 0x100000, 4 * MIB, MT_CATEGORY_WORKSPACE, "cuBLAS workspace");
    struct mt_torch *torch = traced("s 0 2 100000 4194304\n"
                                    "a 0 2 100000 4194304\n"
                                    "f 0 5 100000\n"
                                    "a 0 6 100000 1048576\n"
                                    "h 6 100000 training gradients\n"
                                    "s 0 4 900000 2097152\n"
                                    "a 0 4 900000 2097152\n");
    mt_device_tell_torch(&story.devices, torch);
    rows_by(&story, torch, bytes);
    assert_int_equal(bytes[MT_CATEGORY_WORKSPACE], 4 * MIB);
    take(&story, MT_DEVICE_LINEAR, 0x900000, 2 * MIB);
    tell(&story, MT_EVENT_BUFFER_ALLOC, 7, 0x900000, 2 * MIB, 0);
    say(&story, MT_EVENT_LABEL, 0x900000, 2 * MIB, MT_CATEGORY_WEIGHTS, "parameters");
    rows_by(&story, torch, bytes);
    assert_int_equal(bytes[MT_CATEGORY_WORKSPACE], 0);
    assert_int_equal(bytes[MT_CATEGORY_TRAINING], 1 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 3 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_WEIGHTS], 2 * MIB);
    mt_torch_close(torch);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

static uint64_t claimed(const struct mt_claims *claims, const char *name)
{
    for (size_t i = 1; i < claims->n; i++)
        if (strstr(claims->items[i].name, name))
            return claims->items[i].resident_bytes;
    return 0;
}

/* The driver's word rises by 30 while a graph is made and by 20 while a kernel is loaded. It rose
 * by 40 between calls, which no call explains, and comes to the same height twice. */
static void test_what_the_driver_takes_is_told_by_the_call_around_it(void **state)
{
    struct story story = {0};
    struct mt_device_moment peak;
    struct mt_claims claims;
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 50 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 60 * MIB, MT_DEVICE_BY_CALL, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 100 * MIB, MT_DEVICE_BY_GRAPH, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 100 * MIB, MT_DEVICE_BEFORE, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 130 * MIB, MT_DEVICE_BY_GRAPH, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 130 * MIB, MT_DEVICE_BEFORE, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 150 * MIB, MT_DEVICE_BY_MODULE, 0);
    uint64_t first_ns = story.ns;
    tell(&story, MT_EVENT_DEVICE_USED, 0, 150 * MIB, MT_DEVICE_BY_CALL, 0);
    assert_int_equal(mt_device_peak(&story.devices, 0, &peak), 0);
    assert_int_equal(peak.ns, first_ns);
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&story.devices, 0, &peak, 1, NULL, &claims), 0);
    assert_int_equal(claimed(&claims, "as graphs were made"), 30 * MIB);
    assert_int_equal(claimed(&claims, "as kernels were loaded"), 20 * MIB);
    assert_int_equal(claimed(&claims, "less what was allocated"), 50 * MIB);
    mt_claims_finish(&claims);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

#define SECOND UINT64_C(1000000000)

static void others_at(struct story *story, uint64_t bytes, uint64_t ns)
{
    assert_int_equal(mt_device_take_others(&story->devices, "GPU-1", bytes, ns), 0);
}

static struct mt_device_moment moment_at(const struct story *story, uint64_t ns)
{
    struct mt_device_moment moment;
    assert_int_equal(mt_device_at(&story->devices, 0, ns, &moment), 0);
    return moment;
}

/* A process of 50 MiB on a card of which 300 are used, 220 of them by others. */
static void test_what_others_use_is_told_apart(void **state)
{
    struct story story = {0};
    struct mt_device_moment peak;
    struct mt_claims claims;
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 50 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 300 * MIB, MT_DEVICE_BY_CALL, 0);
    story.ns = 2 * SECOND;
    end(&story);
    others_at(&story, 220 * MIB, SECOND);
    assert_int_equal(mt_device_take_others(&story.devices, "GPU-2", MIB, SECOND), 0);
    assert_int_equal(story.devices.n_others, 1);
    assert_int_equal(mt_device_peak(&story.devices, 0, &peak), 0);
    assert_int_equal(mt_device_taken(&peak), 80 * MIB);
    assert_int_equal(mt_device_others(&peak), 220 * MIB);
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&story.devices, 0, &peak, 1, NULL, &claims), 0);
    assert_int_equal(claimed(&claims, "used by the driver for these processes"), 30 * MIB);
    mt_claims_finish(&claims);
    mt_devices_finish(&story.devices);
    (void)state;
}

/* A process that was attached to: nobody says what its memory is for. */
static void test_what_is_seen_from_outside_is_held_and_not_told_what_for(void **state)
{
    static const uint64_t held[] = {500 * MIB, 800 * MIB, 700 * MIB, 0};
    struct mt_device_sight sight = {"GPU-9", "card", 4096 * MIB, 0};
    struct mt_devices devices = {0};
    struct mt_device_moment moment;
    struct mt_claims claims;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        sight.bytes = held[i];
        assert_int_equal(mt_device_take_seen(&devices, &sight, (i + 1) * SECOND), 0);
    }
    assert_int_equal(mt_device_take_others(&devices, "GPU-9", 30 * MIB, SECOND), 0);
    assert_int_equal(devices.n_places, 1);
    assert_int_equal(devices.places[0].total_bytes, 4096 * MIB);
    assert_int_equal(mt_device_peak(&devices, 0, &moment), 0);
    assert_int_equal(moment.ns, 2 * SECOND);
    assert_int_equal(moment.seen_bytes, 800 * MIB);
    assert_int_equal(mt_device_others(&moment), 30 * MIB);
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&devices, 0, &moment, 1, NULL, &claims), 0);
    assert_int_equal(claims.items[0].resident_bytes, 800 * MIB);
    assert_int_equal(claims.n, 1);
    mt_claims_finish(&claims);
    assert_int_equal(mt_device_at(&devices, 0, 9 * SECOND, &moment), 0);
    assert_int_equal(moment.seen_bytes, 0);
    mt_devices_finish(&devices);
}

/* The card is fullest while another program is there, the process has most later. */
static void test_the_peak_is_the_recorded_processes_own(void **state)
{
    struct story story = {0};
    struct mt_device_moment peak;
    begin(&story, 1);
    take(&story, MT_DEVICE_LINEAR, 0x1000, 10 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 900 * MIB, MT_DEVICE_BY_CALL, 0);
    story.ns = 2 * SECOND;
    take(&story, MT_DEVICE_LINEAR, 0x9000000, 90 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 120 * MIB, MT_DEVICE_BY_CALL, 0);
    story.ns = 3 * SECOND;
    end(&story);
    others_at(&story, 870 * MIB, SECOND);
    others_at(&story, 0, SECOND + SECOND / 2);
    assert_int_equal(mt_device_peak(&story.devices, 0, &peak), 0);
    assert_int_equal(mt_device_taken(&peak), 120 * MIB);
    assert_int_equal(mt_device_others(&peak), 0);
    struct mt_device_moment early = moment_at(&story, SECOND);
    assert_int_equal(mt_device_taken(&early), 30 * MIB);
    mt_devices_finish(&story.devices);
    (void)state;
}

/* Others have gone since they were looked at: what was allocated is still the process's. */
static void test_what_was_allocated_is_never_others(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    take(&story, MT_DEVICE_POOLED, 0x1000, 20 * MIB);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, 77, 64 * MIB, 0);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, MT_DEVICE_POOL_OF_GRAPHS, 8 * MIB, 0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 100 * MIB, MT_DEVICE_BY_CALL, 0);
    uint64_t ns = story.ns;
    story.ns = SECOND;
    end(&story);
    others_at(&story, 500 * MIB, 1);
    struct mt_device_moment moment = moment_at(&story, ns);
    assert_int_equal(mt_device_taken(&moment), 72 * MIB);
    assert_int_equal(mt_device_others(&moment), 28 * MIB);
    uint64_t bytes[MT_CATEGORY_END] = {0};
    struct mt_claims claims;
    assert_int_equal(mt_claims_init(&claims), 0);
    assert_int_equal(mt_device_claims(&story.devices, 0, &moment, 0, NULL, &claims), 0);
    for (size_t i = 1; i < claims.n; i++)
        bytes[claims.items[i].category] += claims.items[i].resident_bytes;
    assert_int_equal(bytes[MT_CATEGORY_GRAPHS], 8 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 64 * MIB);
    mt_claims_finish(&claims);
    mt_devices_finish(&story.devices);
    (void)state;
}

static void test_a_pool_goes_with_its_process(void **state)
{
    struct story story = {0};
    begin(&story, 1);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, 77, 32 * MIB, 0);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, 77, 64 * MIB, 0);
    assert_int_equal(moment_at(&story, story.ns).reserved_bytes, 64 * MIB);
    end(&story);
    begin(&story, 2);
    tell(&story, MT_EVENT_DEVICE_POOL, 0, 77, 6 * MIB, 0);
    assert_int_equal(moment_at(&story, story.ns).reserved_bytes, 6 * MIB);
    end(&story);
    assert_int_equal(moment_at(&story, story.ns).reserved_bytes, 0);
    mt_devices_finish(&story.devices);
    (void)state;
}

/* The driver took 66 while an array of 64 was made, which has gone at the end. */
static void test_an_array_is_memory_until_it_is_destroyed(void **state)
{
    struct story story = {0};
    uint64_t bytes[MT_CATEGORY_END];
    begin(&story, 1);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 100 * MIB, MT_DEVICE_BEFORE, 0);
    take(&story, MT_DEVICE_ARRAY, 0xa0, 64 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 166 * MIB, MT_DEVICE_BY_ARRAY, 0);
    rows_now(&story, bytes);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 66 * MIB);
    assert_int_equal(bytes[MT_CATEGORY_CONTEXT], 100 * MIB);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 166 * MIB, MT_DEVICE_BEFORE, 0);
    give(&story, MT_DEVICE_ARRAY, 0xa0);
    tell(&story, MT_EVENT_DEVICE_USED, 0, 100 * MIB, MT_DEVICE_BY_ARRAY, 0);
    rows_now(&story, bytes);
    assert_int_equal(bytes[MT_CATEGORY_CACHED], 0);
    assert_int_equal(bytes[MT_CATEGORY_CONTEXT], 100 * MIB);
    end(&story);
    mt_devices_finish(&story.devices);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_there_until_it_is_given_back),
        cmocka_unit_test(test_what_is_asked_for_again_is_told_apart_from_others),
        cmocka_unit_test(test_an_address_that_is_given_out_again_was_given_back_unseen),
        cmocka_unit_test(test_physical_memory_goes_with_its_last_handle_and_mapping),
        cmocka_unit_test(test_one_unmapping_may_end_several_mappings),
        cmocka_unit_test(test_what_is_imported_or_the_hosts_is_none_of_the_devices),
        cmocka_unit_test(test_a_reset_and_an_end_give_all_back_of_their_process_alone),
        cmocka_unit_test(test_the_peak_is_where_the_driver_said_most),
        cmocka_unit_test(test_an_engines_buffer_says_what_memory_is_for),
        cmocka_unit_test(test_a_library_that_asks_says_what_memory_is_for),
        cmocka_unit_test(test_a_label_says_what_an_allocation_is_for),
        cmocka_unit_test(test_a_label_of_a_whole_segment_lasts_as_long_as_its_block),
        cmocka_unit_test(test_what_the_driver_takes_is_told_by_the_call_around_it),
        cmocka_unit_test(test_what_others_use_is_told_apart),
        cmocka_unit_test(test_what_is_seen_from_outside_is_held_and_not_told_what_for),
        cmocka_unit_test(test_the_peak_is_the_recorded_processes_own),
        cmocka_unit_test(test_what_was_allocated_is_never_others),
        cmocka_unit_test(test_a_pool_goes_with_its_process),
        cmocka_unit_test(test_an_array_is_memory_until_it_is_destroyed),
        cmocka_unit_test(test_events_that_make_no_sense_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
