/* SPDX-License-Identifier: MIT */
/* What libraries that stand on the pretended driver have of it beside its public functions. */
#include "pretend/cuda/driver/world.h"
#include "rehearse/account_write.h"

PRETEND_CALL CUresult pretend_cuda_work(CUstream stream)
{
    struct pretend_graph_node *node;
    return pretend_capture_work(stream, PRETEND_NODE_KERNEL, &node);
}

PRETEND_CALL const struct mt_account *pretend_cuda_whole(void)
{
    return pretend_account();
}

PRETEND_CALL uint64_t pretend_cuda_free_bytes(uint32_t place)
{
    return pretend_account() ? pretend_free_bytes(place) : 0;
}
