/* SPDX-License-Identifier: MIT */
/* cuGetProcAddress: a function by its name and the CUDA version that the asker was built for.
 *
 * A name may stand for several forms with different arguments; the newest that the asker and the
 * driver know is given. This file includes no declaration of those functions: here they are
 * addresses only. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "world.h"

#define PER_THREAD_DEFAULT_STREAM 2u /* of the flags of cuGetProcAddress */

enum query_result { QUERY_FOUND, QUERY_NOT_FOUND, QUERY_VERSION_NOT_SUFFICIENT };

#define CALL(symbol, ...)    int symbol(void);
#define MISSING(symbol, ...) int symbol(void);
#define TWIN(symbol, ...)    int symbol(void);
#define ALSO(...)
#include "driver.def"
#undef CALL
#undef MISSING
#undef TWIN
#undef ALSO

struct form {
    const char *name;
    int version;
    int is_per_thread;
    int (*function)(void);
};

static struct form forms[] = {
#define CALL(symbol, name, version)     {#name, version, 0, symbol},
#define MISSING(symbol, name, version)  {#name, version, 0, symbol},
#define TWIN(symbol, of, name, version) {#name, version, 1, symbol},
#define ALSO(symbol, name, version)     {#name, version, 0, symbol},
#include "driver.def"
};
#define N_FORMS (sizeof forms / sizeof *forms)

static int by_name_and_version(const void *a, const void *b)
{
    const struct form *one = a, *other = b;
    int order = strcmp(one->name, other->name);
    return order ? order : one->version - other->version;
}

static void sort_forms(void)
{
    qsort(forms, N_FORMS, sizeof *forms, by_name_and_version);
}

/* Where the forms of a name begin, or would. */
static size_t first_of(const char *name)
{
    struct mt_bisect place = {.end = N_FORMS};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, strcmp(forms[place.middle].name, name) < 0);
    return place.first;
}

static enum query_result look_up(const char *name, int version, int is_per_thread, void **function)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct mt_account_cuda *cuda = pretend_cuda_account();
    int driver = cuda ? (int)cuda->driver_version : 0;
    const struct form *plain = NULL, *twin = NULL;
    int is_known = 0;
    pthread_once(&once, sort_forms);
    for (size_t i = first_of(name); i < N_FORMS && strcmp(forms[i].name, name) == 0; i++) {
        if (forms[i].version > driver)
            break;
        is_known = 1;
        if (forms[i].version <= version)
            *(forms[i].is_per_thread ? &twin : &plain) = &forms[i];
    }
    if (!plain)
        return is_known ? QUERY_VERSION_NOT_SUFFICIENT : QUERY_NOT_FOUND;
    if (is_per_thread && twin && twin->version >= plain->version)
        plain = twin;
    memcpy(function, &plain->function, sizeof *function);
    return QUERY_FOUND;
}

CUresult pretend_find(const char *name, void **function, int version, uint64_t flags, int *query)
{
    enum query_result result;
    if (!name || !function || flags > PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    result = look_up(name, version, flags == PER_THREAD_DEFAULT_STREAM, function);
    if (query)
        *query = (int)result;
    return result == QUERY_FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
