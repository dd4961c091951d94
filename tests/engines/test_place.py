#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Placements are what engines do with them: llama.cpp is rehearsed with the flags, accelerate counts what the map puts
where, and takes it."""

import functools
import json
import os
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


def as_placed(document, *options):
    """What a rehearsal of the written placement says of each device, by its number in the placement."""
    path = os.path.join(SCRATCH.name, "placement.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    done = memtally.run("rehearse", "--placed", path, "--json", "--no-suggest", *options, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = document["environment"].removeprefix("CUDA_VISIBLE_DEVICES=") if "VISIBLE" in document["environment"] else ""
    shown = [int(number) for number in seen.split(" ")[0].split(",")] if seen else range(len(document["devices"]))
    said = json.loads(done.stdout)
    held = {place["place"]: place for place in said["places"]}
    assert any("The placement expected" in note for note in said["notes"]), said["notes"]
    return {number: held[f"gpu:{place}"] for place, number in enumerate(shown)}


def assert_llama_cpp_does_so(shape, devices, context, *options):
    document = placed(sample(shape), devices, "--context", str(context), *options)
    held = as_placed(document, "--engine-path", engine.llama_cpp("llama-server"))
    for number, device in enumerate(document["devices"]):
        bytes_there = held[number]["total_allocated_bytes"] if number in held else 0
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
from accelerate.utils import check_device_map, compute_module_sizes, infer_auto_device_map
from transformers import AutoConfig, AutoModelForCausalLM
folder, path, limits = sys.argv[1:]
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
with open(path) as file:
    device_map = json.load(file)
check_device_map(model, device_map)
sizes = compute_module_sizes(model, dtype=torch.bfloat16)
held = {}
for name, device in device_map.items():
    held[str(device)] = held.get(str(device), 0) + sizes[name]
limits = {int(key) if key.isdigit() else key: size for key, size in json.loads(limits).items()}
made = infer_auto_device_map(model, max_memory=limits, no_split_module_classes=model._no_split_modules, dtype=torch.bfloat16)
print(json.dumps({"made": {name: str(device) for name, device in made.items()}, "held": held, "all": sizes[""], "frequencies": sizes["model.rotary_emb"], "output": sizes["lm_head"],
                  "is_tied": model.config.tie_word_embeddings}))
"""


def counted_by_accelerate(config, document):
    """Bytes of each device by accelerate's own count of the modules, after its own check of the map, and the map that it
    makes by the limits."""
    with tempfile.TemporaryDirectory() as folder:
        environment = on_host.stage(os.path.join(folder, "stage"))
        with open(os.path.join(CONFIGS, config), encoding="utf-8") as given, \
                open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            file.write(given.read())
        path, script = os.path.join(folder, "map.json"), os.path.join(folder, "count.py")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document["device_map"], file)
        with open(script, "w", encoding="utf-8") as file:
            file.write(ACCELERATE)
        done = memtally.subprocess.run([engine.torch(), script, folder, path, json.dumps(document["max_memory_bytes"])], env=environment, capture_output=True,
                                       text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)


def device_of(document, module):
    return document["device_map"][module]


def assert_accelerate_counts_the_same(config, devices, *options):
    document = placed(os.path.join(CONFIGS, config), devices, "--engine", "transformers@4.57.6", *options)
    counted = counted_by_accelerate(config, document)
    assert sum(counted["held"].values()) == counted["all"], counted
    frequencies = device_of(document, "model.rotary_emb")  # in no file: 2 B for each two numbers of a head
    for number, device in enumerate(document["devices"]):
        more = counted["frequencies"] if number == frequencies else 0
        if counted["is_tied"] and number == device_of(document, "lm_head"):
            more += counted["output"]  # one tensor under two names, of which accelerate counts both
        assert device["dense_bytes"] + device["expert_bytes"] + more == counted["held"].get(str(number), 0), (device, counted)
    return document, counted


def assert_accelerate_makes_the_same_map(document, counted):
    """By max_memory alone. It may write several modules as one, and leaves out no module but what has no tensors."""
    for module, device in document["device_map"].items():
        if module != "model.rotary_emb":
            found = next(counted["made"][name] for name in (module, module.rpartition(".")[0], "model", "") if name in counted["made"])
            assert found == str(device), (module, device, counted["made"])


