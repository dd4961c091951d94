/* SPDX-License-Identifier: MIT */
/* Devices over time, from the events of each process. Knows neither pages nor categories. */
#include "tally/devices.h"

#include <memtally/error_code.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define MOST_BYTES ((uint64_t)1 << 50) /* more than any device has */

void mt_device_pass_init(struct mt_device_pass *pass, struct mt_devices *devices, uint64_t pid)
{
    *pass = (struct mt_device_pass){.devices = devices,
                                    .pid = pid,
                                    .first_block = devices->n_blocks,
                                    .first_pool = devices->n_pools};
    for (size_t i = 0; i < MT_DEVICES_MAX; i++)
        pass->place_of[i] = MT_DEVICE_UNUSED;
    mt_table_init(&pass->by_object);
    mt_table_init(&pass->by_buffer);
    mt_ranges_init(&pass->mappings);
    mt_ranges_init(&pass->placed);
}

/* Devices whose UUID was not said are told apart by nothing: each is one of its own. */
static size_t find_place(const struct mt_devices *devices, const char *uuid)
{
    for (size_t i = 0; i < devices->n_places; i++)
        if (strcmp(devices->places[i].uuid, uuid) == 0 && strcmp(uuid, "?") != 0)
            return i;
    return devices->n_places;
}

static int add_place(struct mt_devices *devices, const char *uuid, const char *name,
                     uint64_t total_bytes)
{
    char *own_uuid = strdup(uuid);
    char *own_name = strdup(name);
    if (!own_uuid || !own_name || mt_array_grow(devices->places, devices->n_places) < 0) {
        free(own_uuid);
        free(own_name);
        return MT_ENOMEM;
    }
    devices->places[devices->n_places++] =
        (struct mt_device_place){own_uuid, own_name, total_bytes};
    return 0;
}

static int add_device(struct mt_device_pass *pass, const struct mt_event *event, const char *uuid,
                      const char *name)
{
    struct mt_devices *devices = pass->devices;
    size_t place = find_place(devices, uuid);
    if (event->field[0] >= MT_DEVICES_MAX || place >= MT_DEVICES_MAX)
        return 0;
    pass->place_of[event->field[0]] = place;
    return place < devices->n_places ? 0 : add_place(devices, uuid, name, event->field[1]);
}

static size_t place_of(const struct mt_device_pass *pass, uint64_t device)
{
    return device < MT_DEVICES_MAX ? pass->place_of[device] : MT_DEVICE_UNUSED;
}

static void link_block(struct mt_device_pass *pass, size_t index)
{
    struct mt_device_block *blocks = pass->devices->blocks;
    size_t *last = &pass->last_of[blocks[index].place];
    blocks[index].earlier = *last;
    if (*last)
        blocks[*last - 1].later = index + 1;
    *last = index + 1;
}

/* Whether the object of a block is where it lies in the device's addresses. */
static int has_place(const struct mt_device_block *block)
{
    return (block->kind == MT_DEVICE_LINEAR || block->kind == MT_DEVICE_MANAGED ||
            block->kind == MT_DEVICE_POOLED) &&
           block->bytes && block->bytes <= UINT64_MAX - block->address;
}

/* The block is gone. */
static void end_at(struct mt_device_pass *pass, size_t index, uint64_t ns)
{
    struct mt_device_block *blocks = pass->devices->blocks;
    struct mt_device_block *block = &blocks[index];
    uint64_t other;
    block->end_ns = ns;
    *(block->later ? &blocks[block->later - 1].earlier : &pass->last_of[block->place]) =
        block->earlier;
    if (block->earlier)
        blocks[block->earlier - 1].later = block->later;
    if (has_place(block))
        mt_ranges_clear(&pass->placed, block->address, block->address + block->bytes);
    if (mt_table_get(&pass->by_object, block->object, &other) && other == index)
        mt_table_take(&pass->by_object, block->object, NULL);
}

/* An object that is given out again was given back by a call that went unseen. */
static void end_block(struct mt_device_pass *pass, uint64_t object, uint64_t ns)
{
    uint64_t index;
    if (mt_table_get(&pass->by_object, object, &index))
        end_at(pass, (size_t)index, ns);
}

