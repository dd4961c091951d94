# SPDX-License-Identifier: MIT
"""Runs out of memory and does nothing about it."""

import torch

first = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
second = torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
