/* SPDX-License-Identifier: MIT */
/* What every hook asks: whether there is a rehearsal, where a type's memory is, and how an object
 * of the engine is called. */
#include "hooks.h"

#include <string.h>

#include "rehearse/account_write.h"

#define NAMES_MAX 64u

struct mt_account *rehearsal(void)
{
    return pretend_account();
}

/* ggml calls only memory "host" that any code may read: the processor's own layouts (CPU_REPACK,
 * AMX) are not that, but their device is the processor. */
enum memory_place memory_of_type(struct engine *engine, void *type)
{
    enum { DEVICE_IS_CPU = 0 };
    if (is_pretended(type))
        return MEMORY_PRETENDED;
    void *device = real_ggml_backend_buft_get_device(engine)
                       ? real_ggml_backend_buft_get_device(engine)(type)
                       : NULL;
    if (device && real_ggml_backend_dev_type(engine))
        return real_ggml_backend_dev_type(engine)(device) == DEVICE_IS_CPU ? MEMORY_HOST
                                                                           : MEMORY_FOREIGN;
    if (real_ggml_backend_buft_is_host(engine) && real_ggml_backend_buft_is_host(engine)(type))
        return MEMORY_HOST;
    return MEMORY_FOREIGN;
}

uint32_t place_of_type(struct engine *engine, void *type)
{
    struct mt_account *account = rehearsal();
    if (!account || !is_pretended(type) || !real_ggml_backend_buft_name(engine))
        return MT_ACCOUNT_HOST;
    const char *name = real_ggml_backend_buft_name(engine)(type);
    for (uint32_t i = 0; i < account->n_devices; i++)
        if (strcmp(account->device[i].name, name) == 0)
            return i;
    return MT_ACCOUNT_HOST;
}

/* Written by few threads and seldom; a name that is being replaced may be read half. A slot without
 * an object is empty. */
static struct {
    const void *object;
    char name[64];
} names[NAMES_MAX];
static uint32_t n_names;

static uint32_t slot_of(const void *object)
{
    uint32_t at = 0;
    while (at < NAMES_MAX && __atomic_load_n(&names[at].object, __ATOMIC_ACQUIRE) != object)
        at++;
    return at;
}

void name_object(const void *object, const char *name)
{
    uint32_t at = slot_of(object);
    if (at == NAMES_MAX)
        at = slot_of(NULL);
    if (at == NAMES_MAX)
        at = __atomic_fetch_add(&n_names, 1, __ATOMIC_RELAXED) % NAMES_MAX;
    size_t length = strnlen(name, sizeof names[at].name - 1);
    memcpy(names[at].name, name, length);
    memset(names[at].name + length, 0, sizeof names[at].name - length);
    __atomic_store_n(&names[at].object, object, __ATOMIC_RELEASE);
}

const char *object_name(const void *object)
{
    uint32_t at = object ? slot_of(object) : NAMES_MAX;
    return at < NAMES_MAX ? names[at].name : NULL;
}

void forget_object(const void *object)
{
    uint32_t at = object ? slot_of(object) : NAMES_MAX;
    if (at < NAMES_MAX)
        __atomic_store_n(&names[at].object, NULL, __ATOMIC_RELEASE);
}

/* Anything here may be the first that the process runs of this object. */
__attribute__((constructor)) static void count_process(void)
{
    struct mt_account *account = rehearsal();
    if (account)
        __atomic_fetch_add(&account->n_preloaded, 1, __ATOMIC_RELAXED);
    pretend_begin_image();
    hooks_heap_start();
}
