#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Serves the files of a folder over HTTP on this machine, honestly or not.

usage: range_server.py FOLDER

Prints the port and serves until its standard input closes. The first part of a path says how:
/good/ answers ranges, /whole/ always the whole file, /liar/ another size each time, /shifted/ the
wrong range, /early/ half of the body, /longer/ more than was asked for, /elsewhere/ a redirect to
plain http. GET /log gives a line for each request: method, path, range, whether a token came."""

import http.server
import os
import re
import sys
import threading

LOG = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sizes_told = 0

    def log_message(self, *arguments):
        pass

    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/log":
            return self.reply(200, "\n".join(LOG).encode())
        LOG.append(f"GET {self.path} {self.headers.get('Range')} {self.headers.get('Authorization')}")
        _, how, name = (self.path.split("/", 2) + ["", ""])[:3]
        path = os.path.join(sys.argv[1], name)
        if how == "elsewhere":
            return self.reply(302, b"", [("Location", f"http://127.0.0.1:{self.server.server_port}/good/{name}")])
        if ".." in name or not os.path.isfile(path):
            return self.reply(404, b"<html><body>Not found</body></html>", [("Content-Type", "text/html")])
        return self.serve(how, path)

    def serve(self, how, path):
        size = os.path.getsize(path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if how == "whole" or not asked:
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            with open(path, "rb") as file:
                try:
                    self.wfile.write(file.read())
                except OSError:
                    self.close_connection = True
            return None
        first, last = int(asked[1]), min(int(asked[2]), size - 1)
        if first >= size:
            return self.reply(416, b"", [("Content-Range", f"bytes */{size}")])
        with open(path, "rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
        return self.send_part(how, first, last, size, body)

    def send_part(self, how, first, last, size, body):
        if how == "liar":
            Handler.sizes_told += 1
            size += 1000 * Handler.sizes_told
            last = min(last, size - 1)
        shift = 1 if how == "shifted" else 0
        if how == "longer":
            body += b"more"
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first + shift}-{last + shift}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if how == "early":
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)
        return None


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.write(1, b"%d\n" % server.server_port)  # in one piece, whatever Python buffers
    sys.stdin.read()


if __name__ == "__main__":
    main()
