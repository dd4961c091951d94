#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sparse files that the real llama.cpp loads: headers made from published configurations, and copies of headers."""

import glob
import json
import os
import subprocess
import tempfile

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance", "configs")
# llama.cpp has them; the conversion does not, and says so.
NOT_CONVERTED = {"DeepSeek-V4-Flash"}
# Families that no configuration is at hand of, with the numbers that their smallest published model has.
MORE = {
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 36},
    "glm4": {"model_type": "glm4", "num_hidden_layers": 40},
    "glm4-moe": {"model_type": "glm4_moe", "num_nextn_predict_layers": 1, "norm_topk_prob": True},
    "glm4-moe-lite": {"model_type": "glm4_moe_lite", "scoring_func": "sigmoid"},
    "command-r": {"model_type": "cohere", "logit_scale": 0.0625},
    "cohere2": {"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window_pattern": 4},
    "olmo": {"model_type": "olmo"},
    "olmo2": {"model_type": "olmo2", "vocab_size": 100352},
    "olmo3": {"model_type": "olmo3", "vocab_size": 100278},
    "olmoe": {"model_type": "olmoe", "intermediate_size": 1024},
    "granite": {"model_type": "granite", "num_key_value_heads": 8, "logits_scaling": 8.0},
    "granite-moe": {"model_type": "granitemoe", "logits_scaling": 6.0, "shared_intermediate_size": 1024},
    "granite-hybrid": {"model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 512,
                       "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 64,
                       "num_experts_per_tok": 6, "num_hidden_layers": 4, "mamba_n_heads": 48, "mamba_d_state": 128,
                       "layer_types": ["mamba", "mamba", "attention", "mamba"], "tie_word_embeddings": True},
    "falcon": {"model_type": "falcon", "num_attention_heads": 71, "multi_query": True},
    "falcon-h1": {"model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 12,
                  "num_key_value_heads": 2, "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24,
                  "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "num_hidden_layers": 44},
    "mamba2": {"model_type": "mamba2", "hidden_size": 2560, "num_heads": 80, "head_dim": 64, "n_groups": 1,
               "tie_word_embeddings": True},
    "lfm2": {"model_type": "lfm2", "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_hidden_layers": 16,
             "hidden_size": 2048, "num_key_value_heads": 8, "num_attention_heads": 32, "tie_embedding": True},
    "starcoder2": {"model_type": "starcoder2"},
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True},
    "minicpm": {"model_type": "minicpm", "scale_emb": 12},
    "exaone": {"model_type": "exaone"},
    "exaone4": {"model_type": "exaone4", "num_hidden_layers": 64, "sliding_window_pattern": "LLLG"},
    "gemma3n": {"model_type": "gemma3n"},
    "gemma4-e": {"model_type": "gemma4", "hidden_size": 2560, "num_hidden_layers": 42, "intermediate_size": 10240,
                 "num_key_value_heads": 2, "num_kv_shared_layers": 18},
    "qwen2-moe": {"model_type": "qwen2_moe"},
    "qwen2-vl": {"model_type": "qwen2_vl"},
    "qwen3-next": {"model_type": "qwen3_next"},
    "kimi-linear": {"model_type": "kimi_linear", "moe_router_activation_func": "sigmoid", "num_key_value_heads": 32},
    "nemotron": {"model_type": "nemotron", "partial_rotary_factor": 0.5},
    "phi-2": {"model_type": "phi", "partial_rotary_factor": 0.4},
    "phi3-long": {"model_type": "phi3", "rope_scaling": {"type": "longrope"}},
    "ministral3": {"model_type": "ministral3", "rope_parameters": {"rope_type": "yarn", "factor": 16.0,
                                                                   "original_max_position_embeddings": 16384}},
    "pythia": {"model_type": "gpt_neox", "use_parallel_residual": True},
    "nomic-bert": {"model_type": "nomic_bert"},
    "modern-bert": {"model_type": "modernbert"},
}


def named(name):
    return os.path.join(SCRATCH.name, name)


def rehearsed(path):
    """What llama-server takes with all layers on one device that has room for anything: weights on the host and on
    the device."""
    done = memtally.must("rehearse", "--device", "9TiB", "--requests", "0", "--no-suggest", "--quiet", "--format", "json",
                         "--", engine.llama_cpp("llama-server"), "-m", path, "-c", "512", "-ngl", "999", "--no-warmup",
                         "-fit", "off")
    document = json.loads(done.stdout)
    places = {place["place"]: memtally.row(place, "weights")["allocated_bytes"] for place in document["places"]}
    assert document["rehearsal"]["ready"], document["rehearsal"]
    return places.get("host", 0), places["gpu:0"]


def assert_loads(config, weight_type):
    """The engine finds every tensor with the shape that it wants, gets ready, and has the same bytes. On the host lies
    what belongs to the input, of which it has an embedding twice that is the output matrix too."""
    path = named("model.gguf")
    written = json.loads(memtally.must("sample-model", "--from", config, path, "--type", weight_type,
                                       "--drop-vocabulary", "--json").stdout)
    host, device = rehearsed(path)
    bytes_ = written["tensor_bytes"] - written["draft_tensor_bytes"]
    label = (os.path.basename(config), host, device, bytes_)
    padding = 0.002 * bytes_ + 2**20
    assert bytes_ - padding < host + device < bytes_ + host + padding, label


def test_every_published_configuration_becomes_a_file_that_loads():
    for config in sorted(glob.glob(os.path.join(CONFIGS, "*.json"))):
        if os.path.basename(config)[:-5] not in NOT_CONVERTED:
            assert_loads(config, "q4_k_m")


def test_families_without_a_published_configuration_here_load():
    for name, numbers in MORE.items():
        config = named(name + ".json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(numbers, file)
        assert_loads(config, "f16")


def test_what_is_not_converted_is_named():
    for name in NOT_CONVERTED:
        done = memtally.run("sample-model", "--from", os.path.join(CONFIGS, name + ".json"), named("none.gguf"))
        assert done.returncode != 0 and "are not converted" in done.stderr, done
        assert not os.path.exists(named("none.gguf"))


def assert_serves(path, *flags):
    """llama-server listens with it."""
    command = [engine.llama_cpp("llama-server"), "-m", path, "--no-warmup", "--port", "0", "-t", "1", "-ngl", "0",
               "-c", "512", "-fit", "off", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        text = engine.listening(server)
        server.kill()
    assert b"listening" in text, text[-2000:].decode(errors="replace")


def test_a_server_starts_with_a_converted_model():
    path = named("server.gguf")
    for name, flags in (("Qwen3-0.6B", []), ("mamba-130m-hf", []), ("gpt2", []), ("bert-base-uncased", ["--embedding"])):
        memtally.must("sample-model", "--from", os.path.join(CONFIGS, name + ".json"), path, "--type", "q4_k")
        assert_serves(path, *flags)


def test_a_copy_of_a_header_is_planned_as_the_model_is():
    model, copy, short = named("real.gguf"), named("copy.gguf"), named("short.gguf")
    memtally.must("sample-model", "smollm-135m", model, "--type", "q8_0")
    memtally.must("sample-model", "--from", model, copy)
    memtally.must("sample-model", "--from", model, short, "--drop-vocabulary")
    assert os.stat(copy).st_size == os.stat(model).st_size
    assert os.stat(copy).st_blocks * 512 < 8 * 2**20
    weights = [rehearsed(path) for path in (model, copy, short)]
    assert weights[0] == weights[1] == weights[2] and weights[0][1] > 2**27, weights
    assert_serves(short)


if __name__ == "__main__":
    tap.main(globals())
