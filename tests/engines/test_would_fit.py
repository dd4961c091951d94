#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of somebody else's that asks what would fit, with llama.cpp's own answer (examples/would_fit.c)."""

import os
import re
import subprocess
import tempfile

import memtally
import tap

BUILD = os.environ["BUILD_DIR"]


def ask(shape, device):
    """What the example prints, with the folder of the engine's programs."""
    environment = dict(os.environ, MEMTALLY_PRETEND=f"{BUILD}/src/pretend/ggml/libmemtally-pretend-ggml.so")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        memtally.must("sample-model", shape, model, "--sparse", "--quiet")
        done = subprocess.run([f"{BUILD}/examples/example_would_fit_c", model, device, os.environ["MEMTALLY_LLAMA_CPP"]],
                              capture_output=True, text=True, check=False, timeout=400,
                              env=dict(environment, TMPDIR=folder))
        left = [name for name in os.listdir(folder) if name != "model.gguf"]
    assert done.returncode == 0, done.stderr
    assert not left, left
    return done.stdout


def test_a_run_that_fits_has_no_suggestion():
    said = ask("smollm-135m", "24GiB")
    assert said.startswith("FITS") and "rehearsed" not in said and "rule" not in said, said


def test_a_change_that_the_engine_tried_is_told_as_rehearsed():
    """131072 tokens leave no room for the compute buffer of the default batch beside what the context takes."""
    said = ask("smollm-135m", "300MiB")
    assert said.startswith("CANNOT"), said
    found = re.findall(r"^(rehearsed|rule) +(.*) \(", said, re.MULTILINE)
    assert found and all(kind == "rehearsed" for kind, _ in found), said
    assert any(flags.startswith("-ub ") for _, flags in found), said


if __name__ == "__main__":
    tap.main(globals())
