#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vLLM's second runner, by a package in its place (tests/cuda/engines) with real PyTorch: what its memory is for, that its
decoding ends, and that a version which nobody tried is said to be one."""

import functools
import json
import os
import tempfile

import engine
import memtally
import tap

GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = os.path.join(HERE, "..", "cuda", "engines")
SIZES = {"weights_gib": 3, "sampler_gib": 0.5, "sequence_mib": 2, "token_kib": 128, "max_position_embeddings": 4096, "graph_gib": 0.25}


@functools.cache
def rehearsed(version):
    """The document of a rehearsal of a model's folder, and what the engine wrote, where the package says this version."""
    with tempfile.TemporaryDirectory() as folder:
        about = os.path.join(folder, "packages", f"vllm-{version}.dist-info")
        os.makedirs(about)
        with open(os.path.join(about, "METADATA"), "w", encoding="utf-8") as file:
            file.write(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        model = os.path.join(folder, "model")
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            json.dump(SIZES, file)
        path = os.pathsep.join([os.path.dirname(about), ENGINES, os.environ["PYTHONPATH"]])
        kept = os.path.join(folder, "kept")
        done = memtally.run("rehearse", model, "--engine", "vllm", "--engine-path", engine.torch(), "--device", "H100-80GB", "--json",
                            "--no-suggest", "--folder", kept, env=dict(os.environ, PYTHONPATH=path), timeout=500)
        assert done.returncode == 0 and done.stdout, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        with open(os.path.join(kept, "output"), encoding="utf-8") as file:
            return json.loads(done.stdout), file.read()


def held(category):
    (place,) = [place for place in rehearsed("0.33.0")[0]["places"] if place["place"] == "gpu:0"]
    return sum(row["allocated_bytes"] for row in place["rows"] if row["category"] == category)


def test_weights_are_what_the_loader_loads():
    assert held("weights") == 3 * GIB, rehearsed("0.33.0")[0]["places"]


def test_the_samplers_state_is_workspace():
    assert held("workspace") == GIB // 2, rehearsed("0.33.0")[0]["places"]


def test_the_cache_is_the_cache():
    (said,) = [one["value"] for one in rehearsed("0.33.0")[0]["rehearsal"]["figures"] if one["name"] == "kv cache"]
    assert abs(held("kv_cache") / GIB - said) < 0.01 and said > 50, (held("kv_cache"), said)


def test_decoding_ends_with_the_tokens_that_the_host_knows_of():
    """The prompt of 12 tokens takes two passes of 8, of which the first gives it none."""
    assert "steps 5 tokens [4, 5]" in rehearsed("0.33.0")[1], rehearsed("0.33.0")[1]


def test_what_leaves_itself_off_for_want_of_multicast_is_named():
    notes = rehearsed("0.33.0")[0]["notes"]
    assert any("vLLM's all-reduce by multicast switched itself off" in note for note in notes), notes


def untried(version):
    return [note for note in rehearsed(version)[0]["notes"] if "is none of the versions" in note]


def test_a_version_that_nobody_tried_is_said_to_be_one():
    assert not untried("0.33.0"), untried("0.33.0")
    (note,) = untried("0.99.0")
    assert note.startswith("vllm 0.99.0 ") and "to 0.33.0" in note, note


if __name__ == "__main__":
    tap.main(globals())
