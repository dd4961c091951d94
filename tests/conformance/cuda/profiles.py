#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally profile` in the newest vLLM and SGLang that were tried, on pretended devices.

usage: profiles.py MEMTALLY [--python ENGINE=PATH]... [ENGINE...]. The engines come from scripts/engine and are several GB
each. Fails where a profile is not made, or what it says is not what arithmetic of the model's shape says.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from bare_configs import asked

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, WORDS = 256, 512, 4, 8, 4, 4096
KV_WIDTH = HIDDEN // HEADS * KV_HEADS
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": WORDS,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}
WEIGHTS = 2 * (2 * WORDS * HIDDEN + HIDDEN + LAYERS * (2 * HIDDEN * (HIDDEN + KV_WIDTH) + 3 * HIDDEN * INNER + 2 * HIDDEN))
SPARE = 1 << 20  # tables of positions, and what an engine keeps for each layer
NEW, PROMPT, SEQUENCES = 5, 8, 2


def held(place, category):
    return sum(row["resident_bytes"] for row in place["rows"] if row["category"] == category)


def wrong(document, n_devices):
    """What is not as it should be, as sentences."""
    info, places = document["model_info"], [place for place in document["places"] if place["place"].startswith("gpu:") and place["rows"]]
    runs = [run for run in document["runs"] if not run["warm_up"]]
    weights = sum(held(place, "weights") for place in places)
    checks = {
        "lengths": (info["prompt_length"], info["generated_length"], info["total_sequence_length"]) == (PROMPT, PROMPT + NEW, PROMPT + NEW),
        "runs": len(runs) == 2 and all(run["steps"] == NEW and 0 < run["prefill_ms"] < run["latency_ms"] for run in runs),
        "devices": len(places) == document["gpu_info"]["num_gpus"] == n_devices,
        "weights": WEIGHTS <= weights <= n_devices * (WEIGHTS + SPARE) and weights < WEIGHTS + WEIGHTS // 10 + n_devices * SPARE,
        "cache": all(held(place, "kv_cache") > 0 for place in places),
        "sums": all(sum(row["resident_bytes"] for row in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"]
                    for place in places),
        "overhead": (document["gpu_info"]["multi_gpu_overhead_gb"] > 0) == (n_devices > 1),
    }
    return [f"{name} (weights {weights} for {WEIGHTS})" for name, holds in checks.items() if not holds]


def profile(memtally, engine, python, n_devices):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        done = subprocess.run([memtally, "profile", folder, "--engine", engine.partition("-")[0], "--engine-path", python, "--json",
                               "--on", f"{n_devices}xH100-80GB", "--tensor-parallel", str(n_devices), "--prompt-tokens", str(PROMPT),
                               "--max-tokens", str(NEW), "--batch-size", str(SEQUENCES), "--repeats", "2", "--timeout", "1800"],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stderr[-900:]]
    return wrong(json.loads(done.stdout), n_devices)


def main():
    n_wrong = 0
    memtally, engines = asked(__doc__)
    for engine, python in engines:
        for n_devices in (1, 2):
            said = profile(memtally, engine, python, n_devices)
            n_wrong += bool(said)
            print(f"{engine} on {n_devices}: {'; '.join(said) or 'as expected'}", flush=True)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
