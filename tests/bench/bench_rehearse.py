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
    """What runs of a command cost: lists of milliseconds and MiB."""

    def __init__(self):
        self.wall, self.processor, self.peak = [], [], []

    def add(self, start, usage):
        self.wall.append((time.perf_counter() - start) * 1e3)
        self.processor.append((usage.ru_utime + usage.ru_stime) * 1e3)
        self.peak.append(usage.ru_maxrss / 1024)

    def middle(self, what):
        return statistics.median(getattr(self, what))


def run(command, cost, environment=None):
    """A whole process with what it waited for; the peak is that of the largest process among them."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, **QUIET)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    cost.add(start, usage)


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
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    cost.add(start, usage)


def own_peak_mib(command):
    """The peak memory of the process alone, by looking at it while it runs; not timed."""
    process = subprocess.Popen(command, **QUIET)
    peak = 0
    while process.poll() is None:
        try:
            found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            break
        peak = max(peak, int(found[1]) if found else 0)
        time.sleep(0.002)
    process.wait()
    return peak / 1024


def show(bare, rehearsed, own):
    for name, cost in (("bare devices", bare), ("rehearsed", rehearsed)):
        print(f"    {name:22} wall {cost.middle('wall'):8.1f} ms   processor {cost.middle('processor'):8.1f} ms   "
              f"peak of the engine {cost.middle('peak'):6.1f} MiB")
    added = {what: rehearsed.middle(what) - bare.middle(what) for what in ("wall", "processor", "peak")}
    print(f"    {'added':22} wall {added['wall']:+8.1f} ms   processor {added['processor']:+8.1f} ms   "
          f"engine {added['peak']:+.1f} MiB, memtally itself {own:.1f} MiB")


class Bench:
    def __init__(self, memtally, pretend, bare, folder):
        self.memtally, self.pretend, self.bare, self.folder = memtally, pretend, bare, folder

    def rehearsal(self, n, gib):
        return [self.memtally, "rehearse", "--quiet", "--no-suggest", "--requests", "0", "--output", "/dev/null",
                "--device", f"{n}x{gib}GiB", "--"]

    def compare(self, what, command, n, gib):
        """The same command in turn on bare devices and on the rehearsal's."""
        bare, rehearsed = Cost(), Cost()
        command = [*command, "-dev", ",".join(f"CUDA{i}" for i in range(n))]
        environment = {"GGML_BACKEND_PATH": self.bare, "BARE_DEVICES": str(n), "BARE_BYTES": str(gib * GIB)}
        run_bare = run_server if "llama-server" in command[0] else run
        for number in range(ROUNDS + 1):
            kept = (bare, rehearsed) if number else (Cost(), Cost())  # the first round warms what is cached
            run_bare(command, kept[0], environment)
            run([*self.rehearsal(n, gib), *command], kept[1])
        own = statistics.median(own_peak_mib([*self.rehearsal(n, gib), *command]) for _ in range(3))
        print(f"  {what}, {n} x {gib} GiB")
        show(bare, rehearsed, own)
        return bare.middle("wall"), bare.middle("processor")

    def absolute(self, what, command, n, gib):
        """Where bare devices would read the whole file, there is nothing to compare with."""
        cost = Cost()
        for _ in range(ROUNDS // 2):
            run([*self.rehearsal(n, gib), *command], cost)
        print(f"  {what}, {n} x {gib} GiB, nothing to compare with")
        print(f"    {'rehearsed':22} wall {cost.middle('wall'):8.1f} ms   processor {cost.middle('processor'):8.1f} ms   "
              f"peak of the engine {cost.middle('peak'):6.1f} MiB, memtally itself "
              f"{own_peak_mib([*self.rehearsal(n, gib), *command]):.1f} MiB")

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

    def peers(self, alone):
        print("one plan, as a whole process")
        print(f"  llama-fit-params        wall {alone[0]:8.1f} ms   processor {alone[1]:8.1f} ms   on bare devices, no vocabulary")
        sample = self.sample("llama-3.1-8b")
        commands = {"memtally rehearse": [self.memtally, "rehearse", "--quiet", "--output", "/dev/null", "--engine-path",
                                          engine("llama-fit-params"), "--program", "fit-params", sample, "-d", "24GiB", "-c", "4096"],
                    "memtally estimate": [self.memtally, "estimate", "--no-rehearse", sample, "-d", "24GiB", "-c", "4096"]}
        parser = shutil.which("gguf-parser")
        if parser:
            commands["gguf-parser"] = [parser, "--path", sample, "--estimate", "--ctx-size", "4096", "--json"]
        for name, command in commands.items():
            cost = Cost()
            for _ in range(ROUNDS):
                run(command, cost)
            print(f"  {name:22}  wall {cost.middle('wall'):8.1f} ms   processor {cost.middle('processor'):8.1f} ms")
        if not parser:
            print("  gguf-parser-go        not on PATH")

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
              f"{alone[1] / len(processors):.1f} s and more")


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
                    subprocess.run([memtally, "rehearse", "-q", "-d", "1GiB", "--folder", kept, "--", program], check=False, **QUIET)
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
        bench.peers(alone)
        bench.sweep(alone)


main()
