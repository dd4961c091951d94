#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rehearsals with node-llama-cpp, where it is all of llama.cpp that is at hand, as after `make demo`."""

import json
import os
import pty
import re
import tempfile

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
MODEL = os.path.join(SCRATCH.name, "model.gguf")


def environment():
    """A machine whose only engine is node-llama-cpp."""
    folder = os.path.join(SCRATCH.name, "engines")
    if not os.path.exists(folder):
        os.mkdir(folder)
        os.symlink(engine.node_llama_cpp(), os.path.join(folder, os.path.basename(engine.node_llama_cpp())))
        memtally.must("sample-model", "smollm-135m", MODEL, "--sparse", "--type", "q8_0")
    path = f"{os.path.dirname(engine.node())}:/usr/bin:/bin"
    kept = {key: value for key, value in os.environ.items() if key not in ("MEMTALLY_NO_REHEARSE", "MEMTALLY_CPU")}
    return dict(kept, MEMTALLY_ENGINES=folder, PATH=path)


def on_a_terminal(*arguments):
    """What memtally writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(memtally.program(), [memtally.program(), *arguments], dict(environment(), TERM="xterm"))
    text = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # its end
            piece = b""
        if not piece:
            break
        text += piece
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, text.decode(errors="replace")
    return text.decode(errors="replace")


def test_a_model_is_rehearsed_with_it():
    around = environment()
    document = json.loads(memtally.must("rehearse", MODEL, "--context", "512", "--json", env=around).stdout)
    assert document["settings"]["program"] == "node-llama-cpp", document["settings"]
    assert document["engine"]["path"] == engine.node(), document["engine"]
    provenances = {part["provenance"] for part in memtally.row(memtally.host(document), "weights")["detail"]}
    assert provenances == {"exact"}, document["places"]


def test_a_server_that_is_asked_for_is_not_replaced():
    around = environment()
    for more in (["--program", "server"], ["--requests", "2"]):
        done = memtally.run("rehearse", MODEL, "--context", "512", *more, env=around)
        assert done.returncode == 3 and "llama-server" in done.stderr, (more, done)


def test_an_estimate_for_it_is_rehearsed():
    around = environment()
    flags = ["estimate", MODEL, "--program", "node-llama-cpp", "--context", "512", "--json"]
    found = json.loads(memtally.must(*flags, env=around).stdout)
    assert found["engine"]["path"] == engine.node(), found["engine"]
    assert any(note.startswith("Rehearsed:") for note in found["notes"]), found["notes"]
    other = json.loads(memtally.must(*flags, "--engine", "llama.cpp@9840", env=around).stdout)
    assert other["engine"]["path"] is None, "the package's llama.cpp is of another version"


def test_a_version_that_it_is_not_of_is_refused():
    done = memtally.run("rehearse", MODEL, "--context", "512", "--engine", "llama.cpp@9840", env=environment())
    assert done.returncode != 0 and "9840 was asked for" in done.stderr, done


def test_progress_is_shown():
    around = environment()
    assert around
    text = on_a_terminal("rehearse", MODEL, "--context", "512")
    assert re.search(r"rehearsing: \d+ buffers, \d+\.\d s", text), text
    text = on_a_terminal("rehearse", MODEL, "--sweep", "context=512,1024")
    assert re.search(r"0 of 2 rehearsed, \d+ s", text), text


if __name__ == "__main__":
    tap.main(globals())
