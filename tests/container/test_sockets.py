#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sockets of engines that answer as Docker and Podman did when they were asked, and others that are slow, broken or hostile.
No container runs: the process that they speak of is one of the test's own."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading

import tap

MEMTALLY = os.environ["MEMTALLY"]
HELD = os.environ["HELD"]
SERVED = os.environ["SERVED"]
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


def question(connection):
    """Reads a whole question; gives its path."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = connection.recv(65536)
        if not piece:
            raise OSError("no question")
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    [length] = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")] or [0]
    left = length - len(body)
    while left > 0 and (piece := connection.recv(min(left, 1 << 20))):
        left -= len(piece)
    return head.split()[1].decode()


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
            serve(connection, question(connection))

    def every():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    accepting = threading.Thread(target=every, daemon=True)
    accepting.start()
    try:
        yield path
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()  # else it would accept from the next one, whose descriptor has the same number
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


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


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


def test_the_log_of_a_containers_server_is_read_where_its_endpoint_does_not_tell():
    """In frames, as GET /containers/srv/logs answers where there is no terminal; the line is of a published log of TGI 2.2."""
    line = b"2024-09-03T04:40:19.370247Z  INFO text_generation_router::server: router/src/server.rs:1651: Setting max batch total tokens to 19056\n"
    program = f"{FOLDER}/text-generation-launcher"
    shutil.copy(HELD, program)
    for log, told in (answer(b"\1\0\0\0\0\0\0" + bytes([len(line)]) + line + SECRET.encode()), True), (answer(line, "500 Oh"), False):
        with subprocess.Popen([program, "8"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"

            def serve(connection, path):
                if path.startswith(f"/containers/{IDENTITY}/logs?"):
                    connection.sendall(log)  # pylint: disable=cell-var-from-loop
                else:
                    knows(inspected(process.pid))(connection, path)  # pylint: disable=cell-var-from-loop

            with engine(serve) as path:
                done = attach(path, "srv", "--json")
            process.stdin.close()
        assert done.returncode == 0 and SECRET not in done.stdout, done
        assert any("its log says: room for 19056 tokens in its cache" in note for note in json.loads(done.stdout)["notes"]) == told, done.stdout


def test_without_a_control_group_of_its_own_a_container_is_what_counts_processes_alike():
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise tap.Skip("no process namespace of one's own may be made here")
    with subprocess.Popen([*unshare, HELD, "32"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"ready\n"
        [pid] = children(first.pid)
        enter = ["nsenter", "--user", "--preserve-credentials", "--pid", "-t", str(pid), HELD, "16"]
        with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
            assert second.stdout.readline() == b"ready\n"
            others = children(second.pid)
            with engine(knows(inspected(pid))) as path:
                done = attach(path, "srv", "--json")
            second.stdin.close()
            second.wait(60)
        first.stdin.close()
    assert done.returncode == 0, done
    assert {one["pid"] for one in json.loads(done.stdout)["processes"]} == {pid, *others} and len(others) == 1, (pid, others, done.stdout)


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


@contextlib.contextmanager
def running(*words, mapped=HELD, **variables):
    """A process that holds 32 MiB and maps a file, under a command line of the test's."""
    with subprocess.Popen([words[0], "32", mapped, *words[1:]], executable=HELD, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={"PATH": os.environ["PATH"], **variables}, cwd=FOLDER) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(60)


def profile_of(pid, **host):
    document = inspected(pid)
    document["HostConfig"].update(host)
    with engine(knows(document)) as path:
        return subprocess.run([MEMTALLY, "profile", "--container", "srv"], capture_output=True, text=True, timeout=200, check=False,
                              env={**os.environ, "DOCKER_HOST": f"unix://{path}"}, cwd=FOLDER)


def test_a_container_without_an_engine_to_profile_is_said():
    for words, said in (
        (("sleep",), "runs no engine that memtally knows"),
        (("python3", "-m", "vllm.entrypoints.openai.api_server"), "runs vllm, and memtally profiles llama-server"),
        (("llama-server", "--port", "0"), "neither the command line"),
    ):
        with running(*words) as pid:
            done = profile_of(pid)
        assert done.returncode != 0 and said in done.stderr, (words, done)