static int add_block(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    size_t place = place_of(pass, event->field[0]);
    if (place == MT_DEVICE_UNUSED || event->field[1] >= MT_DEVICE_KIND_END ||
        event->field[2] == UINT64_MAX || event->field[3] > MOST_BYTES)
        return 0;
    end_block(pass, event->field[2], ns);
    if (mt_array_grow(devices->blocks, devices->n_blocks) < 0 ||
        mt_table_set(&pass->by_object, event->field[2], devices->n_blocks) < 0)
        return MT_ENOMEM;
    devices->blocks[devices->n_blocks++] = (struct mt_device_block){
        .place = place,
        .pid = pass->pid,
        .kind = (enum mt_device_kind)event->field[1],
        .object = event->field[2],
        .address = event->field[2],
        .bytes = event->field[3],
        .begin_ns = ns,
        .end_ns = UINT64_MAX,
        .order = devices->n_events,
        .handles = 1,
    };
    link_block(pass, devices->n_blocks - 1);
    const struct mt_device_block *made = &devices->blocks[devices->n_blocks - 1];
    if (has_place(made))
        mt_ranges_set(&pass->placed, made->address, made->address + made->bytes,
                      devices->n_blocks - 1);
    return pass->placed.failed ? MT_ENOMEM : 0;
}

static struct mt_device_block *block_of(const struct mt_device_pass *pass, uint64_t object)
{
    uint64_t index;
    if (object == UINT64_MAX || !mt_table_get(&pass->by_object, object, &index))
        return NULL;
    return &pass->devices->blocks[index];
}

static void end_if_unheld(struct mt_device_pass *pass, struct mt_device_block *block, uint64_t ns)
{
    if (!block->handles && !block->mappings && block->end_ns == UINT64_MAX)
        end_at(pass, (size_t)(block - pass->devices->blocks), ns);
}

static void free_block(struct mt_device_pass *pass, uint64_t object, uint64_t ns)
{
    struct mt_device_block *block = block_of(pass, object);
    if (!block)
        return;
    block->handles -= block->handles > 0;
    end_if_unheld(pass, block, ns);
}

static void unmap(struct mt_device_pass *pass, uint64_t address, uint64_t length, uint64_t ns)
{
    uint64_t end = length > UINT64_MAX - address ? UINT64_MAX : address + length;
    struct mt_range range;
    while (mt_ranges_at_or_after(&pass->mappings, address, &range) && range.low < end) {
        struct mt_device_block *block = &pass->devices->blocks[range.value];
        mt_ranges_clear(&pass->mappings, range.low, range.high);
        block->mappings -= block->mappings > 0;
        end_if_unheld(pass, block, ns);
    }
}

static void map(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns)
{
    struct mt_device_block *block = block_of(pass, event->field[2]);
    uint64_t address = event->field[0];
    uint64_t length = event->field[1];
    if (!block || !length || length > UINT64_MAX - address)
        return;
    block->mappings++;
    block->address = address;
    unmap(pass, address, length, ns);
    mt_ranges_set(&pass->mappings, address, address + length,
                  (uint64_t)(block - pass->devices->blocks));
}

/* What is imported and what is the host's goes too: the process has no address for it any more. */
static void reset(struct mt_device_pass *pass, uint64_t device, uint64_t ns)
{
    size_t place = place_of(pass, device);
    while (place != MT_DEVICE_UNUSED && pass->last_of[place])
        end_at(pass, pass->last_of[place] - 1, ns);
}

static int add_use(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    size_t place = place_of(pass, event->field[0]);
    if (place == MT_DEVICE_UNUSED || event->field[2] >= MT_DEVICE_REASON_END)
        return 0;
    if (mt_array_grow(devices->uses, devices->n_uses) < 0)
        return MT_ENOMEM;
    devices->uses[devices->n_uses++] = (struct mt_device_use){
        .place = place,
        .pid = pass->pid,
        .ns = ns,
        .used_bytes = event->field[1],
        .order = devices->n_events,
        .reason = (enum mt_device_reason)event->field[2],
    };
    return 0;
}

static int add_refusal(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    size_t place = place_of(pass, event->field[0]);
    if (place == MT_DEVICE_UNUSED)
        return 0;
    if (mt_array_grow(devices->refusals, devices->n_refusals) < 0)
        return MT_ENOMEM;
    devices->refusals[devices->n_refusals++] =
        (struct mt_device_refusal){place, pass->pid, ns, event->field[2], event->field[3]};
    return 0;
}

static int add_pool(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    size_t place = place_of(pass, event->field[0]);
    if (place == MT_DEVICE_UNUSED || event->field[2] > MOST_BYTES)
        return 0;
    if (mt_array_grow(devices->pools, devices->n_pools) < 0)
        return MT_ENOMEM;
    devices->pools[devices->n_pools++] = (struct mt_device_pool){
        .place = place,
        .pid = pass->pid,
        .pool = event->field[1],
        .ns = ns,
        .order = devices->n_events,
        .reserved_bytes = event->field[2],
    };
    return 0;
}

