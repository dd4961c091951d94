# SPDX-License-Identifier: MIT
"""Rehearsing the programs on PyTorch of tests/engines/torch, which write down what they saw."""

import json
import os
import tempfile

import engine
import memtally
import ports

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engines", "torch")


def rehearse(program, device="24GiB", statuses=(0,), allocator="", may_die=False):
    """What a program wrote down, and the document of its rehearsal. `allocator` is its PYTORCH_CUDA_ALLOC_CONF; one
    that may die may have written nothing (None)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=allocator) if allocator else None
        done = memtally.run("rehearse", "--device", device, "--requests", "0", "--no-suggest", "--json", "--",
                            engine.torch(), os.path.join(PROGRAMS, program), path, env=environment)
        assert done.returncode in statuses and done.stdout, (done.returncode, done.stderr[-3000:])
        document = json.loads(done.stdout)
        if may_die and not os.path.exists(path):
            return None, document
        assert os.path.exists(path), (done.stderr[-3000:], done.stdout[-3000:])
        with open(path, encoding="utf-8") as file:
            return json.load(file), document


def rehearse_ranks(program, device, statuses=(0,)):
    """The same of two processes that torchrun starts: what each wrote down, by its rank, and the document. They meet at
    an address and not at a name, which a bare machine may not know."""
    port = ports.free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures")
        done = memtally.run("rehearse", "--device", device, "--requests", "0", "--no-suggest", "--json", "--", engine.torch(), "-m",
                            "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
                            os.path.join(PROGRAMS, program), path)
        assert done.returncode in statuses and done.stdout, (done.returncode, done.stderr[-3000:])
        said = []
        for rank in (0, 1):
            with open(f"{path}.{rank}", encoding="utf-8") as file:
                said.append(json.load(file))
        return said, json.loads(done.stdout)
