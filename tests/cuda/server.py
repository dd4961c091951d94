# SPDX-License-Identifier: MIT
"""A stand-in for a server of OpenAI's interface on CUDA: it is not ready at once, takes memory of the driver for
each request by its length, and writes what it was asked to the file that is its argument. With --port it is one
of SGLang's kind: it writes a token before it calls itself healthy, which takes longer than a second, and has
another port for its own processes."""

import ctypes
import http.server
import json
import socket
import sys
import threading
import time

DRIVER = ctypes.CDLL("libcuda.so.1")
READY = time.monotonic() + 0.5
PORT = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0


def take(size):
    pointer = ctypes.c_uint64()
    return DRIVER.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))


def start():
    context = ctypes.c_void_p()
    assert DRIVER.cuInit(0) == 0
    assert DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    make_current(context)
    assert take(1 << 30) == 0
    return context


def make_current(context):
    assert DRIVER.cuCtxSetCurrent(context) == 0


def write(*words):
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        print(*words, file=file)


def listen_for_own_processes():
    listener = socket.create_server(("127.0.0.1", 0))
    while True:
        listener.accept()[0].close()
        write("a stranger at the port for its own processes")


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path == "/health":
            if PORT:
                time.sleep(1.2)
            self.answer(200 if time.monotonic() > READY else 503, {})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "stand-in", "max_model_len": 2048}]})
        else:
            self.answer(404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        make_current(CONTEXT)
        failed = take(len(body["prompt"]) << 20)
        write(self.path, body["model"], len(body["prompt"]), max(body["prompt"]) < 1000)
        self.answer(500 if failed else 200, {"choices": [{"text": ""}]})

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass


CONTEXT = start()
if PORT:
    threading.Thread(target=listen_for_own_processes, daemon=True).start()
    time.sleep(0.8)  # as long as it loads its model
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
