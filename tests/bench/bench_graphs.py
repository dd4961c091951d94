#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What memtally's look at CUDA graphs adds to capturing 67 of them, on a pretended device: pairs of rounds in one process, by processor
time. usage: bench_graphs.py MEMTALLY. BENCH_ROUNDS are the pairs (9)."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
GRAPHS = 67


def rounds_of(memtally, python):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rounds.json")
        done = subprocess.run([memtally, "rehearse", "--layer", "cuda", "--device", "24GiB", "--requests", "0", "--no-suggest", "--quiet", "--output", os.devnull,
                               "--timeout", "3600", "--", python, os.path.join(ROOT, "tests", "bench", "graphs_captured.py"), path,
                               str(ROUNDS)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def main():
    python = os.environ.get("MEMTALLY_TORCH") or subprocess.run([os.path.join(ROOT, "scripts", "engine"), "torch"], capture_output=True,
                                                                text=True, check=True).stdout.strip()
    rounds = rounds_of(sys.argv[1], python)
    pairs = list(zip(rounds["with"], rounds["without"]))
    added = [one - other for one, other in pairs]
    middle = {name: statistics.median(seconds) for name, seconds in rounds.items()}
    print(f"{GRAPHS} captures  {middle['without'] * 1e3:.1f} ms without, {middle['with'] * 1e3:.1f} ms with memtally's look at each")
    print(f"added        {statistics.median(added) / GRAPHS * 1e6:.0f} us a graph, "
          f"{100 * statistics.median(one / other - 1 for one, other in pairs):+.1f} % (least {100 * (min(rounds['with']) / min(rounds['without']) - 1):+.1f} %)")


main()