static int name_block(struct mt_device_block *block, enum mt_category category, const char *name)
{
    char *own = strdup(name ? name : "buffer");
    if (!own)
        return MT_ENOMEM;
    free(block->name);
    block->name = own;
    block->category = category;
    return 0;
}

/* An engine made a buffer of what the driver gave it: at its address, or mapped there. */
static int name_buffer(struct mt_device_pass *pass, const struct mt_event *event, const char *name)
{
    struct mt_device_block *block = block_of(pass, event->field[1]);
    struct mt_range range;
    if (event->field[3] & MT_BUFFER_HOST || event->field[0] == UINT64_MAX)
        return 0;
    if (!block && mt_ranges_find(&pass->mappings, event->field[1], &range))
        block = &pass->devices->blocks[range.value];
    if (!block)
        return 0;
    enum mt_category category =
        event->field[4] < MT_CATEGORY_END ? (enum mt_category)event->field[4] : MT_CATEGORY_NONE;
    if (name_block(block, category, name) < 0)
        return MT_ENOMEM;
    return mt_table_set(&pass->by_buffer, event->field[0],
                        (uint64_t)(block - pass->devices->blocks));
}

static const struct mt_device_library libraries[] = {
#define LIBRARY(file, category, name) {file, MT_CATEGORY_##category, name},
#include "tally/libraries.def"
#undef LIBRARY
};

static void set_caller(struct mt_device_pass *pass, uint64_t object, const char *library)
{
    struct mt_device_block *block = block_of(pass, object);
    for (size_t i = 0; block && library && i < sizeof libraries / sizeof *libraries; i++)
        if (strncmp(library, libraries[i].file, strlen(libraries[i].file)) == 0) {
            block->library = &libraries[i];
            return;
        }
}

static struct mt_device_block *block_around(const struct mt_device_pass *pass, uint64_t address)
{
    struct mt_range range;
    if (mt_ranges_find(&pass->placed, address, &range) ||
        mt_ranges_find(&pass->mappings, address, &range))
        return &pass->devices->blocks[range.value];
    return NULL;
}

/* Others take the labels of the host's memory. */
static int add_label(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns,
                     const char *name)
{
    struct mt_devices *devices = pass->devices;
    struct mt_device_block *block = block_around(pass, event->field[0]);
    if (!block || event->field[2] >= MT_CATEGORY_END)
        return 0;
    int is_whole = block->address == event->field[0] && block->bytes <= event->field[1];
    if (is_whole && name_block(block, (enum mt_category)event->field[2], name) < 0)
        return MT_ENOMEM;
    char *own = strdup(name ? name : "label");
    if (!own || mt_array_grow(devices->labels, devices->n_labels) < 0) {
        free(own);
        return MT_ENOMEM;
    }
    devices->labels[devices->n_labels++] = (struct mt_device_label){
        pass->pid, ns, event->field[0], event->field[1], (enum mt_category)event->field[2], own};
    return 0;
}

static void set_usage(struct mt_device_pass *pass, uint64_t buffer, uint64_t usage)
{
    uint64_t index;
    if (buffer == UINT64_MAX || !mt_table_get(&pass->by_buffer, buffer, &index))
        return;
    struct mt_device_block *block = &pass->devices->blocks[index];
    if (block->category == MT_CATEGORY_NONE && usage == MT_USAGE_WEIGHTS)
        block->category = MT_CATEGORY_WEIGHTS;
}

int mt_device_take(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns,
                   const char *uuid, const char *name)
{
    struct mt_device_block *block;
    pass->devices->n_events++;
    switch (event->op) {
    case MT_EVENT_DEVICE:
        return add_device(pass, event, uuid, name);
    case MT_EVENT_DEVICE_ALLOC:
        return add_block(pass, event, ns);
    case MT_EVENT_DEVICE_FREE:
        free_block(pass, event->field[1], ns);
        return 0;
    case MT_EVENT_DEVICE_MAP:
        map(pass, event, ns);
        return pass->mappings.failed ? MT_ENOMEM : 0;
    case MT_EVENT_DEVICE_UNMAP:
        unmap(pass, event->field[0], event->field[1], ns);
        return pass->mappings.failed ? MT_ENOMEM : 0;
    case MT_EVENT_DEVICE_HELD:
        block = block_of(pass, event->field[0]);
        if (block)
            block->handles++;
        return 0;
    case MT_EVENT_DEVICE_USED:
        return add_use(pass, event, ns);
    case MT_EVENT_DEVICE_REFUSED:
        return add_refusal(pass, event, ns);
    case MT_EVENT_DEVICE_POOL:
        return add_pool(pass, event, ns);
    case MT_EVENT_BUFFER_ALLOC:
        return name_buffer(pass, event, name);
    case MT_EVENT_BUFFER_USAGE:
        set_usage(pass, event->field[0], event->field[1]);
        return 0;
    case MT_EVENT_DEVICE_CALLER:
        set_caller(pass, event->field[0], name);
        return 0;
    case MT_EVENT_LABEL:
        return add_label(pass, event, ns, name);
    case MT_EVENT_DEVICE_RESET:
        reset(pass, event->field[0], ns);
        return 0;
    default:
        return 0;
    }
}

