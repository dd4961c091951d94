# SPDX-License-Identifier: MIT
"""Starts vLLM with weights of zeros and settings given as JSON, as its server would set it up, and ends."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
import stand_ins

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "DEBUG")
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")

if __name__ == "__main__":
    settings = {"load_format": "dummy", "skip_tokenizer_init": True, **json.loads(sys.argv[1])}
    if stand_ins.sees(settings, "model"):
        settings = {**stand_ins.completed(settings, "model"), "skip_tokenizer_init": False}
    import vllm

    vllm.LLM(**settings)
