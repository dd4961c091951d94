# SPDX-License-Identifier: MIT
"""Starts SGLang with weights of zeros and settings given as JSON, as its server would set it up, and ends."""

import json
import os
import sys

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
    import sglang

    settings = {NAMES.get(name, name): value for name, value in json.loads(sys.argv[1]).items()}
    engine = sglang.Engine(load_format="dummy", skip_tokenizer_init=True, log_level="debug", **settings)
    engine.shutdown()
