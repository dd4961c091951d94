#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Versions of PyTorch, transformers, vLLM and SGLang: which were tried, and what a recording says of others."""

import glob
import os
import re
import sys
import tempfile

import observers
import tap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LISTS = os.path.join(ROOT, "tests", "conformance", "cuda", "engines")
MIB = 1 << 20

# What PyPI served on 28 November 2026, in a range that memtally says it knows.
NEWEST = {"torch": "2.15.0", "transformers": "5.24.0", "vllm": "0.33.0", "sglang": "0.5.23"}

PROGRAM = """
import ctypes, sys
from {package} import utils
driver = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0 and driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(6 << 20)) == 0
assert utils.GenerationMixin().generate() == 6
"""


def tried():
    """{package: (first, last)} of all tables that the package of the build has."""
    rows = []
    for path in glob.glob(os.path.join(os.environ["BUILD_DIR"], "python", "memtally", "watch", "*.versions.tsv")):
        with open(path, encoding="utf-8") as file:
            rows += [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {package: (first, last) for package, first, last in rows}


def listed():
    """{package: versions} of all lists of what an engine needs."""
    found = {}
    for name in [os.path.join(LISTS, name) for name in os.listdir(LISTS)] + [os.path.join(ROOT, "scripts", "engine.d", "torch.txt")]:
        engine, _, version = os.path.basename(name).removesuffix(".txt").partition("-")
        if version:
            found.setdefault(engine, set()).add(version)
        with open(name, encoding="utf-8") as file:
            for package, version in re.findall(r"^([a-z-]+)={2,3}([0-9][^\s+]*)", file.read(), re.M):
                found.setdefault(package, set()).add(version)
    return found


def test_both_ends_of_what_was_tried_can_be_fetched():
    for package, ends in tried().items():
        for end in ends:
            assert any(re.match(re.escape(end) + r"(\.post\d+)?$", version) for version in listed()[package]), (package, end)


def test_the_newest_were_tried():
    assert {package: last for package, (_, last) in tried().items()} == NEWEST, tried()


def notes_of(version):
    """The recording of a program with a package that calls itself transformers of a version, and does little."""
    with tempfile.TemporaryDirectory() as folder:
        package = os.path.join(folder, "transformers", "generation")
        os.makedirs(package)
        os.makedirs(os.path.join(folder, f"transformers-{version}.dist-info"))
        for path, text in ((os.path.join(package, "__init__.py"), ""), (os.path.join(folder, "transformers", "__init__.py"), ""),
                           (os.path.join(package, "utils.py"), "class GenerationMixin:\n    def generate(self):\n        return 6\n"),
                           (os.path.join(folder, f"transformers-{version}.dist-info", "METADATA"),
                            f"Metadata-Version: 2.1\nName: transformers\nVersion: {version}\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        observed = observers.run_on("24GiB", sys.executable, "-c", PROGRAM.format(package="transformers.generation"),
                                    env=dict(os.environ, PYTHONPATH=folder))
    assert observed.done.returncode == 0, observed.done.stderr
    assert not observers.disagreements(observed.account, observed.recording)
    (place,) = [place for place in observed.report["places"] if place["place"].startswith("gpu:")]
    assert sum(row["resident_bytes"] for row in place["rows"] if row["category"] == "cached") == 6 * MIB, place
    return [note for note in observed.report["notes"] if "is none of the versions" in note]


def test_a_version_that_is_not_known_is_recorded_all_the_same_and_says_so():
    assert notes_of("5.24.0") == []
    (note,) = notes_of("99.1.0")
    assert note.startswith("transformers 99.1.0 ") and "(4.57.6 to 5.24.0)" in note, note


if __name__ == "__main__":
    tap.main(globals())
