#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes what ggml-cuda does to a graph before it is laid out from its source, for a library without any of CUDA.

usage: fusion.py SOURCE FILE.cpp     of llama.cpp's SOURCE

The text between the definitions' first lines and the closing brace at a line's begin is taken as it is. Of graph_optimize the
first part is: what follows belongs to CUDA's graphs, and is off unless GGML_CUDA_GRAPH_OPT asks for it.
"""
import pathlib
import re
import sys

DEFINITIONS = (
    ('topk-moe.cuh', r'struct ggml_cuda_topk_moe_args \{'),
    ('topk-moe.cu', r'bool ggml_cuda_should_use_topk_moe\('),
    ('ggml-cuda.cu', r'static bool ggml_cuda_should_fuse_mul_mat\('),
    ('ggml-cuda.cu', r'static bool ggml_cuda_match_shared_expert\('),
    ('ggml-cuda.cu', r'static bool ggml_cuda_topk_moe_fusion\('),
    ('ggml-cuda.cu', r'static constexpr int MOE_WEIGHTED_REDUCTION_MAX_EXPERTS'),
    ('ggml-cuda.cu', r'struct ggml_cuda_moe_weighted_reduction_match \{'),
    ('ggml-cuda.cu', r'static bool ggml_cuda_match_moe_weighted_reduction\('),
    ('ggml-cuda.cu', r'static void ggml_backend_cuda_graph_optimize\('),
)
END_OF_OPTIMIZE = '\n#ifdef USE_CUDA_GRAPH\n'
BEFORE = '''
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

struct ggml_backend_cuda_context {
    int device;
};
#define ggml_cuda_set_device(device) ((void) 0)
'''


def definition(text, first):
    """A definition from its first line to the next closing brace, or of one line to its end; '' where there is none."""
    found = re.search(rf'^{first}', text, re.MULTILINE)
    if not found:
        return ''
    line = text[found.start():text.index('\n', found.start()) + 1]
    if line.rstrip().endswith(';'):
        return line
    return text[found.start():re.compile(r'^\};?\n', re.MULTILINE).search(text, found.start()).end()]


def main(source, made):
    folder = pathlib.Path(source) / 'ggml/src/ggml-cuda'
    parts = [BEFORE]
    for name, first in DEFINITIONS:
        part = definition((folder / name).read_text(encoding='utf-8'), first)
        if not part:
            sys.exit(f'{folder / name} defines nothing that begins with {first}')
        if END_OF_OPTIMIZE in part:
            part = part[:part.index(END_OF_OPTIMIZE)] + '}\n'
        parts.append(part)
    parts.append((pathlib.Path(__file__).parent / 'fusion.cpp').read_text(encoding='utf-8'))
    pathlib.Path(made).write_text('\n'.join(parts), encoding='utf-8')


if __name__ == '__main__':
    main(*sys.argv[1:])
