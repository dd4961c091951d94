# SPDX-License-Identifier: MIT
"""What vLLM 0.11 has under this name."""

from argparse import ArgumentParser as FlexibleArgumentParser  # noqa: F401
