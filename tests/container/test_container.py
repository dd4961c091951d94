#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally in containers of a real Podman, or of a real Docker (CONTAINER_ENGINE=docker): what it sees in them, and that nothing is left
in them, whatever way a profile ends."""

import contextlib
import fcntl
import glob
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time

import container_engines
import tap

MEMTALLY = os.environ["MEMTALLY"]
SERVED = os.environ["SERVED"]
SERVED_MUSL = os.environ.get("SERVED_MUSL", "")
MUSL = "/lib/ld-musl-x86_64.so.1"
MIB = 1 << 20
SECRET = "swordfish"
SHAPE = "--layers 8 --embedding-length 512 --ff-length 2048 --heads 8 --vocabulary 8192".split()
MODEL = b"GGUF" + bytes(16 * MIB)
COMMAND = "/app/llama-server", "-m", "/models/model.gguf", "--port"
PORT = 18931
MACHINE = None
ENGINE = {"podman": container_engines.Podman, "docker": container_engines.Docker}[os.environ.get("CONTAINER_ENGINE", "podman")]
# What `make test` has time for; `make containers` runs all.
SLICE = [
    "test_attach_sees_all_processes_of_a_container",
    "test_a_profile_without_a_shell_records_from_inside_and_leaves_nothing",
    "test_a_profile_that_is_killed_leaves_nothing",
]


def library_files(program):
    return {path: path for path in container_engines.libraries_of(program)}


def machine():
    """The tests' engine with its images, made once; raises Skip where it cannot run."""
    global MACHINE  # pylint: disable=global-statement
    if isinstance(MACHINE, tap.Skip):
        raise MACHINE
    if MACHINE:
        return MACHINE
    made = None
    try:
        made = ENGINE()
        files = library_files(SERVED) | {"/app/llama-server": SERVED, "/models/model.gguf": MODEL}
        [libc] = [path for path in files if path.endswith("/libc.so.6")]
        made.build("plain", files)
        with open(libc, "rb") as file:  # one that says it is older: no program of the image needs what 2.28 brought
            made.build("old", files | {libc: file.read().replace(b"\0GLIBC_2.28", b"\0GLIBX_2.28")})
        if SERVED_MUSL and os.path.exists(MUSL):
            made.build("musl", {MUSL: MUSL, "/app/llama-server": SERVED_MUSL, "/models/model.gguf": MODEL})
        made.check("plain", "/app/llama-server", "--version", "yes")
        made.start_service()
    except tap.Skip as reason:
        MACHINE = reason
        if made:
            made.close()
        raise
    MACHINE = made
    return made


def memtally(*words, **settings):
    environment = {**os.environ, "DOCKER_HOST": f"unix://{machine().socket}"}
    return subprocess.run([MEMTALLY, *map(str, words)], capture_output=True, text=True, timeout=300, check=False, env=environment, **settings)


@contextlib.contextmanager
def container(image="plain", words=(), options=(), network="host", says="ready"):
    """A container that serves, with a secret in its environment."""
    global PORT  # pylint: disable=global-statement
    PORT += 1
    name = f"chat{PORT}"
    made = machine()
    made.run(name, image, *COMMAND, str(PORT), *words, options=("--network", network, "-e", f"HF_TOKEN=hf_{SECRET}", *options), says=says)
    try:
        yield name
    finally:
        made.remove(name)


def host(document):
    [place] = [place for place in document["places"] if place["place"] == "host"]
    return place


def row(document, category):
    return next((one for one in host(document)["rows"] if one["category"] == category), {"resident_bytes": 0, "allocated_bytes": 0})


