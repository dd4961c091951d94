#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally guard --empty-slots on servers that answer, refuse, are silent, or are none. The program is a stand-in that has
llama-server's name and answers; the real one is in tests/engines. It ends by what it is asked, never by time."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]
FOLDER = tempfile.mkdtemp(prefix="memtally-guard-server-")
LONG = "10m"  # for a step that the program answers
SHORT = "1ms"  # for a step that it does not
STEP = re.compile(r" s  (\w+) ")

SERVER = """
import http.server, json, os, signal, sys, threading, time
way, told = sys.argv[1], sys.argv[2]
asked = []
answered = set()  # slots; another thread may still answer when a slot is empty
signal.signal(signal.SIGTERM, lambda *_: end(7))
def end(status):
    with open(told, "w") as file:
        json.dump(asked, file)
    os._exit(status)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        if way == "silent":
            time.sleep(3600)
        if way == "nonsense":
            return self.answer(200, [{"id": "x"}, 7, None])
        return self.answer(200, [{"id": slot, "is_processing": slot == 2} for slot in slots])
    def do_POST(self):
        asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        slot = int(self.path.split("/")[2].split("?")[0])
        slots[slot] = bytearray(0)
        if way in ("good", "ports"):
            self.answer(200, {"id_slot": slot, "n_erased": 500 + slot})
        else:
            self.answer(501, {"error": {"message": "no such\\x07 thing"}})
        answered.add(slot)
        if len(answered) == 2:
            end(9 if way == "refuses" else 0)
    def answer(self, status, said):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
class Other(Handler):
    def do_GET(self):
        self.answer(404, {"error": {"message": "no such path"}})
others = [Server(("127.0.0.1", 0), Other) for _ in range(3 if way == "ports" else 0)]
server = Server(("127.0.0.1", 0), Handler)
for other in others:
    threading.Thread(target=other.serve_forever, daemon=True).start()
slots = {0: bytearray(b"x") * (64 << 20), 1: bytearray(b"x") * (64 << 20), 2: bytearray(0)}
server.serve_forever()
"""


def guarded(name, way, *options):
    """What memtally did to a program of that name, or to a module, and what that was asked."""
    told = os.path.join(FOLDER, "told")
    is_module = "." in name
    path = os.path.join(FOLDER, *name.split(".")) + (".py" if is_module else "")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(SERVER)
    program = ["-m", name] if is_module else [path]
    if os.path.exists(told):
        os.unlink(told)
    done = subprocess.run(
        [MEMTALLY, "guard", "--limit", "160MiB", "--empty-slots", *options, "--", sys.executable, *program, way, told],
        capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ, PYTHONPATH=FOLDER),
    )  # fmt: skip
    asked = []
    if os.path.exists(told):
        with open(told, encoding="ascii") as file:
            asked = json.load(file)
    return done, STEP.findall(done.stderr), asked


def test_a_server_empties_the_slots_that_serve_nobody():
    done, steps, asked = guarded("llama-server", "good", "--grace", LONG)
    assert done.returncode == 0, done
    assert steps == ["ask"], done
    assert asked == ["/slots", "/slots/0?action=erase", "/slots/1?action=erase"], asked
    assert "emptied 2 slots of 1001 tokens, and serves in 1" in done.stderr, done


def test_why_a_server_refuses_is_said():
    done, steps, asked = guarded("llama-server", "refuses", "--grace", LONG)
    assert done.returncode == 9, done
    assert steps == ["ask"], done
    assert "emptied" not in done.stderr, done
    assert "refused with status 501: no such? thing" in done.stderr, done


def test_a_server_that_is_silent_keeps_nobody():
    done, steps, asked = guarded("llama-server", "silent", "--grace", SHORT, "--end", LONG)
    assert done.returncode == 7, done
    assert steps == ["ask", "end"], done


def test_nonsense_of_a_server_harms_nothing():
    done, steps, asked = guarded("llama-server", "nonsense", "--grace", "2s", "--end", LONG)
    assert done.returncode == 7, done
    assert steps == ["ask", "end"] and set(asked) <= {"/slots"}, (done, asked)


def test_another_service_of_the_program_is_passed_over():
    """Three ports that do not know the path, and the server's."""
    done, steps, asked = guarded("llama-server", "ports", "--grace", LONG)
    assert done.returncode == 0 and steps == ["ask"] and "emptied 2 slots of 1001 tokens" in done.stderr, done
    assert asked == ["/slots", "/slots/0?action=erase", "/slots/1?action=erase"], asked


def test_who_is_no_such_server_is_not_asked():
    for name, said in (("sglang.launch_server", "no endpoint that gives"), ("other-server", "no server of a known engine")):
        done, steps, asked = guarded(name, "good", "--grace", SHORT, "--end", LONG)
        assert (done.returncode, asked) == (7, []), (done, asked)
        assert steps == ["ask", "end"] and said in done.stderr, done


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
