/* SPDX-License-Identifier: MIT */
/* The functions of a math library that are alike, each by one line of its list. A file includes
 * this after saying which library and list, as for missing.h; NO_HANDLE, NO_MEMORY and NO_VALUE
 * are the library's statuses. Arguments are counted from 1, numbers of floating point left out.
 *
 *     CREATE(name)           makes an object, which the first argument takes
 *     DESTROY(name)          frees it
 *     SIZE(name, n, type)    argument n takes a workspace's size, which is not known
 *     SIZES(name, n)         the same for two, of device and host memory, of type size_t
 *     INFO(name, n, batch)   computes; what argument n points to on the device says success,
 *                            as often as argument `batch` says (0: once)
 *     FOUND(name, range, n, first, found, type, info)
 *                            computes eigenvalues; argument `found` takes on the host how many of
 *                            the `n` there are, as `range` and the two from `first` on ask for
 *     REFINED(name, n, info) computes; argument n takes on the host the steps of refinement
 *     RESIDUALS(name, n, info, batch)
 *                            computes; argument n takes on the host a residual for each matrix
 *     PIVOT(name, n)         argument n takes that there is no zero on the diagonal
 *     IGNORE(name)           succeeds
 *     COUNT(name, n)         argument n takes a count that is computed on the device
 */
#include <stdarg.h>

#include "math.h"

#define CREATE(name)                                                                               \
    PRETEND_CALL int name(void **made);                                                            \
    PRETEND_CALL int name(void **made)                                                             \
    {                                                                                              \
        return made ? pretend_math_create(made, NO_MEMORY) : NO_VALUE;                             \
    }
#define DESTROY(name)                                                                              \
    PRETEND_CALL int name(void *object);                                                           \
    PRETEND_CALL int name(void *object)                                                            \
    {                                                                                              \
        pretend_math_destroy(object);                                                              \
        return 0;                                                                                  \
    }

/* Reads an argument of the caller's and goes on with `...`. */
#define WITH_ARGUMENT(name, n, ...)                                                                \
    PRETEND_CALL int name(void *handle, ...);                                                      \
    PRETEND_CALL int name(void *handle, ...)                                                       \
    {                                                                                              \
        static int told;                                                                           \
        void *argument;                                                                            \
        va_list arguments;                                                                         \
        (void)told;                                                                                \
        if (!handle) {                                                                             \
            return NO_HANDLE;                                                                      \
        }                                                                                          \
        va_start(arguments, handle);                                                               \
        argument = pretend_math_argument(arguments, n);                                            \
        va_end(arguments);                                                                         \
        if (!argument) {                                                                           \
            return NO_VALUE;                                                                       \
        }                                                                                          \
        __VA_ARGS__                                                                                \
        return 0;                                                                                  \
    }
#define SIZE(name, n, type)                                                                        \
    WITH_ARGUMENT(name, n, pretend_math_unknown(argument, sizeof(type), #name, &told);)
#define SIZES(name, n)                                                                             \
    WITH_ARGUMENT(name, n, pretend_math_unknown(argument, sizeof(size_t), #name, &told);           \
                  va_start(arguments, handle); argument = pretend_math_argument(arguments, n + 1); \
                  va_end(arguments);                                                               \
                  pretend_math_unknown(argument, sizeof(size_t), #name, &told);)
#define INFO(name, n, batch)                                                                       \
    WITH_ARGUMENT(                                                                                 \
        name, n, int64_t count = 1; if (batch != 0) {                                              \
            va_start(arguments, handle);                                                           \
            count = (int)(intptr_t)pretend_math_argument(arguments, batch);                        \
            va_end(arguments);                                                                     \
        } pretend_math_success(handle, argument, count);)

/* Reads the first `n` arguments of the caller's but the handle and goes on with `...`. */
#define WITH_ARGUMENTS(name, n, ...)                                                               \
    PRETEND_CALL int name(struct pretend_math_object *handle, ...);                                \
    PRETEND_CALL int name(struct pretend_math_object *handle, ...)                                 \
    {                                                                                              \
        static int told;                                                                           \
        void *argument[(n) + 1];                                                                   \
        va_list arguments;                                                                         \
        (void)told;                                                                                \
        if (!handle) {                                                                             \
            return NO_HANDLE;                                                                      \
        }                                                                                          \
        va_start(arguments, handle);                                                               \
        pretend_math_arguments(arguments, n, argument);                                            \
        va_end(arguments);                                                                         \
        __VA_ARGS__                                                                                \
        return 0;                                                                                  \
    }
#define NUMBER(type, n) ((type)(intptr_t)argument[n])
#define FOUND(name, range, n, first, found, type, info)                                            \
    WITH_ARGUMENTS(name, info, if (!argument[found] || !argument[info]) return NO_VALUE;           \
                   *(type *)argument[found] = (type)pretend_math_eigenvalues(                      \
                       NUMBER(int, range), NUMBER(type, n), NUMBER(type, first),                   \
                       NUMBER(type, first + 1), #name, &told);                                     \
                   pretend_math_success(handle, argument[info], 1);)
#define REFINED(name, n, info)                                                                     \
    WITH_ARGUMENTS(name, info, if (!argument[n] || !argument[info]) return NO_VALUE;               \
                   *(int *)argument[n] = 1; pretend_math_success(handle, argument[info], 1);)
#define RESIDUALS(name, n, info, batch)                                                            \
    WITH_ARGUMENTS(                                                                                \
        name, (n) > (batch) ? (n) : (batch), int count = (batch) ? NUMBER(int, batch) : 1;         \
        if (!argument[info]) return NO_VALUE; pretend_math_residuals(argument[n], count);          \
        pretend_math_success(handle, argument[info], count);)
#define PIVOT(name, n)                                                                             \
    WITH_ARGUMENT(name, n, pretend_math_answer(handle, argument, -1, #name, &told);)
#define COUNT(name, n)                                                                             \
    WITH_ARGUMENT(name, n, pretend_math_answer(handle, argument, 0, #name, &told);)

#define IGNORE(name)                                                                               \
    PRETEND_CALL int name(void);                                                                   \
    PRETEND_CALL int name(void)                                                                    \
    {                                                                                              \
        return 0;                                                                                  \
    }

#include "pretend/cuda/missing.h"
