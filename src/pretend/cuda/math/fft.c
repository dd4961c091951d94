/* SPDX-License-Identifier: MIT */
/* cuFFT: plans are numbers, and have a work area of a documented size.
 *
 * The documentation gives two ends: sizes of small factors (2, 3, 5 and 7) have the best
 * algorithms, and an area as large as the transformed data serves them; in the worst case, large
 * prime factors, it is eight times that. The real area lies between, which the reader is told. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "math.h"
#include "pretend/cuda/call.h"
#include "pretend/cuda/library_take.h"
#include "pretend/cuda/unknown.h"

enum {
    SUCCESS = 0,
    INVALID_PLAN = 1,
    ALLOC_FAILED = 2,
    INVALID_TYPE = 3,
    INVALID_VALUE = 4,
    INVALID_SIZE = 8
};

/* Types of transforms, and the types of data that cuFFT's Xt calls name. */
enum { R2C = 0x2a, C2R = 0x2c, C2C = 0x29, D2Z = 0x6a, Z2D = 0x6c, Z2Z = 0x69 };
enum {
    DATA_R_32F = 0,
    DATA_R_64F = 1,
    DATA_R_16F = 2,
    DATA_C_32F = 4,
    DATA_C_64F = 5,
    DATA_C_16F = 6
};
enum { DATA_R_16BF = 14, DATA_C_16BF = 15 };

#define PLANS_MAX      65536
#define RANK_MAX       3
#define PROPERTIES_MAX 8

