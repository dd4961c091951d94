# SPDX-License-Identifier: MIT
"""A server that has loaded its model when it listens, and answers nothing but that it is well."""

import argparse
import http.server

from vllm import LLMEngine
from vllm.engine.arg_utils import EngineArgs


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass


def main():
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(args))
    assert engine.worker.model_runner.held
    http.server.ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
