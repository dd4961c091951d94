# SPDX-License-Identifier: MIT
"""Nothing: what vLLM looks for here it does without."""