struct plan {
    int is_there;
    int is_made;
    int is_automatic; /* the library takes the work area */
    CUdevice device;
    CUstream stream;
    size_t bytes;
    CUdeviceptr area; /* that the library took */
    int64_t properties[PROPERTIES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plan *plans;
static int n_plans;

__attribute__((weak)) CUresult cuCtxGetDevice(CUdevice *device);

/* The plan of a number, the lock held; NULL where there is none. */
static struct plan *plan_of(int handle)
{
    return handle >= 1 && handle <= n_plans && plans[handle - 1].is_there ? &plans[handle - 1]
                                                                          : NULL;
}

static int free_place(void)
{
    struct plan *more;
    int i;
    for (i = 0; i < n_plans; i++)
        if (!plans[i].is_there)
            return i;
    if (n_plans >= PLANS_MAX)
        return -1;
    more = realloc(plans, (size_t)(n_plans + 16) * sizeof *more);
    if (!more)
        return -1;
    plans = more;
    memset(plans + n_plans, 0, 16 * sizeof *plans);
    n_plans += 16;
    return n_plans - 16;
}

static int has_small_factors(int64_t n)
{
    static const int factors[] = {2, 3, 5, 7};
    size_t i;
    for (i = 0; i < sizeof factors / sizeof *factors; i++)
        while (n > 1 && n % factors[i] == 0)
            n /= factors[i];
    return n == 1;
}

/* Bytes of a complex element; 0 where the type is none. */
static size_t complex_bytes(int type)
{
    switch (type) {
    case C2C:
    case R2C:
    case C2R:
    case DATA_R_32F:
    case DATA_C_32F:
        return 8;
    case Z2Z:
    case D2Z:
    case Z2D:
    case DATA_R_64F:
    case DATA_C_64F:
        return 16;
    case DATA_R_16F:
    case DATA_C_16F:
    case DATA_R_16BF:
    case DATA_C_16BF:
        return 4;
    default:
        return 0;
    }
}

static int work_bytes(int rank, const int64_t *n, int type, int64_t batch, size_t *bytes)
{
    static int told;
    size_t elements = complex_bytes(type);
    int is_small = 1;
    int i;
    if (elements == 0)
        return INVALID_TYPE;
    if (rank < 1 || rank > RANK_MAX || batch < 1)
        return INVALID_SIZE;
    for (i = 0; i < rank; i++) {
        if (n[i] < 1 || __builtin_mul_overflow(elements, (size_t)n[i], &elements))
            return INVALID_SIZE;
        is_small = is_small && has_small_factors(n[i]);
    }
    if (__builtin_mul_overflow(elements, (size_t)batch, &elements) ||
        __builtin_mul_overflow(elements, is_small ? 1u : 8u, &elements))
        return INVALID_SIZE;
    *bytes = elements;
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {
        pretend_cuda_note("cuFFT's work areas are counted by its documentation: as the data, or "
                          "eight times it for large primes.");
    }
    return SUCCESS;
}

/* The plan takes its area itself, unless the program said that it brings one. */
static int take_area(struct plan *plan)
{
    if (!plan->is_automatic || plan->bytes == 0)
        return SUCCESS;
    if (pretend_library_take(plan->device, plan->bytes, MT_CATEGORY_WORKSPACE, "cuFFT work area",
                             &plan->area) != CUDA_SUCCESS) {
        plan->area = 0;
        return ALLOC_FAILED;
    }
    return SUCCESS;
}

static int make(int handle, int rank, const int64_t *n, int type, int64_t batch, size_t *bytes)
{
    size_t work = 0;
    int status = work_bytes(rank, n, type, batch, &work);
    struct plan *plan;
    if (status != SUCCESS)
        return status;
    pthread_mutex_lock(&lock);
    plan = plan_of(handle);
    if (!plan || plan->is_made) {
        status = INVALID_PLAN;
    } else {
        plan->bytes = work;
        status = take_area(plan);
        plan->is_made = status == SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    if (status == SUCCESS && bytes)
        *bytes = work;
    return status;
}

static int64_t widen(int rank, const int *n, int64_t wide[RANK_MAX])
{
    int i;
    for (i = 0; i < rank && i < RANK_MAX; i++)
        wide[i] = n[i];
    return rank;
}

CALL(cufftCreate, (int *handle), {
    struct plan *plan;
    int place;
    if (!handle)
        return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    place = free_place();
    if (place >= 0) {
        plan = &plans[place];
        memset(plan, 0, sizeof *plan);
        plan->is_there = 1;
        plan->is_automatic = 1;
        if (!cuCtxGetDevice || cuCtxGetDevice(&plan->device) != CUDA_SUCCESS)
            plan->device = 0;
        *handle = place + 1;
    }
    pthread_mutex_unlock(&lock);
    return place >= 0 ? SUCCESS : ALLOC_FAILED;
})

CALL(cufftDestroy, (int handle), {
    struct plan *plan;
    CUdeviceptr area = 0;
    pthread_mutex_lock(&lock);
    plan = plan_of(handle);
    if (plan) {
        area = plan->area;
        plan->is_there = 0;
    }
    pthread_mutex_unlock(&lock);
    if (area != 0)
        pretend_library_give(area);
    return plan ? SUCCESS : INVALID_PLAN;
})

/* What a plan keeps, told under the lock. */
#define WITH_PLAN(handle, ...)                                                                     \
    struct plan *plan;                                                                             \
    int status = INVALID_PLAN;                                                                     \
    pthread_mutex_lock(&lock);                                                                     \
    plan = plan_of(handle);                                                                        \
    if (plan) {                                                                                    \
        status = SUCCESS;                                                                          \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    pthread_mutex_unlock(&lock);                                                                   \
    return status;

CALL(cufftSetStream, (int handle, CUstream stream), WITH_PLAN(handle, plan->stream = stream;))
CALL(cufftSetAutoAllocation, (int handle, int is_automatic),
     WITH_PLAN(handle, plan->is_automatic = is_automatic;))
CALL(cufftGetSize, (int handle, size_t *bytes), {
    if (!bytes)
        return INVALID_VALUE;
    WITH_PLAN(handle, *bytes = plan->bytes;)
})

/* An area that the program brings takes the place of the plan's own. */
CALL(cufftSetWorkArea, (int handle, void *area), {
    CUdeviceptr own = 0;
    size_t bytes = 0;
    struct plan *plan;
    pthread_mutex_lock(&lock);
    plan = plan_of(handle);
    if (plan) {
        own = plan->area;
        bytes = plan->bytes;
        plan->area = 0;
    }
    pthread_mutex_unlock(&lock);
    if (own != 0)
        pretend_library_give(own);
    if (plan && area && bytes > 0)
        pretend_cuda_usage((CUdeviceptr)(uintptr_t)area, bytes, MT_CATEGORY_WORKSPACE,
                           "cuFFT work area");
    return plan ? SUCCESS : INVALID_PLAN;
})
CALL(cufftXtSetWorkArea, (int handle, void **areas),
     return areas ? cufftSetWorkArea(handle, areas[0]) : INVALID_VALUE;)

#define EXECUTE(name, arguments)                                                                   \
    CALL(name, arguments, {                                                                        \
        int is_made;                                                                               \
        pthread_mutex_lock(&lock);                                                                 \
        is_made = plan_of(handle) && plan_of(handle)->is_made;                                     \
        pthread_mutex_unlock(&lock);                                                               \
        if (is_made && (!in || !out))                                                              \
            return INVALID_VALUE;                                                                  \
        return is_made ? SUCCESS : INVALID_PLAN;                                                   \
    })
#define DIRECTION __attribute__((unused)) int direction
EXECUTE(cufftExecC2C, (int handle, void *in, void *out, DIRECTION))
EXECUTE(cufftExecZ2Z, (int handle, void *in, void *out, DIRECTION))
EXECUTE(cufftExecR2C, (int handle, void *in, void *out))
EXECUTE(cufftExecC2R, (int handle, void *in, void *out))
EXECUTE(cufftExecD2Z, (int handle, void *in, void *out))
EXECUTE(cufftExecZ2D, (int handle, void *in, void *out))
EXECUTE(cufftXtExec, (int handle, void *in, void *out, DIRECTION))

/* Plans of one, two and three dimensions: made, with a handle or without, and asked for a size. */
#define DIMENSIONS(count, batch)                                                                   \
    CALL(cufftMakePlan##count##d, (int handle, PARAMETERS_##count, size_t *bytes),                 \
         return make(handle, count, (int64_t[])VALUES_##count, type, batch, bytes);)               \
    CALL(cufftPlan##count##d, (int *handle, PARAMETERS_##count), {                                 \
        int status = cufftCreate(handle);                                                          \
        if (status != SUCCESS)                                                                     \
            return status;                                                                         \
        return make(*handle, count, (int64_t[])VALUES_##count, type, batch, NULL);                 \
    })                                                                                             \
    CALL(cufftEstimate##count##d, (PARAMETERS_##count, size_t * bytes),                            \
         return bytes ? work_bytes(count, (int64_t[])VALUES_##count, type, batch, bytes)           \
                      : INVALID_VALUE;)                                                            \
    CALL(cufftGetSize##count##d, (int handle, PARAMETERS_##count, size_t *bytes), {                \
        (void)handle;                                                                              \
        return bytes ? work_bytes(count, (int64_t[])VALUES_##count, type, batch, bytes)            \
                     : INVALID_VALUE;                                                              \
    })
#define PARAMETERS_1 int x, int type, int batch
#define PARAMETERS_2 int x, int y, int type
#define PARAMETERS_3 int x, int y, int z, int type
#define VALUES_1                                                                                   \
    {                                                                                              \
        x                                                                                          \
    }
#define VALUES_2                                                                                   \
    {                                                                                              \
        x, y                                                                                       \
    }
#define VALUES_3                                                                                   \
    {                                                                                              \
        x, y, z                                                                                    \
    }
DIMENSIONS(1, batch)
DIMENSIONS(2, 1)
DIMENSIONS(3, 1)

/* Where elements lie does not change the work area. */
#define LAYOUT(type)                                                                               \
    __attribute__((unused)) type *in, __attribute__((unused)) type in_step,                        \
        __attribute__((unused)) type in_apart, __attribute__((unused)) type *out,                  \
        __attribute__((unused)) type out_step, __attribute__((unused)) type out_apart

CALL(cufftMakePlanMany,
     (int handle, int rank, int *n, LAYOUT(int), int type, int batch, size_t *bytes), {
         int64_t wide[RANK_MAX] = {0};
         if (!n)
             return INVALID_VALUE;
         return make(handle, (int)widen(rank, n, wide), wide, type, batch, bytes);
     })
CALL(cufftPlanMany, (int *handle, int rank, int *n, LAYOUT(int), int type, int batch), {
    int status = cufftCreate(handle);
    if (status != SUCCESS)
        return status;
    return cufftMakePlanMany(*handle, rank, n, in, in_step, in_apart, out, out_step, out_apart,
                             type, batch, NULL);
})
CALL(cufftEstimateMany, (int rank, int *n, LAYOUT(int), int type, int batch, size_t *bytes), {
    int64_t wide[RANK_MAX] = {0};
    if (!n || !bytes)
        return INVALID_VALUE;
    return work_bytes((int)widen(rank, n, wide), wide, type, batch, bytes);
})
CALL(cufftGetSizeMany,
     (int handle, int rank, int *n, LAYOUT(int), int type, int batch, size_t *bytes), {
         (void)handle;
         return cufftEstimateMany(rank, n, in, in_step, in_apart, out, out_step, out_apart, type,
                                  batch, bytes);
     })
CALL(cufftMakePlanMany64,
     (int handle, int rank, int64_t *n, LAYOUT(int64_t), int type, int64_t batch, size_t *bytes),
     return n ? make(handle, rank, n, type, batch, bytes) : INVALID_VALUE;)
CALL(cufftGetSizeMany64,
     (int handle, int rank, int64_t *n, LAYOUT(int64_t), int type, int64_t batch, size_t *bytes), {
         (void)handle;
         return n && bytes ? work_bytes(rank, n, type, batch, bytes) : INVALID_VALUE;
     })

#define XT_LAYOUT                                                                                  \
    __attribute__((unused)) int64_t *in, __attribute__((unused)) int64_t in_step,                  \
        __attribute__((unused)) int64_t in_apart, __attribute__((unused)) int in_type,             \
        __attribute__((unused)) int64_t *out, __attribute__((unused)) int64_t out_step,            \
        __attribute__((unused)) int64_t out_apart, __attribute__((unused)) int out_type
CALL(cufftXtMakePlanMany,
     (int handle, int rank, int64_t *n, XT_LAYOUT, int64_t batch, size_t *bytes, int type),
     return n ? make(handle, rank, n, type, batch, bytes) : INVALID_VALUE;)
CALL(cufftXtGetSizeMany,
     (int handle, int rank, int64_t *n, XT_LAYOUT, int64_t batch, size_t *bytes, int type), {
         (void)handle;
         return n && bytes ? work_bytes(rank, n, type, batch, bytes) : INVALID_VALUE;
     })

CALL(cufftSetPlanPropertyInt64, (int handle, unsigned property, long long value), {
    if (property >= PROPERTIES_MAX)
        return INVALID_VALUE;
    WITH_PLAN(handle, plan->properties[property] = value;)
})
CALL(cufftGetPlanPropertyInt64, (int handle, unsigned property, long long *value), {
    if (property >= PROPERTIES_MAX || !value)
        return INVALID_VALUE;
    WITH_PLAN(handle, *value = plan->properties[property];)
})
CALL(cufftResetPlanProperty, (int handle, unsigned property),
     return cufftSetPlanPropertyInt64(handle, property, 0);)

CALL(cufftGetVersion, (int *version), {
    if (!version)
        return INVALID_VALUE;
    *version = FFT_VERSION;
    return SUCCESS;
})
CALL(cufftGetProperty, (int property, int *value), {
    static const int parts[] = {FFT_VERSION / 1000, FFT_VERSION / 100 % 10, FFT_VERSION % 100};
    if (!value || property < 0 || property > 2)
        return INVALID_VALUE;
    *value = parts[property];
    return SUCCESS;
})
