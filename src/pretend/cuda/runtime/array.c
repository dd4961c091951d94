/* SPDX-License-Identifier: MIT */
/* Formats of arrays. The arrays themselves are not rehearsed: runtime.def has their calls as
 * missing. */
#include "runtime.h"

struct cudaChannelFormatDesc {
    int x, y, z, w;
    int kind;
};

PRETEND_CALL struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                                int kind);
PRETEND_CALL struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                                int kind)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}
