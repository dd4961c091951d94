/* SPDX-License-Identifier: MIT */
/* What a device says of itself. Limits that depend on the capability are those of "Technical
 * Specifications per Compute Capability" in the CUDA programming guide; what a model of GPU has of
 * its own comes from the GPU table. */
#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/world.h"
#include "pretend/cuda/place.h"

#define ATTRIBUTES_END 149

/* VALUE(number, value): the attributes that all devices answer alike. All others are 0. */
#define ALIKE_LIST                                                                                 \
    VALUE(1, 1024) /* threads of a block */                                                        \
    VALUE(2, 1024) /* … by dimension */                                                          \
    VALUE(3, 1024)                                                                                 \
    VALUE(4, 64)                                                                                   \
    VALUE(5, 2147483647) /* blocks of a grid by dimension */                                       \
    VALUE(6, 65535)                                                                                \
    VALUE(7, 65535)                                                                                \
    VALUE(8, 49152)       /* shared memory of a block that asks for no more */                     \
    VALUE(9, 65536)       /* constant memory */                                                    \
    VALUE(10, 32)         /* warp */                                                               \
    VALUE(11, 2147483647) /* pitch of copies */                                                    \
    VALUE(12, 65536)      /* registers of a block */                                               \
    VALUE(14, 512)        /* alignment of textures */                                              \
    VALUE(15, 1)          /* copies beside kernels */                                              \
    VALUE(19, 1)          /* maps host memory */                                                   \
    VALUE(21, 131072)     /* textures and surfaces: their sizes up to 77 */                        \
    VALUE(22, 131072)                                                                              \
    VALUE(23, 65536)                                                                               \
    VALUE(24, 16384)                                                                               \
    VALUE(25, 16384)                                                                               \
    VALUE(26, 16384)                                                                               \
    VALUE(27, 32768)                                                                               \
    VALUE(28, 32768)                                                                               \
    VALUE(29, 2048)                                                                                \
    VALUE(30, 512)                                                                                 \
    VALUE(31, 1) /* concurrent kernels */                                                          \
    VALUE(40, 3) /* engines for copies */                                                          \
    VALUE(41, 1) /* one address space with the host */                                             \
    VALUE(42, 32768)                                                                               \
    VALUE(43, 2048)                                                                                \
    VALUE(45, 32768)                                                                               \
    VALUE(46, 32768)                                                                               \
    VALUE(47, 8192)                                                                                \
    VALUE(48, 8192)                                                                                \
    VALUE(49, 32768)                                                                               \
    VALUE(51, 32)                                                                                  \
    VALUE(52, 32768)                                                                               \
    VALUE(53, 32768)                                                                               \
    VALUE(54, 2046)                                                                                \
    VALUE(55, 32768)                                                                               \
    VALUE(56, 131072)                                                                              \
    VALUE(57, 65536)                                                                               \
    VALUE(58, 16384)                                                                               \
    VALUE(59, 16384)                                                                               \
    VALUE(60, 16384)                                                                               \
    VALUE(61, 32768)                                                                               \
    VALUE(62, 2048)                                                                                \
    VALUE(63, 32768)                                                                               \
    VALUE(64, 32768)                                                                               \
    VALUE(65, 2048)                                                                                \
    VALUE(66, 32768)                                                                               \
    VALUE(67, 32768)                                                                               \
    VALUE(68, 2046)                                                                                \
    VALUE(69, 268435456)                                                                           \
    VALUE(70, 131072)                                                                              \
    VALUE(71, 65000)                                                                               \
    VALUE(72, 2097120)                                                                             \
    VALUE(73, 32768)                                                                               \
    VALUE(74, 32768)                                                                               \
    VALUE(77, 32768)                                                                               \
    VALUE(78, 1)     /* priorities of streams */                                                   \
    VALUE(79, 1)     /* L1 caches global memory */                                                 \
    VALUE(80, 1)     /* … and local memory */                                                    \
    VALUE(82, 65536) /* registers of a multiprocessor */                                           \
    VALUE(83, 1)     /* managed memory */                                                          \
    VALUE(89, 1)     /* … used by host and device at once */                                     \
    VALUE(90, 1)     /* preemption */                                                              \
    VALUE(91, 1)     /* registered host memory under its own address */                            \
    VALUE(92, 1)     /* streams that wait for and write values, first interface */                 \
    VALUE(93, 1)                                                                                   \
    VALUE(94, 1)                                                                                   \
    VALUE(95, 1)          /* cooperative launch */                                                 \
    VALUE(99, 1)          /* registers host memory */                                              \
    VALUE(102, 1)         /* virtual memory management */                                          \
    VALUE(103, 1)         /* … shared by file descriptors */                                     \
    VALUE(109, 134213632) /* window of an access policy */                                         \
    VALUE(112, 1)         /* sparse arrays */                                                      \
    VALUE(113, 1)         /* registers read-only host memory */                                    \
    VALUE(114, 1)         /* timeline semaphores */                                                \
    VALUE(115, 1)         /* memory pools */                                                       \
    VALUE(119, 1)         /* … shared by file descriptors */                                     \
    VALUE(121, 1)         /* deferred mapping of arrays */                                         \
    VALUE(122, 1)         /* streams that wait for and write values, second interface */           \
    VALUE(123, 1)                                                                                  \
    VALUE(125, 1)  /* events between processes */                                                  \
    VALUE(129, 1)  /* function pointers good on all devices */                                     \
    VALUE(131, -1) /* no NUMA node of the device's memory */

