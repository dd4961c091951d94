/* SPDX-License-Identifier: MIT */
/* A device's card, and the band of what the driver takes of it. If we know only a size, the band
 * holds every card of about that size. */
#include "predict/driver.h"

#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#include "gpu/gpus.h"
#include "predict/term.h"

#define MIB 1048576.0

/* MiB for each multiprocessor, and what the high end has beside. */
struct kernels {
    double likely, low, high, more;
};

static struct kernels kernels_of(const struct mt_engine *engine, const char *key)
{
    char name[64];
    struct kernels kernels = {0};
    if (!key)
        return kernels;
    kernels.likely = mt_engine_real(engine, key, 0);
    snprintf(name, sizeof name, "%.48s.low", key);
    kernels.low = mt_engine_real(engine, name, kernels.likely);
    snprintf(name, sizeof name, "%.48s.high", key);
    kernels.high = mt_engine_real(engine, name, kernels.likely);
    snprintf(name, sizeof name, "%.48s.more", key);
    kernels.more = mt_engine_real(engine, name, 0);
    return kernels;
}

static struct mt_gpu_band sum_of(const struct mt_gpu_row *row, const struct kernels *kernels)
{
    double n = (double)row->gpu.multiprocessors * MIB;
    struct mt_gpu_band band = row->context;
    band.bytes += (uint64_t)(kernels->likely * n);
    band.low_bytes += (uint64_t)(kernels->low * n);
    band.high_bytes += (uint64_t)(kernels->high * n + kernels->more * MIB);
    return band;
}

/* What a context is, of a card: as measured of such ones, or by the law. */
static void explain(const struct mt_gpu_row *row, const struct kernels *kernels,
                    struct mt_driver *driver)
{
    int n;
    if (row->is_measured)
        n = snprintf(driver->formula, sizeof driver->formula, "%" PRIu64 " MiB of %s",
                     row->context.bytes >> 20, row->key);
    else
        n = snprintf(driver->formula, sizeof driver->formula,
                     "32.5 MiB + %" PRIu32 " * %" PRIu32 " threads * 1.85 KiB of %s",
                     row->gpu.multiprocessors, row->gpu.threads_most, row->key);
    if (kernels->likely > 0)
        snprintf(driver->formula + n, sizeof driver->formula - (size_t)n,
                 " + %" PRIu32 " * %.2f MiB of kernels", row->gpu.multiprocessors, kernels->likely);
}

/* Cards that a size may mean widen the band. */
static void widen(uint64_t bytes, const struct kernels *kernels, struct mt_driver *driver)
{
    struct mt_gpu_row row;
    for (const char *at = NULL; (at = mt_gpu_next(at, &row)) != NULL;) {
        if (!mt_gpu_may_be(&row, bytes))
            continue;
        struct mt_gpu_band band = sum_of(&row, kernels);
        if (band.low_bytes < driver->band.low_bytes)
            driver->band.low_bytes = band.low_bytes;
        if (band.high_bytes > driver->band.high_bytes)
            driver->band.high_bytes = band.high_bytes;
    }
    size_t used = strlen(driver->formula);
    snprintf(driver->formula + used, sizeof driver->formula - used,
             "; the band is of all cards of this size");
}

/* The card that the settings name, where they do. */
static int named(const struct mt_device_known *known, struct mt_gpu_row *row)
{
    return known && known->gpu[0] && !known->is_by_size &&
           mt_gpu_find(known->gpu, row, NULL) == 0 && !strcmp(row->kind, "cuda");
}

/* The article before the name of a card, whose first letter is read by its own name. */
static const char *article_of(const char *key)
{
    return strchr("AEFHILMNORSX", *key) ? "an" : "a";
}

static void note_size(const struct mt_gpu_row *row, uint64_t bytes, int is_sought,
                      struct mt_sheet *sheet)
{
    char size[MT_SIZE_TEXT];
    if (is_sought)
        mt_sheet_note(sheet,
                      "The driver's share is that of %s %s, whose size is nearest to the answer; "
                      "'--device CARD' gives that of another card.",
                      article_of(row->key), row->key);
    else
        mt_sheet_note(sheet,
                      "A device of %s is taken for %s %s; if it is another card, name it, because "
                      "the driver's share depends on it.",
                      mt_format_size(bytes, size), article_of(row->key), row->key);
}

