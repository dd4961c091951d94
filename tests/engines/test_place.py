#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Placements are what engines do with them: llama.cpp is rehearsed with the flags, accelerate counts what the map puts
where, and takes it."""

import functools
import json
import os
import shlex
import tempfile

import engine
import memtally
import on_host
import tap

SCRATCH = tempfile.TemporaryDirectory()
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance", "configs")
GIB = 1 << 30


@functools.cache
def sample(shape):
    path = os.path.join(SCRATCH.name, shape + ".gguf")
    memtally.must("sample-model", shape, path, "--sparse", "--quiet", "--drop-vocabulary", "--type", "q4_k")
    return path


def placed(model, devices, *options):
    return json.loads(memtally.must("place", model, "--device", devices, "--json", *options).stdout)


def rehearsed(model, devices, context, document):
    """Bytes of each device, as llama.cpp asks for them. Of cards that it shall not see it is given none."""
    cards = devices.split(",")
    seen = document["environment"].removeprefix("CUDA_VISIBLE_DEVICES=")
    shown = [int(number) for number in seen.split(",")] if seen else range(len(cards))
    done = memtally.run("rehearse", "--json", "--device", ",".join(cards[i] for i in shown), "--", engine.llama_cpp("llama-server"), "-m", model,
                        "-c", str(context), *shlex.split(document["flags"]), timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    held = {place["place"]: place["total_allocated_bytes"] for place in json.loads(done.stdout)["places"]}
    return {f"gpu:{number}": held[f"gpu:{place}"] for place, number in enumerate(shown)}


def assert_llama_cpp_does_so(shape, devices, context, *options):
    document = placed(sample(shape), devices, "--context", str(context), *options)
    held = rehearsed(sample(shape), devices, context, document)
    for device in document["devices"]:
        bytes_there = held.get(device["device"], 0)
        assert bytes_there <= device["limit_bytes"], (device, held)
        if not device["layers"]:
            assert bytes_there == device["used_bytes"] == 0, (device, held)
        else:
            assert abs(bytes_there - device["expected_bytes"]) <= device["expected_bytes"] // 100, (device, held)
    return document


def test_llama_cpp_takes_of_each_card_what_was_promised():
    document = assert_llama_cpp_does_so("llama-3.1-8b", "4GiB,4GiB", 8192)
    assert document["crossings_per_token"] == 1 and document["is_best"], document
    assert [device["layers"] for device in document["devices"]] in ([17, 15], [16, 16]), document["devices"]


def test_cards_that_differ_are_taken_in_another_order():
    """The small card has no room for the output and what it computes."""
    document = assert_llama_cpp_does_so("llama-3.1-8b", "6GiB,3GiB,4GiB", 32768)
    assert all(device["layers"] for device in document["devices"]), document["devices"]


def test_a_card_that_is_not_needed_stays_empty():
    """Also of the driver's context."""
    for devices in ("16GiB,256MiB", "256MiB,16GiB"):
        document = assert_llama_cpp_does_so("llama-3.2-1b", devices, 4096, "--buffer", "0")
        assert document["fits"] and sorted(device["layers"] for device in document["devices"]) == [0, 16], document


def test_experts_leave_first_then_layers():
    document = assert_llama_cpp_does_so("qwen3-30b-a3b", "8GiB", 8192)
    assert document["host_expert_layers"] > 0 == document["host_layers"] and "--n-cpu-moe" in document["flags"], document
    document = assert_llama_cpp_does_so("llama-3.1-8b", "3GiB", 4096)
    assert document["host_layers"] > 0, document


def test_experts_of_chosen_layers_leave_where_one_card_lacks_room():
    document = assert_llama_cpp_does_so("qwen3-30b-a3b", "12GiB,6GiB", 8192)
    assert document["host_expert_layers"] > 0, document


def test_no_more_experts_leave_than_must():
    """What stays free of the card has no room for one more layer's experts."""
    document = placed(sample("qwen3-30b-a3b"), "8GiB", "--context", "8192")
    (device,) = document["devices"]
    experts = max(unit["expert_bytes"] for unit in document["units"])
    assert device["limit_bytes"] - device["used_bytes"] < experts, (device, experts)


ACCELERATE = """
import json, sys
import torch
from accelerate import init_empty_weights
from accelerate.utils import check_device_map, compute_module_sizes
from transformers import AutoConfig, AutoModelForCausalLM
folder, path = sys.argv[1:]
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
with open(path) as file:
    device_map = json.load(file)
check_device_map(model, device_map)
sizes = compute_module_sizes(model, dtype=torch.bfloat16)
held = {}
for name, device in device_map.items():
    held[str(device)] = held.get(str(device), 0) + sizes[name]
print(json.dumps({"held": held, "all": sizes[""], "frequencies": sizes["model.rotary_emb"], "output": sizes["lm_head"],
                  "is_tied": model.config.tie_word_embeddings}))
"""


def counted_by_accelerate(config, device_map):
    """Bytes of each device by accelerate's own count of the modules, after its own check of the map."""
    with tempfile.TemporaryDirectory() as folder:
        environment = on_host.stage(os.path.join(folder, "stage"))
        with open(os.path.join(CONFIGS, config), encoding="utf-8") as given, \
                open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            file.write(given.read())
        path, script = os.path.join(folder, "map.json"), os.path.join(folder, "count.py")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(device_map, file)
        with open(script, "w", encoding="utf-8") as file:
            file.write(ACCELERATE)
        done = memtally.subprocess.run([engine.torch(), script, folder, path], env=environment, capture_output=True,
                                       text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)