def test_a_model_is_found_by_its_flag_by_the_flags_variable_and_among_mapped_files():
    """What is refused comes after it."""
    model = f"{FOLDER}/mapped.gguf"
    shutil.copy(HELD, model)
    for words, variables in (
        (("llama-server", "-m", "/models/m.gguf"), {}),
        (("llama-server", "--model=m.gguf"), {}),
        (("llama-server",), {"LLAMA_ARG_MODEL": "/models/m.gguf"}),
        (("llama-server",), {"mapped": model}),
    ):
        with running(*words, **variables) as pid:
            done = profile_of(pid, ReadonlyRootfs=True)
        assert done.returncode == 3 and "root folder is read-only" in done.stderr and "attach --container srv" in done.stderr, (words, done)


def test_an_engine_that_has_no_room_beside_itself_is_not_started_again():
    with running("llama-server", "-m", "/models/m.gguf") as pid:
        done = profile_of(pid, Memory=40 << 20)
        assert done.returncode != 0 and "a second engine takes at least 3" in done.stderr and "the container has" in done.stderr, done
        done = profile_of(pid, Memory=4 << 20)
        assert done.returncode != 0 and "the container has 0 B left" in done.stderr, done


GUARD, RUN = "1" * 64, "2" * 64
UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def profiles(pid, copy, create, start, guard=answer(json.dumps({"Id": "1" * 64}).encode(), "201 Created")):
    """An engine that lets a profile begin; what comes of the copy, of the run and of its start is the test's."""
    created = []

    def serve(connection, path):
        if path.startswith(f"/containers/{IDENTITY}/archive"):
            connection.sendall(copy)
        elif path == f"/containers/{IDENTITY}/exec":
            created.append(path)
            connection.sendall(guard if len(created) == 1 else create)
        elif path == f"/exec/{GUARD}/start":
            connection.sendall(UPGRADED)
            while connection.recv(4096):
                pass
        elif path == f"/exec/{RUN}/start":
            connection.sendall(start)
        elif path == f"/exec/{GUARD}/json":
            connection.sendall(answer(b'{"ExitCode": 0}'))
        else:
            knows(inspected(pid))(connection, path)

    return serve


def test_engines_that_break_off_a_profile_are_said():
    fine = answer(b""), answer(json.dumps({"Id": RUN}).encode(), "201 Created"), UPGRADED
    program = f"{FOLDER}/llama-server"
    model = f"{FOLDER}/model.gguf"
    shutil.copy(SERVED, program)
    with open(model, "wb") as file:
        file.write(b"GGUF" + bytes(65536))
    for parts, words in (
        ((*fine, answer(b'{"message":"it is paused"}', "409 Conflict")), "it is paused"),
        ((answer(b'{"message":"no room\\u001b[m"}', "500 Oh"), *fine[1:]), "no room?[m"),
        ((fine[0], answer(b'{"message":"it is paused"}', "409 Conflict"), fine[2]), "it is paused"),
        ((fine[0], answer(b'{"Id":"../.."}', "201 Created"), fine[2]), "names no program"),
        ((*fine[:2], b"banana\r\n\r\n"), "no answer to the start"),
        ((*fine[:2], answer(b'{"message":"no such program"}', "404 Not Found")), "no such program"),
        ((*fine[:2], UPGRADED + b"\x09\0\0\0\0\0\0\x05hello"), "not as Docker's engine says"),
        ((*fine[:2], UPGRADED + b"\x01\0\0\0\xff\xff\xff\xffhello"), "closed early"),
        ((*fine[:2], UPGRADED + b"\x02\0\0\0\0\0\0\x06hello\n"), "does not start"),
    ):
        with subprocess.Popen([program, "-m", model, "--port", "0"], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"ready\n"
                with engine(profiles(process.pid, *parts)) as path:
                    done = subprocess.run([MEMTALLY, "profile", "--container", "srv"], capture_output=True, text=True, timeout=200, check=False,
                                          env={**os.environ, "DOCKER_HOST": f"unix://{path}"}, cwd=FOLDER)
                assert done.returncode != 0 and words in done.stderr and not os.path.exists(f"{FOLDER}/results"), (words, done)
            finally:
                process.kill()


def test_another_machine_is_not_asked():
    environment = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:2375"}
    done = subprocess.run([MEMTALLY, "attach", "--container", "nobody-has-this-name"], capture_output=True, text=True, timeout=120,
                          check=False, env=environment)
    assert done.returncode == 2 and "no other machine's memory" in done.stderr, done


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
