/* SPDX-License-Identifier: MIT */
/* Loads a second buffer only where there is room for it, and gives a cache back where memory runs
 * short:
 *
 *     cc monitor.c $(pkg-config --cflags --libs memtally) */
#include <memtally/error.h>
#include <memtally/monitor.h>
#include <memtally/units.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_BYTES  ((size_t)64 << 20)
#define BUFFER_BYTES ((uint64_t)16 << 20)

static void *cache;

static uint64_t drop_cache(void *context)
{
    (void)context;
    uint64_t bytes = cache ? CACHE_BYTES : 0;
    free(cache);
    cache = NULL;
    return bytes;
}

int main(void)
{
    struct mt_monitor_source source;
    struct mt_monitor_options options = {.cleanup_ratio = 0.85};
    struct mt_monitor *monitor;
    struct mt_monitor_snapshot now;
    struct mt_monitor_cleanup cleanup;
    struct mt_error error;
    if (mt_monitor_open_source("host", &source, &error) != MT_OK ||
        mt_monitor_create(&source, &options, &monitor, &error) != MT_OK ||
        mt_monitor_add_cleanup(monitor, "cache", drop_cache, NULL, 0, NULL, &error) != MT_OK ||
        mt_monitor_record(monitor, &now, &error) != MT_OK) {
        fprintf(stderr, "monitor: %s\n", error.text);
        return 2;
    }
    printf("pressure is %s; %" PRIu64 " MiB can be had; a buffer fits: %s\n",
           mt_pressure_name(now.pressure), now.available_bytes >> 20,
           mt_monitor_can_allocate(monitor, BUFFER_BYTES, 0.1) ? "yes" : "no");
    cache = malloc(CACHE_BYTES);
    if (cache)
        memset(cache, 1, CACHE_BYTES);
    /* A service leaves this to mt_monitor_record(), which cleans up from 85 % on. */
    if (mt_monitor_cleanup(monitor, MT_UNKNOWN, &cleanup, &error) == MT_OK)
        printf("%s gave %" PRIu64 " MiB back\n", cleanup.calls[0].name,
               cleanup.calls[0].freed_bytes >> 20);
    mt_monitor_destroy(monitor);
    drop_cache(NULL);
    return 0;
}
