# SPDX-License-Identifier: MIT
"""Starts vLLM with weights of zeros and settings given as JSON, as its server would set it up, and ends."""

import json
import os
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "DEBUG")
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")

if __name__ == "__main__":
    import vllm

    vllm.LLM(**{"load_format": "dummy", "skip_tokenizer_init": True, **json.loads(sys.argv[1])})
