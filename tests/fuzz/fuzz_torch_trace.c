/* SPDX-License-Identifier: MIT */
/* The lines of a trace of PyTorch's allocator. */
#include <stdlib.h>
#include <string.h>

#include "pytorch/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check(const struct mt_torch_process *process)
{
    for (size_t i = 0; i < process->blocks.n; i++) {
        const struct mt_torch_block *block = &process->blocks.at[i];
        int is_known = block->phase == MT_TORCH_NONE || block->phase < process->spans.n;
        if (block->end_ns < block->begin_ns || block->address + block->bytes < block->address ||
            !is_known || block->name >= process->n_names || block->category >= MT_CATEGORY_END)
            abort();
    }
    for (size_t i = 0; i < process->phases.n; i++)
        if (process->phases.at[i].peak_bytes < process->phases.at[i].begin_bytes)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_torch_process process = {.pid = 7};
    const char *line = (const char *)data;
    const char *end = line + length;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            break;
        mt_torch_line(&process, line, (size_t)(stop - line));
        line = stop + 1;
    }
    mt_torch_finish(&process);
    check(&process);
    mt_torch_free(&process);
    return 0;
}