void mt_driver_name_cards(struct mt_predict_settings *settings, struct mt_device_known *known,
                          struct mt_sheet *sheet)
{
    int is_cuda = !settings->device_kind || !strcmp(settings->device_kind, "cuda");
    for (size_t i = 0; i < settings->n_devices; i++) {
        struct mt_gpu_row row, other;
        int is_named =
            known[i].gpu[0] && !known[i].is_by_size && mt_gpu_find(known[i].gpu, &row, NULL) == 0;
        if (is_named && mt_gpu_has_other_size(known[i].gpu, &row, &other))
            mt_sheet_note(sheet, "%s is taken for %s; %s is another.", known[i].gpu, row.key,
                          other.key);
        if (!is_named && is_cuda &&
            mt_gpu_of_size(settings->device_bytes[i], NULL, &row, NULL) == 0)
            note_size(&row, settings->device_bytes[i], settings->sizes_are_sought, sheet);
        known[i].is_by_size = !is_named && is_cuda;
        int has_card = is_named || (is_cuda && !settings->sizes_are_sought);
        snprintf(known[i].gpu, sizeof known[i].gpu, "%s", has_card ? row.key : "");
    }
    settings->device_known = known;
}

void mt_driver_of(const struct mt_engine *engine, const struct mt_predict_settings *settings,
                  size_t device, const char *kernels_key, struct mt_driver *driver)
{
    const struct mt_device_known *known = settings->device_known && device < settings->n_devices
                                              ? &settings->device_known[device]
                                              : NULL;
    const struct kernels kernels = kernels_of(engine, kernels_key);
    uint64_t bytes = device < settings->n_devices ? settings->device_bytes[device] : 0;
    struct mt_gpu_row row;
    int is_named = named(known, &row);
    *driver = (struct mt_driver){.provenance = MT_PROVENANCE_DERIVED};
    if (!is_named)
        mt_gpu_of_size(bytes, NULL, &row, NULL);
    if (known && known->context_bytes) {
        row.context =
            (struct mt_gpu_band){known->context_bytes, known->context_bytes, known->context_bytes};
        row.is_measured = 1;
        driver->provenance = MT_PROVENANCE_CALIBRATED;
    }
    driver->band = sum_of(&row, &kernels);
    explain(&row, &kernels, driver);
    if (!is_named && !(known && known->context_bytes))
        widen(bytes, &kernels, driver);
}

void mt_driver_of_torch(const struct mt_predict_input *in, size_t device, int has_worked,
                        struct mt_driver *driver)
{
    const char *kind = in->settings->device_kind;
    if (!kind || !strcmp(kind, "cuda")) {
        mt_driver_of(in->engine, in->settings, device, has_worked ? "kernels" : NULL, driver);
        return;
    }
    uint64_t bytes = mt_engine_number(in->engine, "context", 0);
    *driver = (struct mt_driver){.band = {bytes, mt_engine_number(in->engine, "context.low", bytes),
                                          mt_engine_number(in->engine, "context.high", bytes)},
                                 .provenance = MT_PROVENANCE_INFERRED,
                                 .formula = "of the driver and its libraries"};
}

void mt_driver_write_torch(const struct mt_predict_input *in, int device, struct mt_sheet *sheet)
{
    struct mt_driver driver;
    mt_driver_of_torch(in, (size_t)device, 1, &driver);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = device,
                                         .category = MT_CATEGORY_CONTEXT,
                                         .name = "driver and modules",
                                         .rule = "context",
                                         .bytes = driver.band.bytes,
                                         .low_bytes = driver.band.low_bytes,
                                         .high_bytes = driver.band.high_bytes,
                                         .provenance = driver.provenance,
                                         .source = MT_DRIVER_SOURCE},
                 "%s", driver.formula);
}
