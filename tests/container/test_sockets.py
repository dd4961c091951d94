#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sockets of engines that answer as Docker and Podman did when they were asked, and others that are slow, broken or hostile.
No container runs: the process that they speak of is one of the test's own."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading

import tap

MEMTALLY = os.environ["MEMTALLY"]
HELD = os.environ["HELD"]
SECRET = "swordfish"
IDENTITY = "4e1cb93097446fd42036c27f70ea3beab8f8ff833c0e6fc3cd140eb7f75ac47a"
FOLDER = tempfile.mkdtemp(prefix="memtally-sockets-")


def inspected(pid, **state):
    """The parts that memtally reads of what Podman 4.3.1 answered to GET /containers/srv/json, and some that it does not."""
    return {
        "Id": IDENTITY,
        "Path": "/bin/sleep",
        "State": {"Status": "running", "Running": True, "Pid": pid, "ExitCode": 0, **state},
        "Name": "/srv",
        "HostConfig": {"NetworkMode": "host", "Memory": 268435456, "ReadonlyRootfs": False},
        "Mounts": [{"Type": "bind", "Source": "/srv/models", "Destination": "/models"}],
        "Config": {"User": "", "Env": ["PATH=/usr/bin:/bin", f"HF_TOKEN={SECRET}", f"A\x1b[31m={SECRET}", SECRET], "Image": "localhost/bb:1"},
    }


def answer(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.contextmanager
def engine(serve):
    """A socket whose every connection serve(connection, path) answers; gives its path."""
    path = f"{FOLDER}/socket"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def one(connection):
        with connection, contextlib.suppress(OSError):
            serve(connection, connection.recv(65536).split()[1].decode())

    def every():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=every, daemon=True).start()
    try:
        yield path
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def knows(document, podman=False):
    def serve(connection, path):
        if path == "/containers/srv/json":
            connection.sendall(answer(json.dumps(document).encode()))
        elif path == "/libpod/_ping" and podman:
            connection.sendall(answer(b"OK"))
        else:
            connection.sendall(answer(b'{"message":"no such container"}', "404 Not Found"))

    return serve


def attach(path, *words):
    environment = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
    environment.pop("XDG_RUNTIME_DIR", None)
    return subprocess.run([MEMTALLY, "attach", "--container", *words], capture_output=True, text=True, timeout=120, check=False,
                          env=environment)


@contextlib.contextmanager
def held():
    with subprocess.Popen([HELD, "32"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(60)


def test_a_container_is_shown_as_its_engine_says():
    for is_podman in False, True:
        with held() as pid, engine(knows(inspected(pid), is_podman)) as path:
            done = attach(path, "srv", "--json")
            assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
            document = json.loads(done.stdout)
            said = document["container"]
            assert said == {
                "name": "srv", "id": IDENTITY, "image": "localhost/bb:1", "container_engine": "Podman" if is_podman else "Docker",
                "memory_limit_bytes": 268435456, "mounts": ["/models"], "environment_names": ["PATH", "HF_TOKEN", "A?[31m"],
            }, said
            assert [one["pid"] for one in document["processes"]] == [pid], document["processes"]
            table = attach(path, "srv").stdout
            assert "srv of image localhost/bb:1" in table and SECRET not in table, table


def test_what_is_no_running_container_is_said():
    for document, words in (
        (inspected(0, Running=False, Status="exited"), "does not run (it is exited)"),
        (inspected(1 << 40), "does not run"),
        (inspected("7"), "not what Docker or Podman say"),
        ({**inspected(7), "Id": "../../x"}, "not what Docker or Podman say"),
        ([], "not what Docker or Podman say"),
    ):
        with engine(knows(document)) as path:
            done = attach(path, "srv")
            assert done.returncode == 2 and words in done.stderr and path in done.stderr, done


def test_names_that_are_none_are_refused_before_anybody_is_asked():
    def nobody(_, path):
        raise AssertionError(path)

    with engine(nobody) as path:
        for name in "", "-x", "a/b", "a b", "a\r\nX: y", "x" * 300:
            done = attach(path, f"{name}")
            assert done.returncode == 2 and ("no name of a container" in done.stderr or "--container" in done.stderr), done


def test_engines_that_are_slow_broken_or_hostile_are_said():
    def silent(connection, _):
        connection.recv(1)

    def endless(connection, _):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"[" * 65536)

    def closed(*_):
        pass

    for serve, words in (
        (silent, ("timed out",)),
        (endless, ("larger than", "timed out")),
        (closed, ("Empty reply", "Recv failure", "closed")),
        (lambda connection, _: connection.sendall(b"\0\1\2 banana\r\n\r\n"), ("HTTP",)),
        (lambda connection, _: connection.sendall(answer(b"banana")), ("no JSON",)),
        (lambda connection, _: connection.sendall(answer(b"[" * 100000)), ("no JSON",)),
        (lambda connection, _: connection.sendall(answer(b"{}", "500 Oh")), ("status 500",)),
    ):
        with engine(serve) as path:
            done = attach(path, "srv")
            assert done.returncode == 2 and path in done.stderr and any(one in done.stderr for one in words), (words, done)


def test_another_machine_is_not_asked():
    environment = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:2375"}
    done = subprocess.run([MEMTALLY, "attach", "--container", "nobody-has-this-name"], capture_output=True, text=True, timeout=120,
                          check=False, env=environment)
    assert done.returncode == 2 and "no other machine's memory" in done.stderr, done


if __name__ == "__main__":
    tap.main(globals())
