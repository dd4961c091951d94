/* SPDX-License-Identifier: MIT */
/* The runtime's functions that stand for one of the driver's, from forward.def. */
#include "runtime.h"

#if RUNTIME_VERSION < 13000
#define NEWER(name)            name##_v2
#define KERNEL_NODES(to, from) (from, to) /* whose first parameter was the source */
#else
#define NEWER(name)            name
#define KERNEL_NODES(to, from) (to, from)
#endif

/* Twins are in forward_twins.c. */
#define PER_THREAD_OR(stream) stream

#define FORWARD(name, driver, parameters, driver_parameters, arguments, enter)                     \
    int driver driver_parameters;                                                                  \
    EXPORTED(name, parameters)                                                                     \
    {                                                                                              \
        int code = enter();                                                                        \
        return runtime_note(code != cudaSuccess ? code : driver arguments);                        \
    }
#define CONTEXT(name, driver, parameters, arguments)                                               \
    FORWARD(name, driver, parameters, parameters, arguments, runtime_enter)
#define CONTEXT_AS(name, driver, parameters, driver_parameters, arguments)                         \
    FORWARD(name, driver, parameters, driver_parameters, arguments, runtime_enter)
#define DEVICE(name, driver, parameters, arguments)                                                \
    FORWARD(name, driver, parameters, parameters, arguments, runtime_start)
#define DEVICE_AS(name, driver, parameters, driver_parameters, arguments)                          \
    FORWARD(name, driver, parameters, driver_parameters, arguments, runtime_start)
#define STREAM CONTEXT

#include "forward.def"
