/* SPDX-License-Identifier: MIT */
/* cuRAND's host interface: generators that keep their settings and generate nothing.
 */
#include <stdlib.h>

#include "math.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/unknown.h"

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 101,
    ALLOCATION_FAILED = 102,
    TYPE_ERROR = 103,
    OUT_OF_RANGE = 104
};
enum { TYPE, ORDERING, DIMENSIONS, IS_HOST };

typedef struct pretend_math_object object;

static int create(object **made, int type, int is_host)
{
    static int told;
    int status;
    if (!made)
        return NOT_INITIALIZED;
    if (type != 100 && type != 101 && type != 121 && type != 141 && type != 142 && type != 161 &&
        (type < 200 || type > 204))
        return TYPE_ERROR;
    status = pretend_math_create((void **)made, ALLOCATION_FAILED);
    if (status == SUCCESS) {
        (*made)->values[TYPE] = type;
        (*made)->values[IS_HOST] = is_host;
        pretend_unknown("a generator of cuRAND for its states", &told);
    }
    return status;
}

CALL(curandCreateGenerator, (object * *made, int type), return create(made, type, 0);)
CALL(curandCreateGeneratorHost, (object * *made, int type), return create(made, type, 1);)
CALL(curandDestroyGenerator, (object * of), {
    if (!of)
        return NOT_INITIALIZED;
    pretend_math_destroy(of);
    return SUCCESS;
})
CALL(curandSetStream, (object * of, CUstream stream), {
    if (!of)
        return NOT_INITIALIZED;
    of->stream = stream;
    return SUCCESS;
})

#define SETTING(name, type, place)                                                                 \
    CALL(curandSet##name, (object * of, type value), {                                             \
        if (!of)                                                                                   \
            return NOT_INITIALIZED;                                                                \
        of->values[place] = (int)value;                                                            \
        return SUCCESS;                                                                            \
    })
SETTING(GeneratorOrdering, int, ORDERING)
SETTING(PseudoRandomGeneratorSeed, unsigned long long, DIMENSIONS + 2)
SETTING(GeneratorOffset, unsigned long long, DIMENSIONS + 3)

CALL(curandSetQuasiRandomGeneratorDimensions, (object * of, unsigned dimensions), {
    if (!of)
        return NOT_INITIALIZED;
    if (dimensions < 1 || dimensions > 20000)
        return OUT_OF_RANGE;
    of->values[DIMENSIONS] = (int)dimensions;
    return SUCCESS;
})

/* The soname is the same in CUDA 12 and 13; 10.3.9 is of 12.8. */
CALL(curandGetVersion, (int *version), {
    if (!version)
        return OUT_OF_RANGE;
    *version = 10309;
    return SUCCESS;
})
CALL(curandGetProperty, (int property, int *value), {
    static const int parts[] = {10, 3, 9};
    if (!value || property < 0 || property > 2)
        return OUT_OF_RANGE;
    *value = parts[property];
    return SUCCESS;
})
