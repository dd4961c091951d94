#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reading model headers and estimating: memtally, Python's gguf and gguf-parser-go in turn, over the same files.

usage: bench_model.py BENCH_MODEL MEMTALLY"""

import glob
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import split_gguf

TENSORS = 92000
ROUNDS = 5
CONFIG = os.path.join(os.path.dirname(__file__), "..", "conformance", "configs", "llama-3.1-8b.json")

READER = """
import glob, sys, time
from gguf import GGUFReader
start = time.perf_counter()
tensors = sum(len(GGUFReader(path).tensors) for path in sorted(glob.glob(sys.argv[1] + "/*.gguf")))
print((time.perf_counter() - start) * 1e3, tensors)
"""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MEMTALLY_CACHE") or os.path.join(base, "memtally")


def python_with_gguf():
    """A Python that has the gguf package: this one, or one in a virtual environment of the cache."""
    if importlib.util.find_spec("gguf"):
        return sys.executable
    folder = os.path.join(cache_folder(), "bench-venv")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(os.path.join(folder, "ready")):
        print("setting up a virtual environment with the gguf package", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", "gguf"], check=True, stderr=subprocess.DEVNULL)
        open(os.path.join(folder, "ready"), "w").close()
    return python


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def process_ms(*command):
    """The whole process, from before its start to after its end."""
    start = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


def bench_headers(bench_model, folder):
    first, header_bytes, file_bytes = split_gguf.write(folder, TENSORS)
    print(f"header of a split GGUF: {TENSORS} tensors, {len(glob.glob(folder + '/*.gguf'))} files, "
          f"{file_bytes / 1e12:.2f} TB with holes, headers {header_bytes / 2**20:.2f} MiB")
    ours, peak, python, go = [], [], [], []
    reader = python_with_gguf()
    parser = shutil.which("gguf-parser")
    for number in range(ROUNDS):
        milliseconds, tensors, kib = output(bench_model, first, "9")
        assert int(tensors) == TENSORS
        ours.append(float(milliseconds))
        peak.append(int(kib) * 1024)
        if number < 2:
            milliseconds, tensors = output(reader, "-c", READER, folder)
            assert int(tensors) == TENSORS
            python.append(float(milliseconds))
        if parser:
            go.append(process_ms(parser, "--path", first, "--estimate", "--json"))
    middle = statistics.median(ours)
    print(f"  memtally              {middle:10.2f} ms   peak memory {statistics.median(peak) / header_bytes:.2f} x the headers")
    print(f"  Python's gguf         {statistics.median(python):10.2f} ms   {statistics.median(python) / middle:.0f} x")
    if go:
        print(f"  gguf-parser (process) {statistics.median(go):10.2f} ms   {statistics.median(go) / middle:.0f} x")
    else:
        print("  gguf-parser-go        not on PATH")


def bench_command(memtally, folder):
    def row(what, *arguments):
        times = [process_ms(memtally, "estimate", *arguments) for _ in range(41)]
        print(f"  {what:42} {statistics.median(times):7.2f} ms   best {min(times):.2f} ms")

    nothing = statistics.median(process_ms("/bin/true") for _ in range(41))
    print(f"whole processes of memtally estimate (/bin/true: {nothing:.2f} ms)")
    os.environ["MEMTALLY_NO_REHEARSE"] = "1"
    row("a config.json", CONFIG, "--engine", "vllm", "--device", "80GiB")
    sample = os.path.join(folder, "sample.gguf")
    subprocess.run([memtally, "sample-model", "llama-3.2-1b", sample, "--sparse", "--type", "q4_k"], check=True,
                   stdout=subprocess.DEVNULL)
    row("a GGUF with its vocabulary", sample, "--device", "24GiB")
    for query in ("--max-context", "--max-sequences", "--max-batch", "--smallest-device"):
        device = [] if query == "--smallest-device" else ["--device", "24GiB,24GiB"]
        row(f"a GGUF, {query}", sample, query, *device)


def main():
    bench_model, memtally = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/split")
        bench_headers(bench_model, folder + "/split")
        bench_command(memtally, folder)


if __name__ == "__main__":
    main()
