/* SPDX-License-Identifier: MIT */
/* The twins of the runtime's functions, for code that is compiled with a default stream for each
 * thread. If such code names no stream, it means its thread's. */
#include "runtime.h"

#if RUNTIME_VERSION < 13000
#define NEWER(name) name##_v2
#else
#define NEWER(name) name
#endif
#define PER_THREAD_OR(stream) PER_THREAD(stream)

#define CONTEXT(...)
#define CONTEXT_AS(...)
#define DEVICE(...)
#define DEVICE_AS(...)
#define TWIN(name, driver, parameters, arguments)                                                  \
    int driver parameters;                                                                         \
    EXPORTED(name##_ptsz, parameters)                                                              \
    {                                                                                              \
        int code = runtime_enter();                                                                \
        return runtime_note(code != cudaSuccess ? code : driver arguments);                        \
    }
#define STREAM(name, driver, parameters, arguments) TWIN(name, driver, parameters, arguments)

#include "forward.def"