/* The pools of a process go with it. */
static int end_pools(struct mt_device_pass *pass, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    int result = 0;
    for (size_t i = pass->first_pool, n = devices->n_pools; i < n && result == 0; i++) {
        struct mt_device_pool end = devices->pools[i];
        if (!end.reserved_bytes)
            continue;
        end.ns = ns;
        end.order = devices->n_events;
        end.reserved_bytes = 0;
        result = mt_array_grow(devices->pools, devices->n_pools);
        if (result == 0)
            devices->pools[devices->n_pools++] = end;
    }
    return result;
}

int mt_device_pass_finish(struct mt_device_pass *pass, uint64_t ns)
{
    struct mt_devices *devices = pass->devices;
    for (size_t i = pass->first_block; i < devices->n_blocks; i++)
        if (devices->blocks[i].end_ns == UINT64_MAX)
            devices->blocks[i].end_ns = ns;
    mt_table_finish(&pass->by_object);
    mt_table_finish(&pass->by_buffer);
    int failed = pass->mappings.failed | pass->placed.failed | (end_pools(pass, ns) < 0);
    mt_ranges_finish(&pass->mappings);
    mt_ranges_finish(&pass->placed);
    return failed ? MT_ENOMEM : 0;
}

int mt_device_take_others(struct mt_devices *devices, const char *uuid, uint64_t bytes, uint64_t ns)
{
    size_t place = find_place(devices, uuid);
    if (place == devices->n_places)
        return 0;
    if (mt_array_grow(devices->others, devices->n_others) < 0)
        return MT_ENOMEM;
    devices->others[devices->n_others++] = (struct mt_device_others){place, ns, bytes};
    return 0;
}

int mt_device_take_seen(struct mt_devices *devices, const struct mt_device_sight *sight,
                        uint64_t ns)
{
    size_t number = find_place(devices, sight->uuid);
    if (number >= MT_DEVICES_MAX)
        return 0;
    if (number == devices->n_places &&
        add_place(devices, sight->uuid, sight->name, sight->total_bytes) < 0)
        return MT_ENOMEM;
    if (mt_array_grow(devices->seen, devices->n_seen) < 0)
        return MT_ENOMEM;
    devices->seen[devices->n_seen++] = (struct mt_device_seen){number, ns, sight->bytes};
    return 0;
}

void mt_devices_finish(struct mt_devices *devices)
{
    for (size_t i = 0; i < devices->n_places; i++) {
        free(devices->places[i].uuid);
        free(devices->places[i].name);
    }
    free(devices->places);
    for (size_t i = 0; i < devices->n_blocks; i++)
        free(devices->blocks[i].name);
    free(devices->blocks);
    for (size_t i = 0; i < devices->n_labels; i++)
        free(devices->labels[i].name);
    free(devices->labels);
    free(devices->others);
    free(devices->seen);
    free(devices->pools);
    free(devices->uses);
    free(devices->refusals);
    *devices = (struct mt_devices){0};
}

int mt_device_block_counts(const struct mt_device_block *block)
{
    return block->kind != MT_DEVICE_IMPORTED && block->kind != MT_DEVICE_HOST &&
           block->kind != MT_DEVICE_REGISTERED;
}

int mt_device_block_is_there(const struct mt_device_block *block,
                             const struct mt_device_moment *moment)
{
    if (block->begin_ns > moment->ns || block->end_ns <= moment->ns)
        return 0;
    return block->begin_ns < moment->ns || block->order <= moment->order;
}

void mt_device_place_name(const struct mt_device_place *place, char name[MT_PLACE_NAME_BYTES])
{
    snprintf(name, MT_PLACE_NAME_BYTES, "gpu:%.50s", place->uuid);
}
