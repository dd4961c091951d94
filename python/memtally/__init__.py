# SPDX-License-Identifier: MIT
"""memtally in Python: `watch` sees what PyTorch does with memory, `pretend` stands in for what a rehearsed GPU lacks."""
