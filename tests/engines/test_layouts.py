#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weights in the layout of a processor with AMX: what node-llama-cpp's libraries for such processors plan, against the
rules. On a processor without AMX a preloaded object answers for the kernel, and nothing is computed; see
tests/conformance/README.md."""

import os
import tempfile

import engine
import layouts
import memtally
import tap

GRANTED = os.path.join(os.environ["BUILD_DIR"], "tests", "conformance", "libamx-granted.so")
# What the libraries are built for beside AMX: they run nowhere else.
WANTED = {"avx512f", "avx512_vnni", "avx512vbmi", "avx512_bf16"}
NODE = ("--program", "node-llama-cpp", "--engine", "llama.cpp@v0.5.0", "--context", "512", "--json")


def require_processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    missing = WANTED - set(flags)
    if missing:
        raise tap.Skip(f"this processor lacks {', '.join(sorted(missing))}, for which libraries with AMX are built too")


def planned(path, *flags):
    around = dict(os.environ, LD_PRELOAD=GRANTED, PATH=os.path.dirname(engine.node()) + ":" + os.environ["PATH"])
    done = memtally.must("rehearse", path, *NODE, "--engine-path", engine.node_llama_cpp(), *flags, env=around)
    return layouts.weights(layouts.read(done.stdout), {**layouts.BUFFERS, "CPU_Mapped": "plain"})


def by_rules(path, *flags):
    done = memtally.must("estimate", path, *NODE, "--no-rehearse", "--cpu", "amx", *flags)
    return layouts.weights(layouts.read(done.stdout), {**layouts.RULES, "mapped weights": "plain"})


def assert_same(shape, kind, *flags):
    require_processor()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        memtally.must("sample-model", shape, path, "--sparse", "--type", kind)
        real, ours = planned(path, *flags), by_rules(path, *flags)
    assert real == ours, (shape, kind, real, ours)
    return real


def test_a_tied_embedding_is_in_the_mapped_file_and_in_the_layout_of_amx():
    """The figure that a Xeon's own profile gave is 286.02 MiB for both, with its header."""
    real = assert_same("smollm-135m", "q8_0")
    assert round((real["amx"] + real["plain"]) / memtally.MIB, 2) == 286.01, real


def test_experts_are_repacked_and_the_rest_is_for_amx():
    real = assert_same("qwen3-30b-a3b", "q4_0")
    assert real["amx"] and real["repacked"] > real["amx"], real


def test_blocks_of_256_are_appended_to_or_not():
    assert_same("llama-3.2-1b", "q4_k")


def test_matrices_of_16_bits_are_for_amx_too():
    real = assert_same("smollm-135m", "f16")
    assert real["amx"] > 0, real


if __name__ == "__main__":
    tap.main(globals())
