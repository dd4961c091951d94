# SPDX-License-Identifier: MIT
"""What vLLM has under this name, and nothing in it."""