def adds_up(document):
    """What is unknown has its bytes in other rows."""
    place = host(document)
    return sum(one["resident_bytes"] or 0 for one in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"]


def kept(folder):
    """The one result that a profile left in a folder, and its text."""
    [path] = glob.glob(f"{folder}/results/memory-profiles/*.json")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return path, json.loads(text), text


def profile(name, *words, folder, **settings):
    return memtally("profile", "--container", name, "--max-tokens", 4, "--repeats", 1, "--prompt", "hello", *words, cwd=folder, **settings)


@contextlib.contextmanager
def unchanged(name):
    """What is done within leaves the container as it was."""
    before = machine().state(name)
    yield
    after = machine().state(name)
    for what, one, other in zip(("files", "processes", "environment", "settings", "mounts"), before, after):
        if isinstance(one, dict):
            one, other = ({key: value for key, value in side.items() if one.get(key) != other.get(key)} for side in (one, other))
        assert one == other, (what, one, other)


def test_attach_sees_all_processes_of_a_container():
    with container() as name, unchanged(name):
        machine().call("exec", "-d", name, *COMMAND, str(PORT + 1000))
        container_engines.patiently("no second process", lambda: len(machine().processes(name)) == 2)
        done = memtally("attach", "--container", name, "--json", "--no-endpoint")
        assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
        document = json.loads(done.stdout)
        assert {one["pid"] for one in document["processes"]} == machine().processes(name), document
        assert adds_up(document) and row(document, "weights")["resident_bytes"] >= 16 * MIB, document
        said = document["container"]
        assert said["name"] == name and said["container_engine"] == ENGINE.name and said["image"] == "localhost/plain:1", said
        assert "HF_TOKEN" in said["environment_names"], said
        [second] = machine().processes(name) - {machine().pid(name)}
        os.kill(second, signal.SIGKILL)
        container_engines.patiently("the second stays", lambda: len(machine().processes(name)) == 1)


def test_a_container_is_found_by_its_control_group():
    with container() as name:
        identity = machine().inspect(name)["Id"]
        with open(f"/proc/{machine().pid(name)}/cgroup", encoding="ascii") as file:
            if identity not in file.read():
                raise tap.Skip("containers have no control groups of their own here")
        environment = {key: value for key, value in os.environ.items() if key != "DOCKER_HOST"}
        done = subprocess.run([MEMTALLY, "attach", "--container", identity[:12], "--json"], capture_output=True, text=True, check=False,
                              timeout=120, env=environment)
        assert done.returncode == 0, done
        document = json.loads(done.stdout)
        assert document["container"]["id"] == identity and document["container"]["container_engine"] == ENGINE.name, document["container"]
        assert {one["pid"] for one in document["processes"]} == machine().processes(name)


def check_profile(name, *words):
    with tempfile.TemporaryDirectory() as folder:
        with unchanged(name):
            done = profile(name, *words, folder=folder)
        assert done.returncode == 0, done
        path, document, text = kept(folder)
        assert re.fullmatch(name + r"_\d{8}_\d{6}\.json", os.path.basename(path)), path
        assert SECRET not in done.stdout + done.stderr + text, done
        assert document["model"]["path"] == "/models/model.gguf" and adds_up(document), document
        assert row(document, "weights")["resident_bytes"] >= 16 * MIB, document["places"]
        assert document["container"]["name"] == name, document["container"]
        compared = memtally("compare", path, "--calc-weights", 13.5, "--calc-kv", 0.4, "--calc-activations", 0.9, "--calc-overhead", 0.6)
        assert compared.returncode == 0 and "weights" in compared.stdout, compared
        return document


def was_recorded(document):
    return any(detail["name"] == "heap blocks from 64 KiB" for one in host(document)["rows"] for detail in one["detail"])


def test_a_profile_without_a_shell_records_from_inside_and_leaves_nothing():
    with container() as name:
        document = check_profile(name, "--batch-size", 2)
        assert was_recorded(document) and document["settings"]["sequences"] == 2, document["settings"]
        # The 24 MiB that the program holds are one block of its heap.
        [large] = [detail for one in host(document)["rows"] for detail in one["detail"] if detail["name"] == "heap blocks from 64 KiB"]
        assert large["allocated_bytes"] >= 24 * MIB, large


def test_a_folder_keeps_the_recording_and_takes_no_second_one():
    with container() as name, tempfile.TemporaryDirectory() as folder:
        done = profile(name, "-o", "kept", folder=folder)
        assert done.returncode == 0, done
        reported = memtally("report", f"{folder}/kept", "--json")
        assert reported.returncode == 0 and row(json.loads(reported.stdout), "weights")["resident_bytes"] >= 16 * MIB, reported
        before = sorted(os.listdir(f"{folder}/kept"))
        with unchanged(name):
            done = profile(name, "-o", "kept", folder=folder)
        assert done.returncode != 0 and "already holds a recording" in done.stderr, done
        assert sorted(os.listdir(f"{folder}/kept")) == before


def test_a_profile_enters_a_network_of_the_containers_own():
    with container(network="none") as name:
        assert was_recorded(check_profile(name))


def test_a_profile_runs_as_the_containers_own_user():
    with container(options=("--user", "1234:1234")) as name:
        assert was_recorded(check_profile(name))


def test_musl_and_an_older_glibc_are_watched_from_outside():
    for image, why in ("musl", "musl"), ("old", "glibc is older than 2.28"):
        if image == "musl" and not SERVED_MUSL:
            tap.comment("musl-gcc is not installed: no program for an image with musl")
            continue
        with container(image) as name:
            document = check_profile(name)
            assert not was_recorded(document), image
            assert row(document, "kv_cache")["resident_bytes"] is None and row(document, "activations")["resident_bytes"] is None, document["places"]
            assert any(why in note and "from outside" in note for note in document["notes"]), document["notes"]
            assert any("not all of its memory is told apart" in note for note in document["notes"]), document["notes"]


def test_an_engine_that_fails_leaves_nothing():
    with container(words=("--keeps", "yes"), options=("-e", "FAILS=1")) as name, tempfile.TemporaryDirectory() as folder:
        with unchanged(name):
            done = profile(name, folder=folder)
        assert done.returncode == 9 and "not to my taste" in done.stderr, done
        assert not os.listdir(folder)


@contextlib.contextmanager
def hanging(name, folder, *words, **settings):
    """A profile that has the engine in the container, and waits for it. One that is killed leaves its folder in TMPDIR."""
    environment = {**os.environ, "DOCKER_HOST": f"unix://{machine().socket}", "TMPDIR": folder}
    with subprocess.Popen([MEMTALLY, "profile", "--container", name, "--prompt", "hello", *words], cwd=folder, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings) as process:
        try:
            container_engines.patiently("the engine does not start", lambda: sum(is_server(pid) for pid in machine().processes(name)) == 2)
            yield process
        finally:
            process.kill()


def is_server(pid):
    """Whether it is the engine, and has come so far that SIGINT does not kill it."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as file:
        [caught] = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")]
        return os.readlink(f"/proc/{pid}/exe").endswith("/app/llama-server") and caught >> signal.SIGINT - 1 & 1
    return False


def test_a_profile_that_is_interrupted_leaves_nothing():
    for number in signal.SIGINT, signal.SIGTERM:
        with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder, unchanged(name):
            with hanging(name, folder) as process:
                process.send_signal(number)
                _, said = process.communicate(timeout=120)
                assert process.returncode == 128 + number and "stopped by" in said, said


def test_a_key_at_the_terminal_ends_a_profile_and_leaves_nothing():
    """The engine is in no process group of the terminal's: memtally has to tell it."""
    ours, theirs = pty.openpty()
    with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder, unchanged(name):
        with hanging(name, folder, "-o", f"{folder}/kept", stdin=theirs, start_new_session=True,
                     preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
            os.write(ours, b"\x03")
            _, said = process.communicate(timeout=120)
            assert process.returncode == 130 and "stopped by" in said, said
        with open(f"{folder}/kept/engine.log", encoding="utf-8") as file:
            assert "interrupted" in file.read()
    os.close(ours)
    os.close(theirs)


def test_a_profile_that_is_killed_leaves_nothing():
    with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder:
        before = machine().state(name)
        with hanging(name, folder) as process:
            process.kill()
            process.wait()
        # What is being removed cannot be compared: first the folder goes.
        root = f"/proc/{machine().pid(name)}/root"
        container_engines.patiently("the folder is left", lambda: not glob.glob(f"{root}/.memtally-*"))
        container_engines.patiently("something is left", lambda: machine().state(name) == before)


def test_no_second_engine_is_started_where_it_has_no_room():
    with container(options=("--memory", "40m")) as name, tempfile.TemporaryDirectory() as folder, unchanged(name):
        done = profile(name, folder=folder)  # the program holds 24 MiB
        assert done.returncode != 0 and "the container has" in done.stderr and not os.listdir(folder), done


def test_a_profile_that_is_killed_after_its_copy_leaves_nothing():
    """Nothing runs in the container yet that could remove the folder."""
    with container() as name, tempfile.TemporaryDirectory() as folder:
        before = machine().state(name)
        root = f"/proc/{machine().pid(name)}/root"
        environment = {**os.environ, "DOCKER_HOST": f"unix://{machine().socket}", "TMPDIR": folder}
        with subprocess.Popen([MEMTALLY, "profile", "--container", name, "--prompt", "hello"], cwd=folder, env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + container_engines.PATIENCE_S
            while not glob.glob(f"{root}/.memtally-*") and time.monotonic() < until:
                pass
            process.kill()
        container_engines.patiently("the folder is left", lambda: not glob.glob(f"{root}/.memtally-*"))
        container_engines.patiently("something is left", lambda: machine().state(name) == before)


def ended_profile(name, folder, end):
    """What a profile says whose container ends while it runs, and the container's files before and after."""
    before = machine().exported(name)
    with hanging(name, folder) as process:
        end(process)
        _, said = process.communicate(timeout=120)
    container_engines.patiently("the folder is left", lambda: not any(".memtally-" in path for path in machine().exported(name)))
    return process.returncode, said, before, machine().exported(name)


@contextlib.contextmanager
def service_that_ends():
    """Kills what answers at the socket; starts it again afterwards."""
    made = machine()
    made.service.kill()
    made.service.wait()
    os.unlink(made.socket)
    try:
        yield
    finally:
        made.start_service()


def test_a_profile_whose_socket_goes_leaves_nothing():
    if ENGINE is not container_engines.Podman:
        raise tap.Skip("Docker's daemon takes its containers with it; Podman's service does not")
    with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder:
        before = machine().state(name)
        with hanging(name, folder) as process, service_that_ends():
            _, said = process.communicate(timeout=120)
            assert process.returncode not in (0, -signal.SIGKILL) and said.strip(), (process.returncode, said)
            root = f"/proc/{machine().pid(name)}/root"
            container_engines.patiently("the folder is left", lambda: not glob.glob(f"{root}/.memtally-*"))
            container_engines.patiently("something is left", lambda: machine().state(name) == before)


def test_a_profile_that_gives_up_leaves_nothing():
    with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder, unchanged(name):
        done = profile(name, "--timeout", 2, folder=folder)
        assert done.returncode not in (0, -signal.SIGKILL) and "2 s" in done.stderr and not os.path.exists(f"{folder}/results"), done


def test_a_container_that_ends_while_it_is_profiled_keeps_nothing():
    for words in ["kill"], ["stop", "-t", "1"]:
        with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder:
            code, said, before, after = ended_profile(name, folder, lambda _: machine().call(*words, name))  # pylint: disable=cell-var-from-loop
            assert code not in (0, -signal.SIGKILL) and f"the container {name} ended while it was profiled" in said, said
            assert "may still be" not in said and before == after, (said, set(before.items()) ^ set(after.items()))


def test_a_container_that_ends_with_the_profile_keeps_nothing():
    def end_both(process):
        """The first process of a container takes all others with it."""
        os.kill(pid, signal.SIGKILL)
        process.kill()

    with container(options=("-e", "HANGS=1")) as name, tempfile.TemporaryDirectory() as folder:
        pid = machine().pid(name)
        code, _, before, after = ended_profile(name, folder, end_both)
        assert code == -signal.SIGKILL and before == after, set(before.items()) ^ set(after.items())


def test_a_real_engine_takes_in_a_container_what_it_takes_outside():
    program = os.environ.get("MEMTALLY_LLAMA_CPP")
    if not program:
        raise tap.Skip("MEMTALLY_LLAMA_CPP names no folder of llama.cpp; scripts/engine llama.cpp brings one")
    made = machine()
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.gguf"
        done = subprocess.run([MEMTALLY, "sample-model", "custom", model, "--quiet", *SHAPE], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done
        names = [name for name in os.listdir(program) if os.path.isfile(f"{program}/{name}")]
        files = {f"/app/{name}": f"{program}/{name}" for name in names} | {"/models/model.gguf": model}
        for name in names:
            if name == "llama-server" or ".so" in name:
                files |= {path: path for path in container_engines.libraries_of(f"{program}/{name}") if not path.startswith(program)}
        made.build("engine", files)
        outside = json.loads(memtally("profile", model, "--engine", "llama-server", "--engine-path", program, "--max-tokens", 4, "--repeats", 1,
                                      "--prompt", "hello", "--batch-size", 2, "--json").stdout)
        with container("engine", options=("-e", "LLAMA_ARG_THREADS=1"), says="listening") as name:
            inside = check_profile(name, "--batch-size", 2)
    for category in "weights", "kv_cache":
        one, other = (row(document, category)["allocated_bytes"] for document in (inside, outside))
        assert other > MIB and abs(one - other) <= 0.02 * other, (category, one, other)


def test_what_cannot_be_profiled_is_said():
    with container(options=("--read-only",)) as name, tempfile.TemporaryDirectory() as folder, unchanged(name):
        done = profile(name, folder=folder)
        assert done.returncode == 3 and "read-only" in done.stderr and f"attach --container {name}" in done.stderr, done
    made = machine()
    made.call("create", "--name", "stopped", "localhost/plain:1", *COMMAND, "1")
    made.containers.append("stopped")
    done = memtally("attach", "--container", "stopped")
    assert done.returncode == 2 and "does not run" in done.stderr, done
    done = memtally("attach", "--container", "nobody")
    assert done.returncode == 2 and "no running container 'nobody'" in done.stderr, done


if __name__ == "__main__":
    try:
        tap.main(globals(), None if os.environ.get("ALL") else sys.argv[1:] or SLICE)
    finally:
        if isinstance(MACHINE, container_engines.Engine):
            MACHINE.close()
