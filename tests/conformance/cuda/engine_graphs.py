#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA graphs that vLLM and SGLang capture, on a pretended device, against what the logs of the same runs say: how many of each
kind, of which sizes, and the drafts.

usage: engine_graphs.py MEMTALLY [--python ENGINE=PATH]... [ENGINE...], or engine_graphs.py MEMTALLY --folder DIR of a rehearsal
that is there. Prints a line for each engine and fails where one does not agree with its log.
"""

import ast
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bare_configs import asked
from profiles import CONFIG
from run_graphs import DRAFT

PROGRAM = pathlib.Path(__file__).resolve().parent / "run_graphs.py"
# Bars of progress that have come to their end: what stands before the numbers, and how many graphs there are.
BAR = re.compile(r"Capturing ([^\r\n%]*?): 100%\|[^|\r\n]*\| (\d+)/\2 ")
# SGLang's bars, which name each size as they come to it; vLLM's have their kind in brackets.
KINDS = {"batches": "FULL", "num tokens": "PREFILL", "prefill shape": "PREFILL"}
EACH = re.compile(r"Capturing batches \(bs=(\d+) ")
SIZES = (r"cudagraph_capture_sizes'?[:=] ?(\[[\d, ]+\])", r"Capture (?:decode )?cuda graph bs (\[[\d, ]+\])")
DRAFTS = (r"num_spec_tokens=(\d+)", r"speculative_num_draft_tokens=(\d+)")


def kind_of(bar):
    word = re.search(r"\((?:[^=()]* )?([A-Z_]+)\)", bar)
    return word[1] if word else KINDS.get(bar.partition("(")[0].strip(), bar)


def last(patterns, text):
    """What the last line says that has one of the patterns, or None."""
    found = [match for pattern in patterns for match in re.findall(pattern, text)]
    return found[-1] if found else None


def said_by(log):
    """({kind: graphs}, sizes or None, drafts or None): an engine that captures some graphs to measure them says so before."""
    sizes, drafts = last(SIZES, log), last(DRAFTS, log)
    sizes = ast.literal_eval(sizes) if sizes else sorted({int(size) for size in EACH.findall(log)}) or None
    return {kind_of(bar): int(n) for bar, n in BAR.findall(log)}, sizes, int(drafts) if drafts else None


def rounded(sizes, drafts):
    """What vLLM from 0.12.0 to before 0.33.0 makes of its sizes where it drafts: multiples of a request's tokens, up to the largest."""
    each = 1 + (drafts or 0)
    return sorted({-(-size // each) * each for size in sizes if -(-size // each) * each <= max(sizes)})


def wrong(run, log):
    """What is not as the log says, as sentences."""
    counts, sizes, drafts = said_by(log)
    seen = collections.Counter(graph["kind"] for graph in run["graphs"])
    problems = [] if counts else ["the log names no graphs"]
    problems += [f"{seen[kind]} graphs of {kind}, {counts.get(kind, 0)} by the log" for kind in sorted({*counts, *seen}, key=str)
                 if seen[kind] != counts.get(kind, 0)]
    kind, key = ("PIECEWISE", "tokens") if "PIECEWISE" in counts else ("FULL", "batch")
    captured = sorted(graph[key] for graph in run["graphs"] if graph["kind"] == kind)
    if sizes is None or captured not in (sorted(sizes), rounded(sizes, drafts)):
        problems.append(f"sizes of {kind} are {captured}, {sizes} by the log")
    lengths = {graph["draft"] for graph in run["graphs"] if graph["kind"] == "FULL"}
    told = "by the log" if drafts is not None else "were asked for"
    drafts = DRAFT if drafts is None else drafts
    if not {drafts, drafts - 1} & lengths:
        problems.append(f"drafts of {sorted(lengths, key=str)}, {drafts} {told}")
    return problems


def compare(memtally, folder):
    log = "".join((pathlib.Path(folder) / name).read_text(encoding="utf-8", errors="replace") for name in ("output", "errors"))
    listed = subprocess.run([memtally, "graphs", "--json", folder], capture_output=True, text=True, check=False)
    if listed.returncode:
        return [listed.stderr[-900:]], None
    (run,) = json.loads(listed.stdout)["runs"]
    return wrong(run, log), run


def rehearse(memtally, engine, python):
    with tempfile.TemporaryDirectory() as folder:
        model, run = os.path.join(folder, "model"), os.path.join(folder, "run")
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        done = subprocess.run([memtally, "rehearse", "--device", "H100-80GB", "--folder", run, "--requests", "0", "--no-suggest", "--json",
                               "--timeout", "3000", "--", python, str(PROGRAM), engine.partition("-")[0], model],
                              capture_output=True, text=True, check=False)
        said = json.loads(done.stdout or "{}").get("rehearsal")
        if not said:
            return [done.stderr[-900:]], None
        if done.returncode or said["outcome"] != "ran":
            words = [line for line in (said["last_words"] or "").splitlines() if line.strip()]
            return [f"it {said['outcome']}: {' / '.join(words[-3:])[-600:]}"], None
        return compare(memtally, run)


def show(engine, problems, run):
    said = "; ".join(problems) or "as its log"
    print(f"{engine}: {run['num_cuda_graphs'] if run else 0} graphs, {run['graph_breakdown'] if run else {}}: {said}", flush=True)
    return bool(problems)


def main():
    if "--folder" in sys.argv:
        folder = sys.argv[sys.argv.index("--folder") + 1]
        sys.exit(show(folder, *compare(sys.argv[1], folder)))
    memtally, engines = asked(__doc__)
    sys.exit(any([show(engine, *rehearse(memtally, engine, python)) for engine, python in engines]))


if __name__ == "__main__":
    main()
