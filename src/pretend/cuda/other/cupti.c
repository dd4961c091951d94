/* SPDX-License-Identifier: MIT */
/* CUPTI: a profiler may ask for activities, and none ever comes. No kernel runs, so that there is
 * nothing to tell; programs that profile go on and find no events of devices. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "pretend/cuda/call.h"

enum { SUCCESS = 0, INVALID_PARAMETER = 1, MAX_LIMIT_REACHED = 12, QUEUE_EMPTY = 18 };

#define ATTRIBUTES_MAX 32
#define CORRELATIONS   64

static __thread uint64_t correlation[CORRELATIONS];
static __thread int n_correlations;
static uint64_t attributes[ATTRIBUTES_MAX];

/* The version of the headers that a toolkit's CUPTI comes with. */
CALL(cuptiGetVersion, (uint32_t * version), {
    if (!version)
        return INVALID_PARAMETER;
    *version = CUPTI_VERSION;
    return SUCCESS;
})

CALL(cuptiGetResultString, (int result, const char **text), {
    if (!text)
        return INVALID_PARAMETER;
    *text = result == SUCCESS             ? "CUPTI_SUCCESS"
            : result == INVALID_PARAMETER ? "CUPTI_ERROR_INVALID_PARAMETER"
            : result == MAX_LIMIT_REACHED ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
            : result == QUEUE_EMPTY       ? "CUPTI_ERROR_QUEUE_EMPTY"
                                          : "CUPTI_ERROR_NOT_SUPPORTED";
    return SUCCESS;
})

CALL(cuptiGetCallbackName, (unsigned domain, uint32_t callback, const char **name), {
    (void)domain;
    (void)callback;
    if (!name)
        return INVALID_PARAMETER;
    *name = "";
    return SUCCESS;
})

CALL(cuptiGetTimestamp, (uint64_t * timestamp), {
    struct timespec now;
    if (!timestamp)
        return INVALID_PARAMETER;
    clock_gettime(CLOCK_REALTIME, &now);
    *timestamp = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return SUCCESS;
})

CALL(cuptiSubscribe, (void **subscriber, void *callback, void *data), {
    static int only;
    (void)data;
    if (!subscriber || !callback)
        return INVALID_PARAMETER;
    *subscriber = &only;
    return SUCCESS;
})

CALL(cuptiActivityGetNextRecord, (uint8_t * buffer, size_t bytes, void **record), {
    (void)bytes;
    return !buffer || !record ? INVALID_PARAMETER : MAX_LIMIT_REACHED;
})

CALL(cuptiActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *dropped), {
    (void)context;
    (void)stream;
    if (!dropped)
        return INVALID_PARAMETER;
    *dropped = 0;
    return SUCCESS;
})

CALL(cuptiActivitySetAttribute, (unsigned attribute, size_t *bytes, const void *value), {
    if (!bytes || !value || attribute >= ATTRIBUTES_MAX)
        return INVALID_PARAMETER;
    attributes[attribute] = 0;
    memcpy(&attributes[attribute], value, *bytes < 8 ? *bytes : 8);
    return SUCCESS;
})

CALL(cuptiActivityGetAttribute, (unsigned attribute, size_t *bytes, void *value), {
    if (!bytes || !value || attribute >= ATTRIBUTES_MAX)
        return INVALID_PARAMETER;
    memcpy(value, &attributes[attribute], *bytes < 8 ? *bytes : 8);
    return SUCCESS;
})

/* A thread's own stack; what goes past its end is only counted. */
CALL(cuptiActivityPushExternalCorrelationId, (unsigned kind, uint64_t id), {
    (void)kind;
    if (n_correlations < CORRELATIONS)
        correlation[n_correlations] = id;
    n_correlations++;
    return SUCCESS;
})

CALL(cuptiActivityPopExternalCorrelationId, (unsigned kind, uint64_t *id), {
    (void)kind;
    if (n_correlations == 0)
        return QUEUE_EMPTY;
    n_correlations--;
    if (id)
        *id = n_correlations < CORRELATIONS ? correlation[n_correlations] : 0;
    return SUCCESS;
})

CALL(cuptiGetLastError, (void), return SUCCESS;)
