# SPDX-License-Identifier: MIT
"""Takes memory of its device, and goes on without the workspace that it cannot have, as engines do."""

from cuda.bindings import runtime
from flashinfer.comm import create_allreduce_fusion_workspace

assert runtime.cudaSetDevice(1)[0] == 0
assert runtime.cudaMalloc(100 << 20)[0] == 0
for backend in ("mnnvl", "trtllm"):
    try:
        create_allreduce_fusion_workspace(backend=backend, world_size=2, rank=1, max_token_num=8192, hidden_dim=4096, dtype="bfloat16")
    except RuntimeError:
        pass
