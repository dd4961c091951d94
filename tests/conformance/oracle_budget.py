#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rules of vLLM and SGLang against the oracle: what versions of these engines took of devices that are not there.

usage: oracle_budget.py MEMTALLY ENGINE TABLE POINTS CONFIGS FLOORS. TABLE is oracle_vllm.csv or oracle_sglang.csv, POINTS
cuda/points.csv, by which each line was made. Counts for each version how many weights are within a hundredth of a percent, how many
caches have tokens within half a percent, how many peaks of activations are within 2 percent, how many tokens lie in their band, and how
many are not promised more than 1 percent above what the engine has. Points that were kept back from who wrote the rules are counted
apart: the shapes that POINTS says, of vLLM each fifth version, 0.15, 0.20, 0.25 and so on, and versions that were predicted before
they were rehearsed. A point for which a rule was changed afterwards is one of the others. FLOORS has how many of each must hold; each
of its rows is a test.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

# What is asked of a figure: by how much a rule may be off.
ASKED = {"weights": 0.0001, "tokens": 0.005, "activations": 0.02}
OPTIONS = {"context": "--context", "batched_tokens": "--batched-tokens", "sequences": "--sequences", "memory_share": "--memory-share",
           "cache_type": "--kv-type", "tensor_parallel": "--tensor-parallel", "pipeline_parallel": "--pipeline-parallel"}
# What an engine calls a type of the cache that a point asks for.
CACHE_TYPES = {"sglang": {"fp8": "fp8_e5m2"}}
JUDGED = (*ASKED, "band", "above")
# Versions whose points were predicted before they were made.
REHEARSED_AFTER = {"vllm": {"0.11.2", "0.13.0", "0.14.1", "0.16.0", "0.17.1", "0.18.1", "0.21.0", "0.23.0", "0.29.0", "0.31.0", "0.32.0"},
                   "sglang": set()}
# Points that were kept back or predicted, and for which a rule was changed once they were there: they judge no more. docs/CONFORMANCE.md
# says which rule it was.
CHANGED_FOR = {"vllm": {"0.14.1": None, "0.15.1": None, "0.30.0": None,  # all of these
                        "0.19.1": {"unseen-dense", "unseen-experts"}, "0.25.1": {"latent"}, "0.26.0": {"unseen-windowed"},
                        "0.33.0": {"unseen-dense", "unseen-experts"}},
               "sglang": {}}


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(row for row in file if not row.startswith("#")))


def estimate(memtally, engine, version, point, configs):
    """The pool of the estimate, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        config = json.loads((configs / (point["config"] + ".json")).read_text())
        (pathlib.Path(folder) / "config.json").write_text(json.dumps({**config, **json.loads(point["changes"] or "{}")}))
        point = {**point, "cache_type": CACHE_TYPES.get(engine, {}).get(point["cache_type"], point["cache_type"])}
        ranks = int(point["tensor_parallel"]) * int(point["pipeline_parallel"])
        command = [memtally, "estimate", folder, "--engine", f"{engine}@{version}", "--device", ",".join([point["device"]] * ranks),
                   "--json", *(word for column, option in OPTIONS.items() if point[column] for word in (option, point[column])),
                   *(["--eager"] if point["eager"] == "yes" else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout) if done.stdout else {}
    return document.get("pool") or (document.get("error") or {}).get("sentence") or done.stderr.strip() or "no pool"


def off(said, seen):
    return said / seen - 1


def judge(line, pool):
    """{what: whether it holds} of a point, and {what: by how much the rule is off}. What vLLM calls its peak has what it sets aside for
    CUDA graphs in it from 0.27 on (vllm/v1/worker/gpu_worker.py, peak_activation_memory)."""
    has_graphs = [int(part) for part in line["version"].split(".")[:2]] >= [0, 27]
    peak = pool["activations_bytes"] + (pool["graphs_bytes"] if has_graphs else 0)
    offs = {"weights": off(pool["weights_bytes"], int(line["weights_bytes"])) if line["weights_bytes"] else None,
            "activations": off(peak, int(line["activations_bytes"])) if line["activations_bytes"] else None,
            "tokens": off(pool["pool_tokens"], int(line["tokens"])) if line["tokens"] else None}
    offs = {what: share for what, share in offs.items() if share is not None}
    holds = {what: abs(share) <= ASKED[what] for what, share in offs.items()}
    if "tokens" in offs:
        holds["band"] = pool["pool_tokens_low"] <= int(line["tokens"]) <= pool["pool_tokens_high"]
        holds["above"] = offs["tokens"] <= 0.01
    return holds, offs


def words(offs):
    return " ".join(f"{what} {100 * share:+.2f} %" for what, share in offs.items())


def is_kept_back(engine, version, point):
    changed = CHANGED_FOR[engine].get(version, set())
    if changed is None or point["id"] in changed:
        return False
    is_fifth = engine == "vllm" and int(version.split(".")[1]) % 5 == 0
    return point["kept_back"] == "yes" or is_fifth or version in REHEARSED_AFTER[engine]


def count(counts, version, kept_back, holds):
    for what, does in holds.items():
        group = counts.setdefault((version, kept_back), {}).setdefault(what, [0, 0])
        group[0] += does
        group[1] += 1


def counts_of(options):
    """{(version, kept back or not): {what: [held, of how many]}}."""
    points = {point["id"]: point for point in read(options.points)}
    counts = {}
    for line in read(options.table):
        point = points[line["id"]]
        if line["ended"]:
            print(f"# {line['version']} {line['id']}: the engine ended: {line['ended'][:150]}")
            continue
        pool = estimate(options.memtally, options.engine, line["version"], point, pathlib.Path(options.configs))
        if isinstance(pool, str):
            print(f"# {line['version']} {line['id']}: no estimate: {pool[:150]}")
            holds, offs = dict.fromkeys(JUDGED, False), {}
        else:
            holds, offs = judge(line, pool)
        count(counts, line["version"], "kept back" if is_kept_back(options.engine, line["version"], point) else "", holds)
        print(f"# {line['version']:8} {line['id']:18} {words(offs)}{'' if holds.get('band', True) else '  outside of the band'}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("memtally", "engine", "table", "points", "configs", "floors"):
        parser.add_argument(name)
    options = parser.parse_args()
    counts = counts_of(options)
    floors = [row for row in read(options.floors) if row["engine"] == options.engine]
    print(f"1..{len(floors)}")
    worse = 0
    for number, floor in enumerate(floors, 1):
        held, n = counts.get((floor["version"], floor["kept_back"]), {}).get(floor["what"], (0, 0))
        holds = held >= int(floor["held"])
        print(f"{'ok' if holds else 'not ok'} {number} - {floor['what']} of {options.engine} {floor['version']} {floor['kept_back']} ".rstrip() +
              f": {held} of {n}, at least {floor['held']}")
        worse += not holds
    sys.exit(1 if worse or not floors else 0)


if __name__ == "__main__":
    main()
