#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a rehearsal adds to the engine's own time and memory, what a sweep takes, and what an allocation costs.

usage: bench_rehearse.py MEMTALLY PRETEND BARE_DEVICE BENCH_ALLOC. The engine is llama.cpp, in PATH or in the cache. The same
plans are made in turn on the rehearsal's devices and on bare ones, which are the least that ggml takes: what
the engine itself spends on a plan for so many devices is in both. BENCH_POINTS are the sweep's (1000).
"""

import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import bench_model

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conformance"))
import oracle_shapes  # noqa: E402

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
GIB = 2**30
SWEEP = "context=1k..512k,ubatch={ubatch},sequences=1,2,4,8,16,kv-type=f16,q8_0,flash-attn=on,off"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


def engine(program):
    """A program of llama.cpp: in PATH, or the cache's newest that has all of them."""
    found = shutil.which(program)
    folders = glob.glob(os.path.join(bench_model.cache_folder(), "engines", "llama.cpp-*"))
    whole = [folder for folder in folders if os.path.exists(os.path.join(folder, "llama-server"))]
    build = lambda folder: int(re.search(r"llama\.cpp-(\d+)", folder)[1])  # noqa: E731
    return found or (os.path.join(max(whole, key=build), program) if whole else None)


class Cost:
    """What runs of a command cost, in lists of milliseconds."""

    def __init__(self):
        self.wall, self.processor = [], []

    def add(self, start, usage):
        self.wall.append((time.perf_counter() - start) * 1e3)
        self.processor.append((usage.ru_utime + usage.ru_stime) * 1e3)

    def middle(self, what):
        return statistics.median(getattr(self, what))

    def least(self, what):
        """What other work on the machine cannot have added."""
        return min(getattr(self, what))


class Peaks(Cost):
    """Runs that are not timed: the peak memory in MiB of the process itself, and of the largest that it
    started, looked at while they run. What the kernel tells at their end counts the parent's memory too."""

    def __init__(self):
        super().__init__()
        self.own, self.engine = [], []

    def look(self, process):
        pid, own, engine = process.pid, 0, 0
        while process.poll() is None:
            own = max(own, high_water(pid))
            engine = max(engine, max((high_water(child) for child in children(pid)), default=0))
            time.sleep(0.001)
        self.own.append(own)
        self.engine.append(engine or own)


def high_water(pid):
    try:
        found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) / 1024 if found else 0


