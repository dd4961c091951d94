#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vLLM and SGLang load what was placed: stages of unequal length on pretended cards of two sizes, each with the weights that
were promised. Of one model SGLang keeps the output on each stage, of the other not.

    engines.py MEMTALLY VLLM_PYTHON SGLANG_PYTHON"""

import json
import os
import re
import subprocess
import sys
import tempfile

BASE = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 17, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
MODELS = {"llama": dict(BASE, architectures=["LlamaForCausalLM"], model_type="llama"),
          "qwen2": dict(BASE, architectures=["Qwen2ForCausalLM"], model_type="qwen2")}
ENGINES = {"vllm@0.33.0": 1, "sglang@0.5.23": 2}


def held(memtally, engine, python, folder):
    """Pairs of weights for each card: promised, and rehearsed."""
    path = os.path.join(folder, "placement.json")
    subprocess.run([memtally, "place", folder, "--engine", engine, "--device", "24GiB,16GiB", "--objective", "balance", "--context", "2048",
                    "--json", "-o", path], check=True)
    with open(path, encoding="utf-8") as file:
        placement = json.load(file)
    done = subprocess.run([memtally, "rehearse", "--placed", path, "--engine-path", python, "--no-suggest", "--quiet", "--json"],
                          capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        sys.exit(f"{engine}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout)
    seen = re.search(r"CUDA_VISIBLE_DEVICES=([\d,]+)", placement["environment"])
    assert sum(device["layers"] > 0 for device in placement["devices"]) == 2, placement["devices"]
    shown = [int(number) for number in seen[1].split(",")] if seen else [0, 1]
    rows = {place["place"]: {row["category"]: row["allocated_bytes"] for row in place["rows"]} for place in said["places"]}
    for place, number in enumerate(shown):
        device = placement["devices"][number]
        yield device["layers"], device["dense_bytes"] + device["expert_bytes"], rows[f"gpu:{place}"]["weights"]


def main():
    memtally, failed, passed = sys.argv[1], 0, 0
    for name, config in MODELS.items():
        for engine, argument in ENGINES.items():
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                    json.dump(config, file)
                for layers, promised, weights in held(memtally, engine, sys.argv[argument + 1], folder):
                    good = layers > 0 and abs(weights - promised) <= promised / 100
                    print(f"{'ok' if good else 'not ok'} - {name} in {engine}: {layers} layers, {promised} B promised, {weights} B held",
                          flush=True)
                    failed, passed = failed + (not good), passed + good
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
