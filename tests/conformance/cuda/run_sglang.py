# SPDX-License-Identifier: MIT
"""Starts SGLang with weights of zeros and settings given as JSON, as its server would set it up, and ends."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
import stand_ins

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

# SGLang's names of settings by those of vLLM, in which the rows are written.
NAMES = {
    "model": "model_path",
    "max_model_len": "context_length",
    "max_num_batched_tokens": "chunked_prefill_size",
    "gpu_memory_utilization": "mem_fraction_static",
    "tensor_parallel_size": "tp_size",
}

if __name__ == "__main__":
    settings = {NAMES.get(name, name): value for name, value in json.loads(sys.argv[1]).items()}
    if stand_ins.sees(settings, "model_path"):
        settings = stand_ins.completed(settings, "model_path")
    import sglang

    engine = sglang.Engine(load_format="dummy", skip_tokenizer_init=True, log_level="debug", **settings)
    engine.shutdown()
