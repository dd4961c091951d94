# SPDX-License-Identifier: MIT
"""Stands where FlashInfer would, for what vLLM asks of it as it samples; rows of the board whose `more` has
"sampler": "flashinfer" find it. FlashInfer itself compiles its kernels with a toolkit, and none is here."""

__version__ = "0.3.1"  # the newest that vLLM 0.11.0 names
