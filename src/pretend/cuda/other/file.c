/* SPDX-License-Identifier: MIT */
/* cuFile: its driver is not there, as on machines without the kernel module. Programs read files in
 * their ordinary way then. */
#include <stddef.h>

#include "pretend/cuda/call.h"

enum { DRIVER_NOT_INITIALIZED = 5001, INVALID_VALUE = 5022 };

/* How cuFile reports: its own error, and the driver's where there is one. */
struct error {
    int file, driver;
};

#define NOT_THERE(name)                                                                            \
    PRETEND_CALL struct error name(void);                                                          \
    PRETEND_CALL struct error name(void)                                                           \
    {                                                                                              \
        return (struct error){DRIVER_NOT_INITIALIZED, 0};                                          \
    }
NOT_THERE(cuFileDriverOpen)
NOT_THERE(cuFileDriverClose)
NOT_THERE(cuFileDriverClose_v2)
NOT_THERE(cuFileDriverGetProperties)
NOT_THERE(cuFileHandleRegister)
NOT_THERE(cuFileBufRegister)
NOT_THERE(cuFileBufDeregister)

PRETEND_CALL long cuFileUseCount(void);
PRETEND_CALL long cuFileUseCount(void)
{
    return 0;
}

PRETEND_CALL void cuFileHandleDeregister(void *handle);
PRETEND_CALL void cuFileHandleDeregister(void *handle)
{
    (void)handle;
}

PRETEND_CALL struct error cuFileGetVersion(int *version);
PRETEND_CALL struct error cuFileGetVersion(int *version)
{
    if (!version)
        return (struct error){INVALID_VALUE, 0};
    *version = 1130;
    return (struct error){0, 0};
}
