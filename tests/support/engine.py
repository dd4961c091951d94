# SPDX-License-Identifier: MIT
"""Where the real engines are, for tests that run them. Knows the variables that scripts/test sets."""

import functools
import glob
import json
import os
import select
import time

import memtally
import tap


def _folder(variable):
    value = os.environ.get(variable)
    if not value:
        raise AssertionError(f"{variable} is not set; run the engine tests by make test")
    return value


def listening(server, seconds=60):
    """What a server writes until it says that it is listening, or ends, or so much time is over."""
    text, until = b"", time.monotonic() + seconds
    while b"listening" not in text and time.monotonic() < until:
        if select.select([server.stdout], [], [], 1)[0]:
            piece = os.read(server.stdout.fileno(), 65536)
            if not piece:
                break
            text += piece
    return text


def node():
    """The Node.js program."""
    return _folder("MEMTALLY_NODE")


def node_llama_cpp():
    """The folder that holds node_modules."""
    return _folder("MEMTALLY_NODE_LLAMA_CPP")


def llama_cpp(program):
    """A program of llama.cpp, such as llama-bench."""
    return os.path.join(_folder("MEMTALLY_LLAMA_CPP"), program)


@functools.cache
def cpu():
    """The kind of processor by which llama_cpp() lays out weights, as --cpu names it: this machine's, unless AMX was
    left out of the build."""
    named = os.environ.get("MEMTALLY_CPU")
    if not named:
        checks = json.loads(memtally.run("doctor", "--json").stdout)["checks"]
        (check,) = [check for check in checks if check["name"] == "processor"]
        named = check["finding"].partition(":")[0]
    if named != "amx":
        return named
    for path in glob.glob(llama_cpp("libggml-cpu*.so")):
        with open(path, "rb") as file:
            if b"AMX is not ready" in file.read():
                return named
    return "avx512"


def torch():
    """The Python that has PyTorch and transformers."""
    if os.environ.get("MEMTALLY_NO_TORCH"):
        raise tap.Skip(f"no PyTorch: {os.environ['MEMTALLY_NO_TORCH']}")
    return _folder("MEMTALLY_TORCH")
