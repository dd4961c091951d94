/* SPDX-License-Identifier: MIT */
/* A device without memory as a backend: pages and addresses are numbers, and each step is held
 * against the rules that a driver would enforce. */
#include <memtally/pool.h>

#include <stdlib.h>

#include "base/error.h"

#define FIRST_ADDRESS ((uint64_t)1 << 40)
#define STREAMS       64

struct stream {
    uint64_t stream;
    uint64_t recorded; /* events so far */
    uint64_t finished;
};

struct mt_pool_simulated {
    struct mt_pool_backend backend;
    struct mt_pool_backend segments;
    uint64_t capacity_pages;
    uint64_t *at;          /* of each page: 0 not made, 1 attached nowhere, else its address */
    uint64_t first_unmade; /* no page before it is unmade */
    uint64_t next_address;
    uint64_t n_broken;
    uint64_t n_reserved, n_made, n_events;
    struct stream streams[STREAMS];
    size_t n_streams;
};

static int broken(struct mt_pool_simulated *device)
{
    device->n_broken++;
    return MT_EARG;
}

static int reserve(void *context, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_simulated *device = context;
    *address = device->next_address;
    device->next_address += bytes;
    device->n_reserved++;
    return MT_OK;
}

static void unreserve(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_simulated *device = context;
    device->n_reserved--;
    for (uint64_t i = 0; i < device->capacity_pages; i++)
        if (device->at[i] >= address && device->at[i] < address + bytes)
            broken(device);
}

static int create(void *context, uint64_t *page)
{
    struct mt_pool_simulated *device = context;
    uint64_t i = device->first_unmade;
    while (i < device->capacity_pages && device->at[i])
        i++;
    device->first_unmade = i;
    if (i == device->capacity_pages)
        return MT_ENOMEM;
    device->at[i] = 1;
    device->n_made++;
    *page = i;
    return MT_OK;
}

static void destroy(void *context, uint64_t page)
{
    struct mt_pool_simulated *device = context;
    if (page >= device->capacity_pages || device->at[page] != 1) {
        broken(device);
        return;
    }
    device->at[page] = 0;
    device->n_made--;
    if (page < device->first_unmade)
        device->first_unmade = page;
}

static int attach(void *context, uint64_t address, uint64_t page)
{
    struct mt_pool_simulated *device = context;
    if (address % device->backend.page_bytes || page >= device->capacity_pages ||
        device->at[page] != 1)
        return broken(device);
    device->at[page] = address;
    return MT_OK;
}

static int enable(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_simulated *device = context;
    uint64_t page_bytes = device->backend.page_bytes;
    return address % page_bytes || bytes % page_bytes || !bytes ? broken(device) : MT_OK;
}

static int detach(void *context, uint64_t address, uint64_t page)
{
    struct mt_pool_simulated *device = context;
    if (page >= device->capacity_pages || device->at[page] != address)
        return broken(device);
    device->at[page] = 1;
    return MT_OK;
}

static int copy(void *context, uint64_t address, void *host, uint64_t bytes, int is_back)
{
    struct mt_pool_simulated *device = context;
    uint64_t n = 0;
    (void)host;
    (void)is_back;
    for (uint64_t i = 0; i < device->capacity_pages; i++)
        n += device->at[i] >= address && device->at[i] < address + bytes;
    return n == bytes / device->backend.page_bytes ? MT_OK : broken(device);
}

/* A segment is pages of the device in a row of addresses. */
static int take(void *context, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_simulated *device = context;
    uint64_t page_bytes = device->backend.page_bytes, page;
    if (!bytes || bytes % page_bytes)
        return broken(device);
    *address = device->next_address;
    uint64_t at = *address;
    for (; at < *address + bytes && create(device, &page) == MT_OK; at += page_bytes)
        device->at[page] = at;
    if (at < *address + bytes) {
        for (uint64_t i = 0; i < device->capacity_pages; i++)
            if (device->at[i] >= *address) {
                device->at[i] = 1;
                destroy(device, i);
            }
        return MT_ENOMEM;
    }
    device->next_address += bytes + page_bytes;
    return MT_OK;
}

