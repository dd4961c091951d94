# SPDX-License-Identifier: MIT
"""One buffer for each name, for all that ask."""

import torch

_cache_buf = {}


def _get_cache_buf(name, num_bytes, device):
    key = (name, device)
    if key not in _cache_buf or _cache_buf[key].numel() < num_bytes:
        _cache_buf[key] = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    return _cache_buf[key]