static const int alike[ATTRIBUTES_END] = {
#define VALUE(number, value) [number] = value,
    ALIKE_LIST
#undef VALUE
};

/* Single to double precision: 2 on the large chips, 32 and 64 on the others. */
static int double_ratio(uint32_t capability)
{
    if (capability == 75)
        return 32;
    return capability == 86 || capability == 89 || capability == 103 || capability >= 120 ? 64 : 2;
}

static int of_gpu(int attribute, const struct mt_gpu_spec *gpu)
{
    switch (attribute) {
    case 13:
        return (int)gpu->clock_khz;
    case 16:
        return (int)gpu->multiprocessors;
    case 32:
        return (int)gpu->is_ecc;
    case 36:
        return (int)gpu->memory_clock_khz;
    case 37:
        return (int)gpu->memory_bus_bits;
    case 38:
        return (int)gpu->l2_bytes;
    case 39:
        return (int)gpu->threads_most;
    case 75:
        return (int)gpu->capability / 10;
    case 76:
        return (int)gpu->capability % 10;
    case 81:
        return (int)gpu->shared_bytes;
    case 97:
        return (int)gpu->shared_block_bytes;
    case 106:
        return (int)gpu->blocks_most;
    default:
        return alike[attribute];
    }
}

static int of_capability(int attribute, const struct mt_gpu_spec *gpu)
{
    switch (attribute) {
    case 87:
        return double_ratio(gpu->capability);
    case 107:
        return gpu->capability >= 80; /* compressible memory */
    case 108:
        return gpu->capability >= 80 ? (int)(gpu->l2_bytes / 4 * 3) : 0; /* persisting L2 */
    case 111:
        return gpu->capability >= 80 ? 1024 : 0; /* shared memory that the system keeps */
    case 120:
        return gpu->capability >= 90; /* clusters */
    case 126:
        return gpu->capability >= 90 ? 4 : 1; /* domains of memory synchronisation */
    case 127:
        return gpu->capability >= 90; /* tensor maps */
    default:
        return of_gpu(attribute, gpu);
    }
}

PRETEND_CALL CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || attribute < 1 || attribute >= ATTRIBUTES_END)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == 33)
        *value = (int)pretend_place_bus(device->place);
    else if (attribute == 85)
        *value = (int)device->place; /* a board of its own */
    else
        *value = of_capability(attribute, device->gpu);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)device->gpu->capability / 10;
    *minor = (int)device->gpu->capability % 10;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice number)
{
    struct pretend_device *device;
    CUresult result = pretend_enter_device(number, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!properties)
        return CUDA_ERROR_INVALID_VALUE;
    *properties = (CUdevprop){alike[1],
                              {alike[2], alike[3], alike[4]},
                              {alike[5], alike[6], alike[7]},
                              alike[8],
                              alike[9],
                              alike[10],
                              alike[11],
                              alike[12],
                              (int)device->gpu->clock_khz,
                              alike[14]};
    return CUDA_SUCCESS;
}
