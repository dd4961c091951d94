#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whole engines under the recorder, on pretended devices: what it writes of devices and what the driver's account says are
held against each other, event by event; lies that are planted in either are found. In the ordinary tests that is done of programs on PyTorch alone.

usage: recorded.py BUILD [--python ENGINE=PATH]... [WAY...]. The engines come from scripts/engine, of several GB each.
Prints a line for each way and fails where the two do not say the same.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import observers  # noqa: E402
from bare_configs import python_of  # noqa: E402

SETTINGS = {"max_model_len": 2048, "gpu_memory_utilization": 0.5}
CONFIG = HERE.parent / "configs" / "Qwen3-0.6B.json"


def engine_of(program, **more):
    """The command line of an engine that loads a model without weights, and ends."""
    return lambda python, folder: [python, str(HERE / program), json.dumps({"model": str(folder), **SETTINGS, **more})]


def script(*words):
    return lambda python, folder: [python, *(word if word != "FIGURES" else str(folder / "figures") for word in words)]


PROGRAMS = ROOT / "tests" / "engines" / "torch"
# A way: the engine, the devices, its command line, and whether small allocations share pages of the driver.
WAYS = {
    "numba": ("numba-0.68.1", "H100-80GB", script(str(HERE / "run_numba.py"))),
    "inductor": ("vllm-0.33.0", "H100-80GB", script(str(PROGRAMS / "recorded.py"), "inductor", "FIGURES")),
    "vllm": ("vllm-0.33.0", "H100-80GB", engine_of("run_vllm.py")),
    "vllm-tensor-parallel": ("vllm-0.33.0", "2xH100-80GB", engine_of("run_vllm.py", tensor_parallel_size=2)),
    "sglang": ("sglang-0.5.23", "H100-80GB", engine_of("run_sglang.py")),
}


def gpus(report):
    return [place for place in report["places"] if place["place"].startswith("gpu:")]


def show(observed):
    for place in gpus(observed.report):
        rows = {row["category"]: row["resident_bytes"] for row in place["rows"]}
        print(f"    {place['total_resident_bytes']:>14} B  " + "  ".join(f"{name} {size}" for name, size in rows.items()))
    for note in observed.report["notes"]:
        if "none of the versions" in note:
            print(f"    {note}")


def unequal(observed):
    """Rows that do not add up to the driver's word."""
    for place in gpus(observed.report):
        total = sum(row["resident_bytes"] for row in place["rows"]) + place["unattributed_bytes"]
        if total != place["total_resident_bytes"]:
            yield f"{place['place']}: rows are {total}, and the driver said {place['total_resident_bytes']}"


# Lies that must be found wherever they are planted. The first event of another kind may change nothing: a mapping whose handle is kept,
# a block that another process still has, a word of the driver that comes again before anything is held against it.
PLAIN_LIES = ("alloc", "free", "refuse", "DEVICE_ALLOC")


def lies_found(observed):
    """By kind: how many lies, planted in either of the two, are found, and how many there are."""
    kinds = {}
    for kind, account, recording in observers.with_lies(observed.account, observed.recording):
        found, planted = kinds.get(kind, (0, 0))
        kinds[kind] = found + bool(observers.disagreements(account, recording)), planted + 1
    return kinds


def tried(way, given):
    engine, devices, command = WAYS[way]
    python = python_of(engine, given)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(CONFIG, pathlib.Path(folder) / "config.json")
        observed = observers.run_on(devices, *command(python, pathlib.Path(folder)), timeout=2400)
    wrong = observers.disagreements(observed.account, observed.recording) + list(unequal(observed))
    lies = {} if wrong else lies_found(observed)
    wrong += [f"a lie is not found: {kind}" for kind in PLAIN_LIES if len(set(lies.get(kind, (0, 0)))) > 1]
    if observed.done.returncode:
        wrong.append(f"the program ended with {observed.done.returncode}: {observed.done.stderr[-1500:]}")
    events = sum(event.word in ("alloc", "free", "refuse") for event in observed.account.events)
    print(f"{way:22} {engine:14} {events:6} events of the account  {'the same' if not wrong else 'NOT THE SAME'}", flush=True)
    show(observed)
    print("    lies found: " + ", ".join(f"{kind} {found} of {planted}" for kind, (found, planted) in lies.items()), flush=True)
    for sentence in wrong:
        print(f"    {sentence}", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--python", action="append", default=[], help="ENGINE=PATH: an engine that is there already")
    parser.add_argument("ways", nargs="*")
    options = parser.parse_intermixed_args()
    os.environ["BUILD_DIR"] = os.path.abspath(options.build)
    given = dict(one.split("=", 1) for one in options.python)
    results = [tried(way, given) for way in options.ways or WAYS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
