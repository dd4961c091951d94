/* SPDX-License-Identifier: MIT */
/* cuSOLVER's handles and settings. */
#include <stdlib.h>

#include "math.h"
#include "pretend/cuda/call.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3 };

typedef struct pretend_math_object object;

#define STREAM(library)                                                                            \
    CALL(cusolver##library##SetStream, (object * handle, CUstream stream), {                       \
        if (!handle)                                                                               \
            return NOT_INITIALIZED;                                                                \
        handle->stream = stream;                                                                   \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(cusolver##library##GetStream, (object * handle, CUstream * stream), {                     \
        if (!handle)                                                                               \
            return NOT_INITIALIZED;                                                                \
        if (!stream)                                                                               \
            return INVALID_VALUE;                                                                  \
        *stream = handle->stream;                                                                  \
        return SUCCESS;                                                                            \
    })
STREAM(Dn)
STREAM(Sp)

/* Settings that are kept and told: a place each in an object's values. */
enum {
    DETERMINISTIC,
    MATH,
    EMULATION,
    MANTISSA_CONTROL,
    MANTISSA_MOST,
    MANTISSA_OFFSET,
    SPECIAL_VALUES,
    SWEEPS_MOST,
    SORT,
    ITERATIONS_MOST,
    ITERATIONS_INNER,
    REFINEMENT,
    MAIN_PRECISION,
    LOWEST_PRECISION,
    ALGORITHM /* and those behind it */
};

static int keep(object *of, int place, int value)
{
    if (!of)
        return NOT_INITIALIZED;
    of->values[place] = value;
    return SUCCESS;
}

static int tell(const object *of, int place, int *value)
{
    if (!of)
        return NOT_INITIALIZED;
    if (!value)
        return INVALID_VALUE;
    *value = of->values[place];
    return SUCCESS;
}

#define SETTING(name, place)                                                                       \
    CALL(cusolverDnSet##name, (object * of, int value), return keep(of, place, value);)            \
    CALL(cusolverDnGet##name, (object * of, int *value), return tell(of, place, value);)
SETTING(DeterministicMode, DETERMINISTIC)
SETTING(MathMode, MATH)
SETTING(EmulationStrategy, EMULATION)
SETTING(FixedPointEmulationMantissaControl, MANTISSA_CONTROL)
SETTING(FixedPointEmulationMaxMantissaBitCount, MANTISSA_MOST)
SETTING(FixedPointEmulationMantissaBitOffset, MANTISSA_OFFSET)
SETTING(EmulationSpecialValuesSupport, SPECIAL_VALUES)

/* Jacobi's method: it is taken to end in one sweep without a rest. */
#define JACOBI(name)                                                                               \
    CALL(cusolverDnX##name##SetTolerance, (object * of, double value), {                           \
        if (!of)                                                                                   \
            return NOT_INITIALIZED;                                                                \
        of->reals[0] = value;                                                                      \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(cusolverDnX##name##SetMaxSweeps, (object * of, int value),                                \
         return keep(of, SWEEPS_MOST, value);)                                                     \
    CALL(cusolverDnX##name##SetSortEig, (object * of, int value), return keep(of, SORT, value);)   \
    CALL(cusolverDnX##name##GetResidual, (void *handle, object *of, double *value), {              \
        if (!handle || !of || !value)                                                              \
            return INVALID_VALUE;                                                                  \
        *value = 0;                                                                                \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(cusolverDnX##name##GetSweeps, (void *handle, object *of, int *value), {                   \
        if (!handle || !of || !value)                                                              \
            return INVALID_VALUE;                                                                  \
        *value = 1;                                                                                \
        return SUCCESS;                                                                            \
    })
JACOBI(gesvdj)
JACOBI(syevj)

CALL(cusolverDnSetAdvOptions, (object * of, int function, int algorithm),
     return function >= 0 && function < 4 ? keep(of, ALGORITHM + function, algorithm)
                                          : INVALID_VALUE;)
CALL(cusolverDnIRSParamsSetRefinementSolver, (object * of, int value),
     return keep(of, REFINEMENT, value);)
CALL(cusolverDnIRSParamsSetSolverMainPrecision, (object * of, int value),
     return keep(of, MAIN_PRECISION, value);)
CALL(cusolverDnIRSParamsSetSolverLowestPrecision, (object * of, int value),
     return keep(of, LOWEST_PRECISION, value);)
CALL(cusolverDnIRSParamsSetMaxIters, (object * of, int value),
     return keep(of, ITERATIONS_MOST, value);)
CALL(cusolverDnIRSParamsSetMaxItersInner, (object * of, int value),
     return keep(of, ITERATIONS_INNER, value);)
CALL(cusolverDnIRSParamsGetMaxIters, (object * of, int *value),
     return tell(of, ITERATIONS_MOST, value);)

/* The version of the toolkit that the soname stands for: 11 of CUDA 12.8, 12 of CUDA 13.2. */
#ifndef SOLVER_VERSION
#define SOLVER_VERSION                                                                             \
    {                                                                                              \
        11, 7, 3                                                                                   \
    }
#endif

CALL(cusolverGetProperty, (int property, int *value), {
    static const int version[] = {SOLVER_VERSION};
    if (!value || property < 0 || property > 2)
        return INVALID_VALUE;
    *value = version[property];
    return SUCCESS;
})
CALL(cusolverGetVersion, (int *version), {
    static const int parts[] = {SOLVER_VERSION};
    if (!version)
        return INVALID_VALUE;
    *version = parts[0] * 1000 + parts[1] * 100 + parts[2];
    return SUCCESS;
})
