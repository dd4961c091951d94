# SPDX-License-Identifier: MIT
"""Stands for NVIDIA's module, which has a runtime of its own linked into it: a rehearsal must not come to it."""

raise ImportError("a runtime that talks to the real driver only")
