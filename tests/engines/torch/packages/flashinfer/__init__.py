# SPDX-License-Identifier: MIT
"""In FlashInfer's place, whose kernels need a GPU to be built: what of it holds buffers, under the names that 0.7.2 has for them."""

from . import decode, utils

__all__ = ["decode", "utils"]
