#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the recorder costs whole programs, in the default depth.

usage: bench_programs.py MEMTALLY RECORDER SPAWN. Each runs in turn with the recorder and without. The figures are
processor time, which other work on the machine changes least; of several turns the least, and the middle of the
ratios turn by turn with the interval that it lies in, 95 times of 100. What is not installed is left out: redis, llama.cpp in PATH or in the cache, and PyTorch with
transformers in the Python that BENCH_PYTHON names.
"""

import math
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_rehearse

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
GENERATE = """
import sys, time, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
words, width, within, layers, heads, pairs, new = map(int, sys.argv[1:])
config = LlamaConfig(vocab_size=words, hidden_size=width, intermediate_size=within, num_hidden_layers=layers,
                     num_attention_heads=heads, num_key_value_heads=pairs, tie_word_embeddings=True)
model, tokens = LlamaForCausalLM(config).eval(), torch.randint(0, 2048, (1, 32))
for turn in sys.stdin:
    start = time.process_time()
    model.generate(tokens, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)
    print(time.process_time() - start, flush=True)
"""
# What GENERATE is given, and how many turns it has for each of ROUNDS. The small one shows the cost of a token at its worst, the other
# has the shape of SmolLM2-135M, the smallest model of its kind that people run.
MODELS = {"5M parameters": ("2048 256 704 6 8 4 48", 12), "SmolLM2-135M": ("49152 576 1536 30 9 3 16", 3)}


class Recorded:
    """An environment with the recorder, or without; what was recorded goes at the end."""

    def __init__(self, recorder, folder):
        self.recorder, self.folder = recorder, folder

    def environment(self, recorded, **more):
        with_recorder = {"LD_PRELOAD": self.recorder, "MEMTALLY_RECORD_DIR": self.folder} if recorded else {}
        return dict(os.environ, **with_recorder, **more)

    def clear(self):
        for entry in os.scandir(self.folder):
            os.unlink(entry.path)

    def pairs(self, measure, rounds):
        """Two lists of what `measure` says of an environment: without and with. The order changes from turn to turn."""
        found = ([], [])
        for turn in range(rounds):
            for recorded in (0, 1) if turn % 2 else (1, 0):
                found[recorded].append(measure(recorded))
            self.clear()
        return found


def interval(values):
    """Where the middle of all turns that might be lies, 95 times of 100: between two ranks of those that were."""
    ordered = sorted(values)
    apart = 0.98 * math.sqrt(len(ordered))
    middle = (len(ordered) - 1) / 2
    return ordered[max(math.floor(middle - apart), 0)], ordered[min(math.ceil(middle + apart), len(ordered) - 1)]


def show(name, plain, recorded, unit):
    """The rate with the recorder as a part of the rate without: by the least times, and turn by turn."""
    ratios = [a / b for a, b in zip(plain, recorded)]
    low, high = interval(ratios)
    print(
        f"  {name:40} {min(plain):8.3f} -> {min(recorded):8.3f} {unit:13} rate {min(plain) / min(recorded):.4f}, "
        f"middle of {len(plain)} pairs {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f})",
        flush=True,
    )


def bench_spawn(world, spawn):
    """Forks, forks with exec, and the least program of all."""
    for program, name in (("-", "fork"), ("/bin/true", "fork and exec of /bin/true")):
        call = lambda on: float(  # noqa: E731
            subprocess.run(
                [spawn, "200", program], env=world.environment(on), capture_output=True, text=True, check=True
            ).stdout.split()[0]
        )
        plain, recorded = world.pairs(call, ROUNDS)
        print(f"  {name:40} {min(plain):8.3f} -> {min(recorded):8.3f} ms, {min(recorded) - min(plain):+.3f}", flush=True)


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of(command, environment):
    before = children_seconds()
    subprocess.run(command, env=environment, check=True, **QUIET)
    return children_seconds() - before


def bench_run(memtally, folder):
    """`memtally run` of a program that does nothing, all of it: the recording, the report's table."""
    costs = bench_rehearse.Cost()
    for turn in range(3 * ROUNDS):
        output = os.path.join(folder, f"run-{turn}")
        start, before = time.perf_counter(), children_seconds()
        subprocess.run([memtally, "run", "-o", output, "--", "/bin/true"], check=True, **QUIET)
        costs.wall.append((time.perf_counter() - start) * 1e3)
        costs.processor.append((children_seconds() - before) * 1e3)
        shutil.rmtree(output, ignore_errors=True)
    print(
        f"  memtally run /bin/true             {costs.least('processor'):8.3f} ms of processor time, "
        f"{costs.least('wall'):.3f} ms by the clock, in all",
        flush=True,
    )


