#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which change would fit, with real PyTorch and transformers: what is found is rehearsed once more, and holds what the
shapes come to. An engine is a package in vLLM's place (tests/cuda/engines), whose sizes stand in its config.json."""

import functools
import json
import os
import tempfile

import engine
import memtally
import tap

MIB = 1 << 20
GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = os.path.join(HERE, "..", "cuda", "engines")

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 4, 512, 1024, 8, 2, 64, 38400
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "vocab_size": VOCABULARY, "max_position_embeddings": 4096, "tie_word_embeddings": False,
          "torch_dtype": "float32"}
# Two tables, and in each layer queries, keys, values and outputs, three projections and two norms; one more norm.
WEIGHTS = 2 * VOCABULARY * WIDTH + WIDTH + LAYERS * (
    2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * INNER + 2 * WIDTH)
VLLM = {"weights_gib": 15, "sequence_mib": 8, "token_kib": 128, "max_position_embeddings": 4096}


def rehearsed(config, *words, **more):
    """The document of a rehearsal of a folder with this config.json, named FOLDER among the words."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        done = memtally.run("rehearse", "--json", *(folder if word == "FOLDER" else word for word in words), timeout=500,
                            **more)
        assert done.returncode in (0, 1) and done.stdout, (done.returncode, done.stderr[-3000:])
        return json.loads(done.stdout)


def generated(device, *options):
    """On Turing, for which PyTorch has no kernel that makes no scores of attention in bf16."""
    return rehearsed(CONFIG, "FOLDER", "--engine", "transformers", "--engine-path", engine.torch(), "--device", device,
                     "--generation", "turing", *options)


LONG = ("--weight-type", "bf16", "--no-kv-offload")


@functools.cache
def too_long():
    """One prompt of 4096 tokens, of which a layer of attention alone makes 8 x 4088 x 4088 numbers of two bytes."""
    return generated("512MiB", "--context", "4096", *LONG)


def served(device, *flags, **sizes):
    path = os.pathsep.join([ENGINES, os.environ["PYTHONPATH"]])
    return rehearsed({**VLLM, **sizes}, "--device", device, "--requests", "0", "--", engine.torch(), "-m",
                     "vllm.entrypoints.openai.api_server", "--model", "FOLDER", *flags, env=dict(os.environ, PYTHONPATH=path))


def changes_of(document):
    assert document["verdict"] == "CANNOT", document["reason"]
    return document["rehearsal"]["would_fit"]


def total_of(document):
    (place,) = [place for place in document["places"] if place["place"] == "gpu:0"]
    return place["total_allocated_bytes"]


def test_a_shorter_context_fits_when_it_is_given():
    (found,) = [change for change in changes_of(too_long()) if change["options"]]
    name, number = found["options"].split()
    assert name == "--context" and 0 < int(number) < 4096 and int(number) % 64 == 0, found
    assert found["flags"] == f"max_length={number}" and found["instead_of"] == "max_length=4096", found
    again = generated("512MiB", "--no-suggest", *found["options"].split(), *LONG)
    assert again["rehearsal"]["outcome"] in ("ran", "coped"), again["reason"]
    cache = 2 * LAYERS * KV_HEADS * HEAD * 2 * (int(number) - 8)
    assert total_of(again) == found["held_bytes"] <= 512 * MIB, (total_of(again), found)
    assert found["held_bytes"] > 2 * WEIGHTS + cache and found["capacity_bytes"] == 512 * MIB, (found, cache)


def test_a_device_on_which_all_of_it_fits_is_named():
    """It has weights, the cache and the scores of attention in one layer."""
    change = changes_of(too_long())[-1]
    cache = 2 * LAYERS * KV_HEADS * HEAD * 2 * 4088
    assert change["flags"].startswith("a device of ") and change["options"] is None, change
    wanted, unit = change["flags"].split()[3:5]
    size = float(wanted) * {"MiB": MIB, "GiB": GIB}[unit]
    assert size > 2 * WEIGHTS + cache + HEADS * 4088 * 4088 * 2, change


def test_weights_of_four_bytes_fit_as_weights_of_two():
    """42 million numbers, 84 or 168 MB, of 256 MiB, of which a context and kernels have half."""
    first = changes_of(generated("256MiB", "--context", "16"))[0]
    assert first["options"] == "--weight-type bf16" and first["flags"] == "dtype=bf16", first
    assert 2 * WEIGHTS < first["held_bytes"] < 256 * MIB, (first, WEIGHTS)


@functools.cache
def fragmented(**environment):
    done = memtally.run("rehearse", "--device", "2GiB", "--json", "--", engine.torch(),
                        os.path.join(HERE, "torch", "fragmented.py"), env=dict(os.environ, **environment))
    return json.loads(done.stdout)


def test_memory_that_is_held_and_of_no_use_wants_segments_that_expand():
    rehearsal = fragmented()["rehearsal"]
    refused = rehearsal["refused"]
    held = {row["category"]: row["allocated_bytes"] for row in refused["held"]}
    assert refused["asked_bytes"] == 1400 * MIB, refused
    assert held["activations"] == 400 * MIB and held["cached"] == 200 * MIB >= refused["missing_bytes"], refused
    assert sum(held.values()) + refused["free_bytes"] == 2 * GIB, refused
    first = rehearsal["would_fit"][0]
    assert first["flags"] == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" and first["instead_of"] is None, first
    assert 1800 * MIB < first["held_bytes"] <= 2 * GIB, first


def test_the_calls_that_asked_are_told_from_the_innermost_on():
    """As they stand in the file."""
    with open(os.path.join(HERE, "torch", "fragmented.py"), encoding="utf-8") as file:
        lines = {line.strip(): number for number, line in enumerate(file, 1)}
    wanted = [f"fragmented.py:{lines[line]} {name}" for line, name in (
        ('return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")', "block"),
        ("return block(1400)", "ask_for_more"),
        ("assert ask_for_more() is not None and first is not second", "main"),
        ("main()", "<module>"))]
    assert fragmented()["rehearsal"]["refused"]["stack"] == wanted, fragmented()["rehearsal"]["refused"]


def test_segments_that_expand_already_are_not_tried_again():
    rehearsal = fragmented(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")["rehearsal"]
    assert not any("expandable" in change["flags"] for change in rehearsal["would_fit"]), rehearsal["would_fit"]


def test_weights_that_no_device_holds_want_a_larger_one():
    """30 GiB of weights and half a GiB of a cache for one request, of nine tenths of a device; a context is less than 2."""
    document = served("24GiB", weights_gib=30)
    (change,) = changes_of(document)
    assert document["rehearsal"]["refused"]["phase"] == "load_model", document["rehearsal"]["refused"]
    assert document["rehearsal"]["changes_tried"] == 0 and change["flags"].startswith("a device of "), change
    assert 30.5 / 0.9 <= float(change["flags"].split()[3]) < 33 / 0.9, change


def test_graphs_that_find_no_room_are_left_out():
    """All but 2.4 GiB, less what the context has, are taken when graphs of 3 GiB are captured."""
    document = served("24GiB", "--max-num-seqs", "4", graph_gib=3)
    first = changes_of(document)[0]
    assert document["rehearsal"]["refused"]["phase"] == "capture_model", document["rehearsal"]["refused"]
    assert first["flags"] == "--enforce-eager" and "longer" in first["costs"], first


def test_a_pass_beside_the_cache_wants_a_smaller_share():
    """5 GiB where some 2.4 are free: as much less of the share as is missing."""
    document = served("24GiB", "--max-num-seqs", "4", warm_up_gib=5)
    first = changes_of(document)[0]
    missing = document["rehearsal"]["refused"]["missing_bytes"]
    assert first["flags"] == f"--gpu-memory-utilization {0.9 - missing / (24 * GIB) - 0.025:.2f}", (first, missing)
    assert first["costs"] == "a smaller KV cache", first


def test_passes_that_leave_nothing_for_a_cache_are_made_smaller():
    """18 GiB of weights and 4 of a pass of 512 sequences are 22 of 21.6; of 128 sequences they are 19."""
    document = served("24GiB", "--max-num-seqs", "512", weights_gib=18)
    flags = [change["flags"] for change in changes_of(document)]
    assert "--max-num-seqs 128" in flags, flags


if __name__ == "__main__":
    tap.main(globals())