static void give(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_simulated *device = context;
    uint64_t page_bytes = device->backend.page_bytes, n = 0, more = 0;
    for (uint64_t i = 0; i < device->capacity_pages; i++) {
        if (device->at[i] >= address && device->at[i] < address + bytes) {
            device->at[i] = 1;
            destroy(device, i);
            n++;
        }
        /* A whole segment: another begins a page later at the earliest. */
        more += device->at[i] == address + bytes ||
                (device->at[i] > 1 && device->at[i] + page_bytes == address);
    }
    if (n != bytes / page_bytes || more)
        broken(device);
}

static struct stream *stream_of(struct mt_pool_simulated *device, uint64_t stream)
{
    for (size_t i = 0; i < device->n_streams; i++)
        if (device->streams[i].stream == stream)
            return &device->streams[i];
    if (device->n_streams == STREAMS)
        return NULL;
    device->streams[device->n_streams].stream = stream;
    return &device->streams[device->n_streams++];
}

/* An event is the number of its stream's entry and how many the stream had before. */
static int record(void *context, uint64_t stream, uint64_t *event)
{
    struct mt_pool_simulated *device = context;
    struct stream *entry = stream_of(device, stream);
    if (!entry)
        return MT_ELIMIT;
    *event = ++entry->recorded * STREAMS + (uint64_t)(entry - device->streams);
    device->n_events++;
    return MT_OK;
}

static int query(void *context, uint64_t event, int wait)
{
    struct mt_pool_simulated *device = context;
    struct stream *entry = &device->streams[event % STREAMS];
    if (wait && entry->finished < event / STREAMS)
        entry->finished = event / STREAMS;
    return entry->finished >= event / STREAMS;
}

static void forget(void *context, uint64_t event)
{
    (void)event;
    ((struct mt_pool_simulated *)context)->n_events--;
}

int mt_pool_simulated_create(uint64_t capacity_bytes, uint64_t page_bytes,
                             struct mt_pool_simulated **device, struct mt_error *error)
{
    if (page_bytes < 65536 || page_bytes & (page_bytes - 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the pages of a simulated device are a power of two of at least 64 KiB");
    struct mt_pool_simulated *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a simulated device");
    made->capacity_pages = capacity_bytes / page_bytes;
    made->at = calloc((size_t)made->capacity_pages + 1, sizeof *made->at);
    if (!made->at) {
        free(made);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a simulated device");
    }
    made->next_address = FIRST_ADDRESS;
    made->backend = (struct mt_pool_backend){.context = made,
                                             .page_bytes = page_bytes,
                                             .reserve = reserve,
                                             .unreserve = unreserve,
                                             .create = create,
                                             .destroy = destroy,
                                             .attach = attach,
                                             .enable = enable,
                                             .detach = detach,
                                             .record = record,
                                             .query = query,
                                             .forget = forget,
                                             .copy = copy};
    made->segments = (struct mt_pool_backend){.context = made,
                                              .page_bytes = page_bytes,
                                              .record = record,
                                              .query = query,
                                              .forget = forget,
                                              .take = take,
                                              .give = give};
    *device = made;
    return MT_OK;
}

uint64_t mt_pool_simulated_destroy(struct mt_pool_simulated *device)
{
    if (!device)
        return 0;
    uint64_t n = device->n_broken + device->n_reserved + device->n_made + device->n_events;
    free(device->at);
    free(device);
    return n;
}

const struct mt_pool_backend *mt_pool_simulated_backend(struct mt_pool_simulated *device)
{
    return &device->backend;
}

const struct mt_pool_backend *mt_pool_simulated_segments(struct mt_pool_simulated *device)
{
    return &device->segments;
}

void mt_pool_simulated_complete(struct mt_pool_simulated *device, uint64_t stream)
{
    struct stream *entry = stream_of(device, stream);
    if (entry)
        entry->finished = entry->recorded;
}
