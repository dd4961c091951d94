#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models that see, of their config.json alone, in the newest vLLM and SGLang that were tried.

usage: bare_configs.py MEMTALLY [--python ENGINE=PATH]... [ENGINE...]. The engines come from scripts/engine and are several GB
each. Fails where one does not come to its end, or its weights are not those that were published within 1 %.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ENGINES = ("vllm-0.33.0", "sglang-0.5.23")
SHARE = 0.01

# GiB of weights: as vLLM 0.11.0 logged them with the model's own files (vl08 of rows.csv); two bytes for each of the
# 27,432,406,640 parameters of google/gemma-3-27b-it.
WEIGHTS = {"mistral-small-3.2-24b": 44.76, "gemma-3-27b": 2 * 27432406640 / (1 << 30)}


def python_of(engine, given):
    if engine in given:
        return given[engine]
    brought = subprocess.run([ROOT / "scripts" / "engine", engine], stdout=subprocess.PIPE, text=True, check=True)
    return brought.stdout.strip()


def asked(doc):
    """The memtally and the engines, each with its Python, of a command line; an engine is brought when its turn comes."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("memtally")
    parser.add_argument("--python", action="append", default=[], help="ENGINE=PATH: an engine that is there already")
    parser.add_argument("engines", nargs="*")
    options = parser.parse_intermixed_args()
    given = dict(one.split("=", 1) for one in options.python)
    return options.memtally, ((engine, python_of(engine, given)) for engine in options.engines or ENGINES)


def weights_of(document):
    (place,) = [place for place in document["places"] if place["place"] == "gpu:0"]
    return sum(row["allocated_bytes"] for row in place["rows"] if row["category"] == "weights") / (1 << 30)


def rehearse(memtally, engine, python, config):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE.parent / "configs" / f"{config}.json", pathlib.Path(folder) / "config.json")
        done = subprocess.run([memtally, "rehearse", folder, "--engine", engine.partition("-")[0], "--engine-path", python, "--device",
                               "H100-80GB", "--context", "8192", "--eager", "--json", "--no-suggest", "--timeout", "1200"],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr[-600:]
    document = json.loads(done.stdout)
    return weights_of(document), "" if any("stand-ins" in note for note in document["notes"]) else "no note of stand-ins"


def main():
    worse = 0
    memtally, engines = asked(__doc__)
    for engine, python in engines:
        for config, published in WEIGHTS.items():
            weights, said = rehearse(memtally, engine, python, config)
            is_good = weights is not None and not said and abs(weights / published - 1) <= SHARE
            worse += not is_good
            print(f"{engine:14} {config:24} {published:6.2f} {weights or 0:6.2f} GiB  {'holds' if is_good else 'MUST HOLD: ' + said}")
            sys.stdout.flush()
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
