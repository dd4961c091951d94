# SPDX-License-Identifier: MIT
"""A wrapper of an operation, with the buffers that it plans in."""

import torch


class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer):
        self._float_workspace_buffer = float_workspace_buffer
        self._int_workspace_buffer = torch.empty(8 << 20, dtype=torch.uint8, device=float_workspace_buffer.device)
        self._pin_memory_int_workspace_buffer = torch.ones(8 << 20, dtype=torch.uint8, pin_memory=True)
        self._planned = torch.empty(3 << 20, dtype=torch.uint8, device=float_workspace_buffer.device)  # no workspace