def processor_of(pid):
    """Seconds that a process has run, by the scheduler, which counts finer than the ticks of `stat`."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Redis:
    """A server of its own; a turn is redis-benchmark's four commands against it, of 5,000 requests each."""

    REQUESTS = 5000

    def __init__(self, environment, folder, name):
        self.socket = os.path.join(folder, name)
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, env=environment, cwd=folder, **QUIET)
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                raise RuntimeError("redis-server ended")
            time.sleep(0.05)
        self.turn()

    def turn(self):
        """Microseconds of the server's processor time a request."""
        before = processor_of(self.process.pid)
        subprocess.run(
            ["redis-benchmark", "-s", self.socket, "-t", "set,get,lpush,lpop", "-n", str(self.REQUESTS), "-r", "100000"],
            check=True,
            **QUIET,
        )
        return (processor_of(self.process.pid) - before) / (4 * self.REQUESTS) * 1e6


def bench_redis(world):
    """Both servers live through all of it, so that neither begins anew."""
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        print("  redis-benchmark: not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        servers = [Redis(world.environment(on), folder, f"socket-{on}") for on in (0, 1)]
        try:
            found = ([], [])
            for turn in range(10 * ROUNDS):
                for on in (0, 1) if turn % 2 else (1, 0):
                    found[on].append(servers[on].turn())
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()
    world.clear()
    show("redis-benchmark, server", *found, "us a request")


def bench_llama(world, memtally, folder):
    program = bench_rehearse.engine("llama-bench")
    if not program:
        print("  llama-bench: not installed")
        return
    model = os.path.join(folder, "model.gguf")
    subprocess.run([memtally, "sample-model", "smollm-135m", model, "--random", "--type", "q8_0"], check=True, **QUIET)
    command = [program, "-m", model, "-p", "64", "-n", "16", "-t", "1", "-r", "1"]
    library_path = {"LD_LIBRARY_PATH": os.path.dirname(program)}
    found = world.pairs(lambda on: seconds_of(command, world.environment(on, **library_path)), 5 * ROUNDS)
    os.unlink(model)
    show("llama-bench, all of it", *found, "s")


class Generator:
    """A program of PyTorch that goes on for the whole bench; a turn is one generate, in its own processor time."""

    def __init__(self, command, environment, model):
        python = os.environ.get("BENCH_PYTHON", sys.executable)
        self.process = subprocess.Popen(
            [*command, python, "-c", GENERATE, *model.split()], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for _ in range(3):
            self.turn()

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


def bench_torch(world, memtally, folder):
    """Measures short turns one after the other, so that what else the machine does is in all of them."""
    python = os.environ.get("BENCH_PYTHON", sys.executable)
    probe = subprocess.run([python, "-c", "import torch, transformers"], **QUIET)
    if probe.returncode != 0:
        print("  PyTorch generate: no PyTorch and transformers in", re.sub(r"^.*/", "", python))
        return
    for name, (model, turns) in MODELS.items():
        bench_generate(world, memtally, os.path.join(folder, name.split()[0]), name, model, turns * ROUNDS)


def bench_generate(world, memtally, folder, name, model, turns):
    run = lambda way, *more: [memtally, "run", "-q", "-o", f"{folder}-{way}", *more, "--"]  # noqa: E731
    plain = world.environment(0)
    ways = {
        "without": Generator([], plain, model),
        "recorder alone": Generator([], world.environment(1), model),
        "memtally run": Generator(run("whole"), plain, model),
        "run --layers": Generator(run("layers", "--layers"), plain, model),
    }
    found = {way: [] for way in ways}
    for turn in range(turns):
        for way in sorted(ways, key=lambda way: hash((turn, way))):
            found[way].append(ways[way].turn())
    for generator in ways.values():
        generator.end()
    for way in list(ways)[1:]:
        show(f"generate, {name}, {way}", found["without"], found[way], "s")
    world.clear()


def main():
    memtally, recorder, spawn = (os.path.abspath(path) for path in sys.argv[1:4])
    print("whole programs, without the recorder and with it:")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        world = Recorded(recorder, tempfile.mkdtemp(dir=folder))
        bench_spawn(world, spawn)
        bench_run(memtally, folder)
        bench_redis(world)
        bench_llama(world, memtally, folder)
        bench_torch(world, memtally, folder)


if __name__ == "__main__":
    main()