def children(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def run(command, cost, environment=None):
    """A whole process with what it waited for."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, **QUIET)
    if isinstance(cost, Peaks):
        cost.look(process)
    else:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cost.add(start, usage)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def is_ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def run_server(command, cost, environment):
    """A server from its start until it is ready and has been ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--port", str(port)], env={**os.environ, **environment}, **QUIET)
    while not is_ready(port):
        if process.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    if isinstance(cost, Peaks):
        cost.look(process)
    else:
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        cost.add(start, usage)


def row(name, cost, peaks):
    print(f"    {name:14} wall {cost.middle('wall'):8.1f} ms   processor {cost.middle('processor'):8.1f} ms   "
          f"peak of the engine {peaks.middle('engine'):6.1f} MiB")


def show(costs, peaks):
    for name, cost, peak in zip(("bare devices", "rehearsed"), costs, peaks):
        row(name, cost, peak)
    wall, processor = (costs[1].middle(what) - costs[0].middle(what) for what in ("wall", "processor"))
    least = [costs[1].least(what) - costs[0].least(what) for what in ("wall", "processor")]
    print(f"    {'added':14} wall {wall:+8.1f} ms   processor {processor:+8.1f} ms   engine "
          f"{peaks[1].middle('engine') - peaks[0].middle('engine'):+.1f} MiB, memtally itself {peaks[1].middle('own'):.1f} MiB")
    print(f"    {'of the fastest':14} wall {least[0]:+8.1f} ms   processor {least[1]:+8.1f} ms")


class Bench:
    def __init__(self, memtally, pretend, bare, folder):
        self.memtally, self.pretend, self.bare, self.folder = memtally, pretend, bare, folder

    def rehearsal(self, n, gib):
        return [self.memtally, "rehearse", "--quiet", "--no-suggest", "--requests", "0", "--output", "/dev/null",
                "--device", f"{n}x{gib}GiB", "--"]

    def compare(self, what, command, n, gib):
        """The same command in turn on bare devices and on the rehearsal's."""
        costs, peaks = (Cost(), Cost()), (Peaks(), Peaks())
        command = [*command, "-dev", ",".join(f"CUDA{i}" for i in range(n))]
        environment = {"GGML_BACKEND_PATH": self.bare, "BARE_DEVICES": str(n), "BARE_BYTES": str(gib * GIB)}
        run_bare = run_server if "llama-server" in command[0] else run
        for bare, rehearsed in [peaks] * 3 + [costs] * ROUNDS:  # the first of them warm what is cached
            run_bare(command, bare, environment)
            run([*self.rehearsal(n, gib), *command], rehearsed)
        print(f"  {what}, {n} x {gib} GiB")
        show(costs, peaks)
        return costs[0]

    def absolute(self, what, command, n, gib):
        """Where bare devices would read the whole file, there is nothing to compare with."""
        cost, peaks = Cost(), Peaks()
        for each in (peaks, *[cost] * ROUNDS):
            run([*self.rehearsal(n, gib), *command], each)
        print(f"  {what}, {n} x {gib} GiB; bare devices would read the whole file")
        row("rehearsed", cost, peaks)
        print(f"    {'':14} memtally itself {peaks.middle('own'):.1f} MiB")

    def shape(self, name):
        path = os.path.join(self.folder, name + ".gguf")
        oracle_shapes.Model(*oracle_shapes.SHAPES[name]).write(path)
        return path

    def sample(self, name):
        path = os.path.join(self.folder, name + "-sample.gguf")
        subprocess.run([self.memtally, "sample-model", name, path, "--sparse", "--type", "q4_k"], check=True, **QUIET)
        return path

    def overhead(self):
        fit = [engine("llama-fit-params"), "--fit-print", "on", "-c", "4096", "-m"]
        serve = [engine("llama-server"), "--no-warmup", "-ngl", "99", "-c", "4096", "-m"]
        small, giant = self.shape("llama3-8b"), self.shape("deepseek-v3")
        print(f"what a rehearsal adds to {fit[0]}, medians of {ROUNDS} turns")
        alone = self.compare("llama-fit-params, llama3-8b", [*fit, small], 1, 24)
        self.compare("llama-fit-params, llama3-8b", [*fit, small], 4, 1024)
        self.compare(f"llama-fit-params, deepseek-v3 ({os.path.getsize(giant) / 1e9:.0f} GB)", [*fit, giant], 4, 1024)
        self.compare("llama-server until ready, smollm-135m", [*serve, self.sample("smollm-135m")], 4, 1024)
        self.absolute("llama-server until ready, deepseek-v3", [*serve, giant], 4, 1024)
        return alone

    def peers(self):
        """One plan for a device of 24 GiB, of a model with its vocabulary."""
        sample = self.sample("llama-3.1-8b")
        fit, bare = engine("llama-fit-params"), {"GGML_BACKEND_PATH": self.bare}
        commands = {"llama-fit-params": [fit, "--fit-print", "on", "-dev", "CUDA0", "-c", "4096", "-m", sample],
                    "memtally rehearse": [self.memtally, "rehearse", "--quiet", "--output", "/dev/null", "--engine-path", fit,
                                          "--program", "fit-params", sample, "-d", "24GiB", "-c", "4096"],
                    "memtally estimate": [self.memtally, "estimate", "--no-rehearse", sample, "-d", "24GiB", "-c", "4096"]}
        parser = shutil.which("gguf-parser")
        if parser:
            commands["gguf-parser-go"] = [parser, "--path", sample, "--estimate", "--ctx-size", "4096", "--json"]
        costs = {name: Cost() for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                run(command, costs[name], bare if command[0] == fit else None)
        first = costs["llama-fit-params"].middle("processor")
        print("one plan of llama-3.1-8b with its vocabulary, as a whole process")
        for name, cost in costs.items():
            print(f"  {name:18} wall {cost.middle('wall'):8.1f} ms   processor {cost.middle('processor'):8.1f} ms   "
                  f"{cost.middle('processor') / first:.2f} x")
        if not parser:
            print("  gguf-parser-go     not on PATH")

    def sweep(self, alone):
        wanted = int(os.environ.get("BENCH_POINTS", "1000"))
        wide = max(1, wanted // 200)
        axes = SWEEP.format(ubatch=",".join(str(64 * (i + 1)) for i in range(wide)))
        processors = sorted(os.sched_getaffinity(0))[:2]
        command = [self.memtally, "rehearse", "--quiet", "--output", "/dev/null", "--format", "csv", "--engine-path",
                   os.path.dirname(engine("llama-server")), self.sample("llama-3.1-8b"), "-d", "24GiB,24GiB", "--sweep", axes]
        os.sched_setaffinity(0, processors)
        cost = Cost()
        run(command, cost)
        n = wide * 200
        wall, processor = cost.wall[0] / 1e3, cost.processor[0]
        print(f"a sweep of {n} points on {len(processors)} processors: {wall:.1f} s, {processor / n:.1f} ms of processor a point")
        print(f"  1000 points {wall * 1000 / n:6.1f} s; 1000 runs of llama-fit-params on bare devices would take "
              f"{alone.middle('processor') / len(processors):.1f} s and more")


def bench_alloc(memtally, pretend, program):
    """Without, with the object and no rehearsal, and rehearsed."""
    ways = {"without": ([program], {}), "preloaded, not rehearsed": ([program], {"LD_PRELOAD": pretend}), "rehearsed": None}
    print("an allocation, made, touched and given back, in nanoseconds")
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways.items():
            figures = []
            for number in range(5):
                if way:
                    text = subprocess.run(way[0], env={**os.environ, **way[1]}, check=True, capture_output=True, text=True).stdout
                else:
                    kept = os.path.join(folder, str(number))
                    subprocess.run([memtally, "rehearse", "-q", "-d", "1GiB", "--folder", kept, "--", program], check=True, **QUIET)
                    text = pathlib.Path(kept, "output").read_text()
                figures.append([float(word) for word in text.split()])
            small, beside, large = (statistics.median(column) for column in zip(*figures))
            print(f"  {name:24} 100 bytes {small:6.1f}   beside a large block {beside:6.1f}   2 MiB {large:8.1f}")


def main():
    memtally, pretend, bare, program = sys.argv[1:]
    bench_alloc(memtally, pretend, program)
    if not engine("llama-fit-params") or not engine("llama-server"):
        print("llama.cpp is neither on PATH nor in the cache: nothing to rehearse")
        return
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(memtally, pretend, bare, folder)
        alone = bench.overhead()
        bench.peers()
        bench.sweep(alone)


if __name__ == "__main__":
    main()