def test_a_device_map_has_each_module_and_its_bytes():
    document, counted = assert_accelerate_counts_the_same("Mixtral-8x7B-v0.1.json", "80GiB,80GiB")
    assert document["crossings_per_token"] == 1, document["crossings_per_token"]
    assert_accelerate_makes_the_same_map(document, counted)
    document, counted = assert_accelerate_counts_the_same("Qwen2.5-7B-Instruct.json", "12GiB,10GiB", "--context", "1024")
    assert_accelerate_makes_the_same_map(document, counted)


def test_a_tied_output_lies_with_its_embedding():
    document, _ = assert_accelerate_counts_the_same("Qwen3-0.6B.json", "1GiB,1GiB,1GiB", "--context", "256", "--buffer", "0",
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


def test_a_placement_is_rehearsed_with_the_words_of_another():
    document = placed(sample("llama-3.2-1b"), "256MiB,16GiB", "--context", "4096", "--buffer", "0")
    held = as_placed(document, "--", engine.llama_cpp("llama-server"), "-m", sample("llama-3.2-1b"), "-c", "4096")
    assert list(held) == [1], held
    assert abs(held[1]["total_allocated_bytes"] - document["devices"][1]["expected_bytes"]) <= document["devices"][1]["expected_bytes"] // 100


def test_ollama_hands_its_number_of_layers_to_llama_server():
    document = assert_llama_cpp_does_so("llama-3.1-8b", "3GiB", 4096, "--engine", "ollama")
    assert document["flags"].startswith("PARAMETER num_gpu "), document["flags"]


def test_layers_that_leave_for_host_and_disk_are_computed_on_the_first_card():
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
              "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
              "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
              "eos_token_id": 2}
    folder = os.path.join(SCRATCH.name, "leaves")
    os.mkdir(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    document = placed(folder, "1GiB,1GiB", "--engine", "transformers@4.57.6", "--context", "1024", "--buffer", "0", "--host", "300MiB")
    # A layer has 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048 numbers of 2 B: the host has room for two.
    layer = 2 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048)
    where = list(document["device_map"].values())
    assert where.count("cpu") == 2 and document["host_bytes"] == 2 * layer, document["device_map"]
    assert where.count("disk") * layer == document["disk_bytes"] > 0, document["disk_bytes"]
    for number, place in as_placed(document, "--engine-path", engine.torch()).items():
        device = document["devices"][number]
        (weights,) = [row["allocated_bytes"] for row in place["rows"] if row["category"] == "weights"]
        # PyTorch rounds tensors up to 512 B, and what is left of a segment up to 1 MiB stays with its last one.
        assert device["dense_bytes"] <= weights <= device["dense_bytes"] * 1.01, (device, weights)
        assert place["total_allocated_bytes"] <= device["used_bytes"] <= device["limit_bytes"], (device, place)


def test_copies_are_left_out_where_it_fits_without():
    document = placed(sample("llama-3.1-8b"), "3900MiB,3900MiB", "--context", "8192")
    assert document["host_bytes"] == 0 and document["flags"].endswith("-ot '^$=CPU'"), document["flags"]
    held = as_placed(document, "--engine-path", engine.llama_cpp("llama-server"))
    for number, place in held.items():
        expected = document["devices"][number]["expected_bytes"]
        assert abs(place["total_allocated_bytes"] - expected) <= expected // 100, (place, expected)
    # With the copies, by llama.cpp's own allocations, a card is over its limit.
    document["flags"] = document["flags"].removesuffix(" -ot '^$=CPU'")
    held = as_placed(document, "--engine-path", engine.llama_cpp("llama-server"))
    assert any(place["total_high_bytes"] > document["devices"][number]["limit_bytes"] for number, place in held.items()), held


def test_exllamav3_fills_the_devices_as_placed():
    """By its rule: modules in their order, each on the first device whose gigabytes it does not exceed."""
    document = placed(os.path.join(CONFIGS, "Qwen2.5-7B-Instruct.json"), "12GiB,8GiB,6GiB", "--engine", "exllamav3", "--context", "2048",
                      "--objective", "balance")
    room = [float(part) * GIB for part in document["flags"].removeprefix("-gs ").split(",")]
    order = sorted({unit["device"] for unit in document["units"]}, key=[unit["device"] for unit in document["units"]].index)
    assert len(room) == len(order) == 3, document["flags"]
    device = 0
    for unit in document["units"]:
        size = unit["dense_bytes"] + unit["expert_bytes"] + unit["cache_bytes"]
        while size > room[device]:
            device += 1
        room[device] -= size
        assert unit["device"] == order[device], (unit, document["flags"])


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
