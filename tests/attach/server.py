#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stands in for an engine's server: holds MIB of memory, answers what ANSWERS (a JSON object of paths) has, and calls itself TITLE if
that is set, as workers do that write over their command line and their environment. With WORKER=1 a child does that, and the parent
listens. With RUNNER, a command as a JSON list, that is started beside it with the answers RUNNER_ANSWERS. With SILENT=N it listens at N ports more, where it answers nothing, and tells
at /silent at how many of these somebody asked; with PORT=N it listens at that one. Prints its port, and its
child's process id."""

import ctypes
import http.server
import json
import os
import select
import socket
import subprocess
import sys
import threading


def retitle(title):
    """Writes over the memory that /proc shows as command line and environment."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    # Fields 48 to 51 of the whole line: where arguments and environment begin and end.
    first, last = int(fields[45]), int(fields[48])
    ctypes.memmove(first, title.encode().ljust(last - first, b"\0")[: last - first], last - first)


class Handler(http.server.BaseHTTPRequestHandler):
    asked = []

    def do_GET(self):  # pylint: disable=invalid-name
        self.asked.append(self.path)
        answer = ANSWERS.get(self.path)
        if self.path == "/asked":
            answer = json.dumps(self.asked)
        if self.path == "/silent":
            answer = json.dumps(len(select.select(silent, [], [], 0)[0]))
        body = (answer or "").encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):  # pylint: disable=arguments-differ
        pass


ANSWERS = {path: answer if isinstance(answer, str) else json.dumps(answer) for path, answer in json.loads(os.environ["ANSWERS"]).items()}
HELD = b"1" * (int(os.environ.get("MIB", "0")) << 20)
silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(os.environ.get("SILENT", "0")))]
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Handler)
server.daemon_threads = True
child = 0
if os.environ.get("WORKER"):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        server.socket.close()
        retitle(os.environ["TITLE"])
        os.write(told, b"1")
        sys.stdin.read()
        os._exit(0)
    os.read(ready, 1)
if os.environ.get("RUNNER"):
    command = [sys.executable, *json.loads(os.environ.pop("RUNNER"))]
    settings = dict(os.environ, ANSWERS=os.environ["RUNNER_ANSWERS"])
    runner = subprocess.Popen(command, env=settings, stdin=sys.stdin, stdout=subprocess.PIPE)  # pylint: disable=consider-using-with
    runner.stdout.readline()
    child = runner.pid
print(server.server_port, child, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