def device_of(document, module):
    return document["device_map"][module]


def assert_accelerate_counts_the_same(config, devices, *options):
    document = placed(os.path.join(CONFIGS, config), devices, "--engine", "transformers@4.57.6", *options)
    counted = counted_by_accelerate(config, document["device_map"])
    assert sum(counted["held"].values()) == counted["all"], counted
    frequencies = device_of(document, "model.rotary_emb")  # in no file: 2 B for each two numbers of a head
    for number, device in enumerate(document["devices"]):
        more = counted["frequencies"] if number == frequencies else 0
        if counted["is_tied"] and number == device_of(document, "lm_head"):
            more += counted["output"]  # one tensor under two names, of which accelerate counts both
        assert device["dense_bytes"] + device["expert_bytes"] + more == counted["held"].get(str(number), 0), (device, counted)
    return document


def test_a_device_map_has_each_module_and_its_bytes():
    document = assert_accelerate_counts_the_same("Mixtral-8x7B-v0.1.json", "80GiB,80GiB")
    assert document["crossings_per_token"] == 1, document["crossings_per_token"]
    assert_accelerate_counts_the_same("Qwen2.5-7B-Instruct.json", "12GiB,10GiB", "--context", "1024")


def test_a_tied_output_lies_with_its_embedding():
    document = assert_accelerate_counts_the_same("Qwen3-0.6B.json", "1GiB,1GiB,1GiB", "--context", "256", "--buffer", "0",
                                                 "--objective", "balance")
    assert device_of(document, "model.embed_tokens") == device_of(document, "lm_head"), document["device_map"]
    assert document["crossings_per_token"] == 3, document  # two between three cards, and back to the output


def loaded(config, document, devices):
    """What PyTorch says of each device once a model of this config was loaded by the map, and generated."""
    with tempfile.TemporaryDirectory() as folder:
        config_folder, mapped, path = (os.path.join(folder, name) for name in ("model", "map.json", "figures.json"))
        os.mkdir(config_folder)
        for name, content in ((os.path.join(config_folder, "config.json"), config), (mapped, document["device_map"])):
            with open(name, "w", encoding="utf-8") as file:
                json.dump(content, file)
        done = memtally.run("rehearse", "--device", devices, "--requests", "0", "--no-suggest", "--json", "--", engine.torch(),
                            on_host.program("placed.py"), config_folder, mapped, path, timeout=500)
        assert os.path.exists(path), (done.returncode, done.stderr[-3000:])
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def assert_pytorch_holds_what_was_placed(tied):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
              "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048,
              "max_position_embeddings": 512, "tie_word_embeddings": tied, "torch_dtype": "bfloat16", "bos_token_id": 1,
              "eos_token_id": 2}
    path = os.path.join(SCRATCH.name, f"small-{tied}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    document = placed(path, "24GiB,24GiB", "--engine", "transformers@4.57.6", "--objective", "balance", "--context", "64")
    said = loaded(config, document, "24GiB,24GiB")
    assert said["length"] == 12, said
    for number, device in enumerate(document["devices"]):
        weights = device["dense_bytes"] + device["expert_bytes"]
        assert device["layers"] and said["held"][str(number)] == weights, (device, said)
        # PyTorch rounds each tensor up to 512 B; the frequencies of the rotary embedding are one more.
        rounding = 512 * (said["tensors"][str(number)] + 1)
        assert weights <= said["allocated"][str(number)] <= weights + rounding, (device, said)


def test_pytorch_holds_what_was_placed():
    assert_pytorch_holds_what_was_placed(False)


def test_pytorch_holds_a_tied_output_once():
    assert_pytorch_holds_what_was_placed(True)


def test_mixtral_in_four_bits_on_two_cards_of_16_gigabytes():
    """The map that is known for it has 51.7 crossings, 31 layers * 2 * (1 - C(4,2) / C(8,2)) + 3; the best has one."""
    document = placed(os.path.join(CONFIGS, "Mixtral-8x7B-v0.1.json"), "15.6GiB,15.6GiB", "--engine", "transformers@4.57.6",
                      "--quantise", "nf4", "--context", "1024", "--compare")
    ways = {way["policy"]: way for way in document["compared"]}
    known, best = ways["balanced-experts"], ways["best"]
    assert [device["layers"] for device in known["devices"]] == [14, 18], known
    assert [device["experts"] for device in known["devices"]] == [132, 124], known
    assert abs(known["crossings_per_token"] - (31 * 2 * (1 - 6 / 28) + 3)) < 1e-9, known
    assert [device["layers"] for device in best["devices"]] == [16, 16] and best["crossings_per_token"] == 1, best
    weights = [device["dense_bytes"] + device["expert_bytes"] for device in best["devices"]]
    expert, dense, edge = 3 * 4096 * 14336, 2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 8, 2 * 32000 * 4096
    half = 16 * (8 * expert + dense) * 9 // 16 + edge
    assert all(abs(one - half) < 1 << 20 for one in weights), (weights, half)
    assert best["highest_used_ratio"] < known["highest_used_ratio"], ways


if __name__ == "__main__":
    tap.main(globals())
