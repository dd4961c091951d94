#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on processes that run: what it says is held against the kernel's own figures and against what the program
itself holds, and the processes must be as they were before."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

import tap

MEMTALLY = os.environ["MEMTALLY"]
HELD = os.environ["HELD"]
HELD_STATIC = os.environ["HELD_STATIC"]
MIB = 1 << 20
FOLDER = tempfile.mkdtemp(prefix="memtally-attach-")
SECRET = "swordfish"


@contextlib.contextmanager
def held(*arguments, program=HELD, n=1, **settings):
    """A program that holds memory, once it and its children do."""
    with subprocess.Popen(
        [program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **settings
    ) as process:
        for _ in range(n):
            assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def attach(*arguments, **settings):
    return subprocess.run(
        [MEMTALLY, "attach", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, **settings
    )


def attached(*arguments, **settings):
    done = attach("--json", *arguments, **settings)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def host(document):
    [place] = [place for place in document["places"] if place["place"] == "host"]
    return place


def rows_of(place):
    return {row["category"]: row["resident_bytes"] for row in place["rows"]}


def rss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


def adds_up(place):
    return sum(bytes or 0 for bytes in rows_of(place).values()) + place["unattributed_bytes"] == place["total_resident_bytes"]


def test_rows_add_up_to_what_the_kernel_says():
    for program in HELD, HELD_STATIC:
        with held(48, program=program) as process:
            place = host(attached(process.pid))
            assert adds_up(place), place
            assert place["total_resident_bytes"] == rss(process.pid), place
            assert place["total_resident_bytes"] >= 48 * MIB


GO = """package main
import ("bufio"; "fmt"; "os")
func main() {
    held := make([]byte, 48<<20)
    for i := range held { held[i] = 1 }
    fmt.Println("ready")
    bufio.NewReader(os.Stdin).ReadString('\\n')
    fmt.Fprint(os.Stderr, len(held))
}
"""


def test_a_static_go_program_adds_up_too():
    """Its heap is no allocator's that we know."""
    if not shutil.which("go"):
        raise tap.Skip("no Go here; the static C program above is the same to memtally")
    source = os.path.join(FOLDER, "held.go")
    with open(source, "w", encoding="ascii") as file:
        file.write(GO)
    program = os.path.join(FOLDER, "held-go")
    settings = dict(os.environ, CGO_ENABLED="0", GOCACHE=os.path.join(FOLDER, "go"), GO111MODULE="off", GOFLAGS="")
    subprocess.run(["go", "build", "-o", program, source], env=settings, check=True, timeout=240)
    with held(program=program, stderr=subprocess.DEVNULL) as process:
        process.send_signal(signal.SIGSTOP)  # its garbage collector works by itself
        document = attached(process.pid)
        place = host(document)
        assert adds_up(place) and place["total_resident_bytes"] == rss(process.pid), place
        assert place["total_resident_bytes"] >= 48 * MIB, place
        assert "weights" not in rows_of(place), place
        process.send_signal(signal.SIGCONT)


def test_a_large_process_is_pictured_too():
    """Its picture costs more than a first look may take."""
    with held(1000) as process:
        document = attached(process.pid)
        assert document["processes"][0]["pictures_taken"] == 1, document["processes"]
        assert adds_up(host(document)) and host(document)["total_resident_bytes"] == rss(process.pid)


def test_a_mapped_model_is_weights():
    model = os.path.join(FOLDER, "model.gguf")
    shape = "--layers 2 --embedding-length 256 --ff-length 512 --heads 4 --vocabulary 4096".split()
    subprocess.run([MEMTALLY, "sample-model", "custom", model, "--quiet", *shape], check=True)
    with held(1, model) as process:
        document = attached(process.pid)
        pages = -(-os.path.getsize(model) // 4096) * 4096
        assert rows_of(host(document))["weights"] == pages, document
        assert document["model"]["path"] == model, document


def unknown_places(document):
    """The places of which nobody knows what weights and cache there are."""
    rows = {place["place"]: rows_of(place) for place in document["places"]}
    return [name for name, row in rows.items() if all(row.get(what, 0) is None for what in ("weights", "kv_cache", "activations"))]


def memtally(*arguments):
    return subprocess.run([MEMTALLY, *arguments], capture_output=True, text=True, timeout=120, check=True).stdout


@contextlib.contextmanager
def computing(*names):
    """A program that holds memory and has mapped one or two libraries of these names, as PyTorch and the driver of a device have."""
    paths = [os.path.join(FOLDER, name) for name in names]
    for path in paths:
        shutil.copy(HELD, path)
    more = {"ALSO": paths[1]} if len(paths) > 1 else {}
    with held(8, paths[0], env={**os.environ, **more}) as process:
        yield process


def test_what_a_program_that_computes_models_has_of_them_is_unknown():
    """It may have them on the host, on a device that nobody measures, or on both."""
    for names, places in (("libtorch_cpu.so",), ["host"]), (("libtorch_cpu.so", "libcuda.so.1"), ["host", "gpu:?"]), (("libcuda.so.1",), []):
        with computing(*names) as process:
            document = attached(process.pid)
            assert unknown_places(document) == places, (names, document["places"])
            assert adds_up(host(document)) and host(document)["total_resident_bytes"] == rss(process.pid)
            said = "no server tells what it has for them" if places else "what it has of that was not seen"
            assert any(said in note for note in document["notes"]), document["notes"]
            with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                attached(process.pid, "-o", folder)
                assert unknown_places(json.loads(memtally("report", "--json", folder))) == places
                with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
                    file.write("{}")
                notes = json.loads(memtally("report", "--json", folder))["notes"]
                assert any("report.json" in note for note in notes), notes
                assert any(said in note for note in notes), (said, notes)
                os.unlink(os.path.join(folder, "report.json"))
                compared = json.loads(memtally("compare", "--json", folder, folder))
                known = {part["component"]: part["a_bytes"] for part in compared["components"]}
                assert not places or known["weights"] is known["kv_cache"] is known["activations"] is None, known
                assert not [note for note in compared["notes"] if "do not add up" in note], compared["notes"]
            unseen = [place for place in document["places"] if place["place"] == "gpu:?"]
            assert all(place["total_resident_bytes"] is None and place["unattributed_bytes"] is None for place in unseen), unseen


def test_children_count_and_we_do_not():
    with held(32, env=dict(os.environ, FORK="1"), n=2) as process:
        document = attached(process.pid)
        assert len(document["processes"]) == 2, document
        place = host(document)
        assert adds_up(place)
        # Each of the pages that the fork shares, 32 MiB, is counted once; the child has 32 more.
        assert 64 * MIB <= place["total_resident_bytes"] < 72 * MIB, place
    mine = attached(os.getpid())
    assert not [process for process in mine["processes"] if "memtally attach" in process["command"]], mine


def state_of(pid):
    """All that we could have changed of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = [line for line in file if line.split(":")[0] in ("Name", "PPid", "TracerPid", "SigBlk", "SigIgn", "SigCgt")]
    descriptors = {name: os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    with open(f"/proc/{pid}/maps", "rb") as file:
        return status, descriptors, file.read()


def test_the_process_is_as_it_was():
    with held(8) as process:
        before = state_of(process.pid)
        attached(process.pid, "--for", "300ms")
        assert state_of(process.pid) == before
        process.stdin.close()
        assert process.wait(60) == 7


@contextlib.contextmanager
def watched(pid, wanted=HELD.encode(), n=1):
    """memtally watching a process, once it has written down which, or something else so often. Its recording grows beside it."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        command = [MEMTALLY, "attach", "--json", "--for", "1h", "-o", folder, str(pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as watcher:
            name = os.path.join(folder, "watch.mtr")
            while watcher.poll() is None:
                with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
                    watcher.recorded = file.read(1 << 22)
                    if watcher.recorded.count(wanted) >= n:
                        break
            try:
                yield watcher
            finally:
                watcher.kill()


def test_the_kernel_looks_for_shared_pages_of_forks_only():
    """For that it holds the lock of a process's mappings as long as it takes. A shell and what it starts share nothing."""
    with held(8) as process, watched(process.pid, b"VmRSS") as watcher:
        assert b"Pss_Anon" not in watcher.recorded
    with subprocess.Popen(["sh", "-c", '"$0" 8; exit 0', HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout.readline() == b"ready\n"
        with watched(shell.pid, b"VmRSS", 2) as watcher:
            assert b"Pss_Anon" not in watcher.recorded
        shell.stdin.close()
    with held(8, env=dict(os.environ, FORK="1"), n=2) as process, watched(process.pid, b"VmRSS", 2) as watcher:
        assert watcher.recorded.count(b"Pss_Anon") >= 2


def test_shared_pages_of_large_forks_are_counted_piece_by_piece():
    """The kernel would hold the lock while it looks through all of the mapping."""
    with held(300, env=dict(os.environ, FORK="1"), n=2) as process:
        with watched(process.pid, b"Shared_Anon", 2) as watcher:
            assert b"Pss_Anon" not in watcher.recorded
        document = attached(process.pid)
        place = host(document)
        assert adds_up(place) and len(document["processes"]) == 2, document
        # The fork shares 300 MiB, which count once, and has 300 of its own.
        assert 600 * MIB <= place["total_resident_bytes"] < 608 * MIB, place


def test_a_process_that_ends_or_becomes_another_is_no_error():
    with held(8) as process:
        with watched(process.pid) as watcher:
            process.stdin.close()
            process.wait(60)
            document = json.loads(watcher.communicate(timeout=100)[0])
            assert watcher.returncode == 0
            assert host(document)["peak_resident_bytes"] >= 8 * MIB, document
    with held(8, env=dict(os.environ, EXEC=HELD)) as process:
        with watched(process.pid) as watcher:
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            watcher.send_signal(signal.SIGINT)
            document = json.loads(watcher.communicate(timeout=100)[0])
            assert watcher.returncode == 0 and adds_up(host(document)), document


def test_a_stopped_process_stays_stopped():
    with held(8) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert adds_up(host(attached(process.pid)))
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            assert file.read().split()[2] == "T"
        process.send_signal(signal.SIGCONT)


def attached_by_another_user(pid):
    """What nobody sees, who has no right to look at others' processes."""
    if os.geteuid() != 0:
        raise tap.Skip("only root can become another user")
    os.chmod(FOLDER, 0o755)
    program = os.path.join(FOLDER, "memtally")  # the tree may be where another user has no way to
    shutil.copy(MEMTALLY, program)
    settings = {"user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": "/", "env": {"PATH": os.environ["PATH"], "TMPDIR": "/tmp"}}
    try:
        done = subprocess.run([program, "attach", "--json", str(pid)], capture_output=True, text=True, check=False, **settings)
    except PermissionError as error:
        raise tap.Skip(f"another user cannot run programs from {FOLDER}") from error
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_another_users_process_shows_its_size_only():
    with held(8) as process:
        document = attached_by_another_user(process.pid)
        place = host(document)
        assert document["processes"][0]["observed_reason"].startswith("its mappings are open to"), document
        assert place["total_resident_bytes"] >= 8 * MIB and not place["unattributed_bytes"] < 8 * MIB, place
        assert any("open to its own user" in note for note in document["notes"]), document
        assert unknown_places(document) == ["host"], document
        assert any("not all of its mappings were seen" in note for note in document["notes"]), document


def test_secrets_are_neither_kept_nor_shown():
    folder = os.path.join(FOLDER, "kept")
    with held(1, env=dict(os.environ, HF_TOKEN=SECRET)) as process:
        shell = ["sh", "-c", 'echo ready; read line; exit 0', "sh", "--api-key", SECRET, f"--token={SECRET}"]
        with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as told:
            assert told.stdout.readline() == b"ready\n"
            for format_name in "table", "json", "csv":
                done = attach("--format", format_name, told.pid)
                assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
            assert "--api-key [hidden]" in attach(told.pid, "-o", folder).stdout
            attached(process.pid, "-o", folder + "2")
            told.stdin.close()
    for name in (folder, folder + "2"):
        for file_name in os.listdir(name):
            with open(os.path.join(name, file_name), "rb") as file:
                assert SECRET.encode() not in file.read(), file_name
    done = subprocess.run([MEMTALLY, "report", folder], capture_output=True, text=True, check=True)
    assert SECRET not in done.stdout and "--token=[hidden]" in done.stdout


def test_a_login_in_the_name_of_a_servers_model_is_not_shown():
    place = f"https://user:{SECRET}@hub/model"
    for arguments, environment in (["-m", place], {}), ([], {"LLAMA_ARG_MODEL": place}):
        with server("llama-server", "good", "{}", *arguments, env=dict(os.environ, **environment)) as (process, _):
            document = attach("--json", "--no-endpoint", process.pid)
            assert SECRET not in document.stdout and "https://[hidden]@hub/model" in document.stdout, document


def test_what_cannot_be_attached_to_is_said():
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        done = attach(ended.pid)
        assert done.returncode == 2 and "has ended" in done.stderr, done
    done = attach(ended.pid)
    assert done.returncode == 2 and "no process has the number" in done.stderr, done
    if os.path.exists("/proc/2/stat"):
        done = attach(2)
        assert done.returncode == 3 and "thread of the kernel" in done.stderr, done
    itself = subprocess.run(["sh", "-c", 'exec "$0" attach $$', MEMTALLY], capture_output=True, text=True, check=False)
    assert itself.returncode == 2 and "is memtally itself" in itself.stderr, itself
    for word in "0", "-1", "x", "99999999999", "4 ":
        done = attach("--", word)
        assert done.returncode == 2 and "not the number of a process" in done.stderr, done
    done = attach("--for", "soon", os.getpid())
    assert done.returncode == 2 and "--for 30s" in done.stderr, done


SERVER = """
import gzip, http.server, json, os, sys, time
asked = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        if self.path == "/asked":
            return self.answer(200, json.dumps(asked).encode())
        if sys.argv[1] == "silent":
            time.sleep(3600)
        if sys.argv[1] == "closed":
            return None
        if sys.argv[1] == "nonsense":
            return self.answer(200, b"{")
        if sys.argv[1] == "key":
            return self.answer(401, b"{}")
        if sys.argv[1] == "endless":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"[" * 65536)
        if sys.argv[1] == "dripping":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                time.sleep(0.05)
        if sys.argv[1] == "endless head":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\n")
            while True:
                self.wfile.write(b"X: y\\r\\n" * 4096)
        if sys.argv[1] == "packed":
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            return self.wfile.write(gzip.compress(b"[" * (1 << 26)))
        if sys.argv[1] == "elsewhere":
            self.send_response(302)
            self.send_header("Location", "/asked")
            return self.end_headers()
        known = {"/props": sys.argv[2].encode()} if len(sys.argv) > 2 else {}
        return self.answer(200 if self.path in known else 404, known.get(self.path, b""))
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
server = Server(("127.0.0.2" if sys.argv[1] == "beside" else "127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def server(name, *arguments, **settings):
    """A program of that name with an endpoint; gives its process and its port."""
    program = os.path.join(FOLDER, name)
    with open(program, "w", encoding="ascii") as file:
        file.write(SERVER)
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **settings) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def asked_for(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/asked") as answer:
        return json.load(answer)[:-1]


def test_a_known_server_is_asked_what_it_has_loaded():
    said = {"total_slots": 3, "build_info": "b1\x07-x", "model_path": "/m\n.gguf", "default_generation_settings": {"n_ctx": 768}}
    with server("llama-server", "good", json.dumps(said)) as (process, port):
        for _ in range(30):  # a busy machine may not answer within the second
            document = attached(process.pid)
            if document["engine"]["version"]:
                break
        assert document["engine"]["name"] == "llama.cpp" and document["engine"]["version"] == "b1?-x", document
        assert document["model"]["path"] == "/m?.gguf", document
        assert (document["settings"]["context_tokens"], document["settings"]["sequences"]) == (768, 3), document
        assert any(f"at port {port}" in note and "768 tokens of context for each of 3" in note for note in document["notes"]), document
        assert "/props" in asked_for(port)


def test_nobody_else_is_asked_and_nobody_against_ones_will():
    with server("other-server", "good", "{}") as (process, port):
        assert "engine" in attached(process.pid) and not asked_for(port)
    with server("llama-server", "good", "{}") as (process, port):
        document = attached(process.pid, "--no-endpoint")
        assert not asked_for(port) and not any("llama" in note for note in document["notes"]), document


# SIOCSIFFLAGS and IFF_UP: a network of one's own begins without a loopback that is up.
APART = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@contextlib.contextmanager
def server_apart(unshare, name, *arguments):
    """As server(), in a network of its own; and one of this network that listens at the same port, if it is free."""
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise tap.Skip("no network of one's own may be made here")
    program = os.path.join(FOLDER, name)
    with open(program, "w", encoding="ascii") as file:
        file.write(SERVER)
    with subprocess.Popen([*unshare, sys.executable, "-c", APART, program, *arguments], stdout=subprocess.PIPE) as process:
        try:
            port = int(process.stdout.readline())
            with socket.socket() as other:
                with contextlib.suppress(OSError):
                    other.bind(("127.0.0.1", port))
                    other.listen()
                    other.setblocking(False)
                yield process, port
                with contextlib.suppress(BlockingIOError, OSError):
                    raise AssertionError(other.accept())
        finally:
            process.kill()


def test_a_server_is_asked_in_its_own_network():
    """Its port is another program's here. Who is not root may enter where it is root of the users there."""
    props = json.dumps({"total_slots": 3, "model_path": "m.gguf", "default_generation_settings": {"n_ctx": 768}})
    for unshare in ["unshare", "--net", "--user", "--map-root-user"], ["unshare", "--net"]:
        if len(unshare) == 2 and os.geteuid() != 0:
            continue
        with server_apart(unshare, "llama-server", "good", props) as (process, port):
            for _ in range(30):  # a busy machine may not answer within the second
                document = attached(process.pid)
                if document["settings"]["sequences"]:
                    break
            assert document["settings"]["context_tokens"] == 768, document
            assert any(f"at port {port} of its own network" in note for note in document["notes"]), document["notes"]


def test_a_server_that_is_slow_in_its_own_network_is_said():
    with server_apart(["unshare", "--net", "--user", "--map-root-user"], "llama-server", "silent") as (process, _):
        assert any("did not answer within" in note for note in attached(process.pid)["notes"])


def test_who_may_not_enter_its_network_does_not_ask_a_server():
    with server_apart(["unshare", "--net", "--user", "--map-root-user"], "llama-server", "good", "{}") as (process, _):
        document = attached_by_another_user(process.pid)
        assert any("it has a network of its own, which this user may not enter" in note for note in document["notes"]), document


def test_servers_that_are_slow_broken_or_closed_are_said():
    """No redirection is followed, nothing is unpacked, and no more than an answer's usual size is read."""
    late = "did not answer within", "does not understand"  # which of them, the machine's speed decides
    for way, *words in (("nonsense", late[1]), ("silent", late[0]), ("closed", late[0]), ("dripping", late[0]), ("endless", *late), ("endless head", *late),
                        ("packed", *late), ("elsewhere", "with status 302"), ("beside", "does not listen at 127.0.0.1"),
                        ("key", "status 401; it may ask for a key")):
        with server("llama-server", way) as (process, port):
            for _ in range(30):  # a busy machine may not answer within the second
                document = attached(process.pid)
                assert adds_up(host(document)), way
                if any(one in note for one in words for note in document["notes"]):
                    break
            else:
                raise AssertionError(f"{way}: {document['notes']}")
            assert not any(note.startswith("at port") for note in document["notes"]), (way, document["notes"])
            if way == "elsewhere":
                assert "/asked" not in asked_for(port)
    for nonsense in "[]", "{", "null", '{"total_slots": -1, "model_path": 7, "default_generation_settings": []}', "[" * 5000:
        with server("llama-server", "good", nonsense) as (process, _):
            document = attached(process.pid)
            assert document["settings"]["context_tokens"] is None and document["settings"]["sequences"] is None, document


def test_nothing_is_left_behind():
    folder = os.path.join(FOLDER, "temporary")
    os.mkdir(folder)
    with held(1) as process:
        assert attach(process.pid, env=dict(os.environ, TMPDIR=folder)).returncode == 0
        assert os.listdir(folder) == []
        done = attach(process.pid, "-o", os.path.join(folder, "kept"))
        assert done.returncode == 0
        again = attach(process.pid, "-o", os.path.join(folder, "kept"))
        assert again.returncode == 2 and "already holds a recording" in again.stderr, again
        assert attach(2**30, "-o", os.path.join(folder, "new")).returncode == 2
        assert os.listdir(folder) == ["kept"]


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
