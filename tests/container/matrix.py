#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on llama-server, node, a program with PyTorch and a static Go program: in and out of a container of Podman, seen by the
same user, by root, and by a user without rights. A line for each. Rows must add up to what the kernel says; what a mapping or an endpoint
tells must agree with the recording of the same process within 2 %; what nothing tells must be unknown. Needs root."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import container_engines
import engine
import memtally
import on_host
import ports
import tap

OWNER, STRANGER = 65534, 12345
SHAPE = "--layers 8 --embedding-length 512 --ff-length 2048 --heads 8 --vocabulary 8192".split()
NODE = 'const held = Buffer.alloc(64 << 20, 1); console.log("ready"); setInterval(() => held[0], 1000000)'
TORCH = 'import time, torch; held = torch.ones(16 << 20); print("ready", flush=True); time.sleep(100000)'
GO = """package main
import ("fmt"; "time")
func main() {
    held := make([]byte, 64<<20)
    for i := range held { held[i] = 1 }
    fmt.Println("ready")
    time.Sleep(100 * time.Hour)
    fmt.Println(len(held))
}
"""
# Another user has no way into a home: what is needed of it is shown in a file system of the program's own.
OWN_HOME = """
i=0; for path in $SHOWN; do mkdir -p "$BEHIND/$i"; mount --bind "$path" "$BEHIND/$i"; i=$((i + 1)); done
mount -t tmpfs -o mode=755 none "$HOME_FOLDER"
i=0; for path in $SHOWN; do mkdir -p "$path"; mount --bind "$BEHIND/$i" "$path"; i=$((i + 1)); done
exec setpriv --reuid %d --regid %d --clear-groups "$@"
""" % (OWNER, OWNER)
SYSTEM = "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives"


class Program:
    """What is started; `recorded` says that it runs under the recorder, which shows what attach must agree with."""

    def __init__(self, name, words, shown=(), says="ready", environment=None, recorded=False, unknown=False):
        self.name, self.words, self.says, self.recorded, self.unknown = name, words, says, recorded, unknown
        self.shown = [path for path in shown if path.startswith(os.path.expanduser("~") + "/")]
        self.environment = {"HOME": "/tmp", "TMPDIR": "/tmp", "PATH": "/usr/bin:/bin", **(environment or {})}


def with_go(folder):
    if not shutil.which("go"):
        print("--  go: there is none here", flush=True)
        return []
    source, program = f"{folder}/held.go", f"{folder}/held-go"
    with open(source, "w", encoding="ascii") as file:
        file.write(GO)
    settings = dict(os.environ, CGO_ENABLED="0", GOCACHE=f"{folder}/go", GO111MODULE="off", GOFLAGS="")
    subprocess.run(["go", "build", "-o", program, source], env=settings, check=True, timeout=240)
    return [Program("go", [program])]


def programs(folder):
    """Each anew for each place: a recording has a folder of its own."""
    server = engine.llama_cpp("llama-server")
    python = engine.torch()
    base = subprocess.run([python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout.strip()
    # Another user has no way into the tree, where the links lead.
    libraries = shutil.copytree(on_host.stage(f"{folder}/links")["LD_LIBRARY_PATH"], f"{folder}/libraries")
    # No processor lays out the weights anew: they stay mapped.
    words = [f"{folder}/memtally", "run", "--quiet", "-o", f"{folder}/recording", "--", server, "-m", f"{folder}/model.gguf", "--port", str(ports.free_port()),
             "-c", "1024", "-np", "2", "--no-repack"]
    return [Program("llama-server", words, [os.path.dirname(server)], "listening", recorded=True,
                    environment={"MEMTALLY_RECORDER": f"{folder}/libmemtally-record.so"}),
            Program("node", [engine.node(), "-e", NODE], [os.path.dirname(os.path.dirname(engine.node()))]),
            Program("pytorch", [python, "-c", TORCH], [os.path.dirname(os.path.dirname(python)), base],
                    environment={"LD_LIBRARY_PATH": libraries, "HF_HUB_OFFLINE": "1"}, unknown=True),
            *with_go(folder)]


def target_of(pid, program):
    return memtally.child_of(pid) if program.recorded else pid


@contextlib.contextmanager
def outside(program, folder):
    """The process to look at, run by a user who owns nothing here."""
    log = f"{folder}/log"
    environment = {**program.environment, "SHOWN": " ".join(program.shown), "BEHIND": f"{folder}/behind", "HOME_FOLDER": os.path.expanduser("~")}
    with open(log, "wb") as output:
        started = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-ec", OWN_HOME, "sh", *program.words], env=environment,
                                   cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def is_ready():
        with open(log, "rb") as file:
            said = file.read()
        assert started.poll() is None, said
        return program.says.encode() in said

    try:
        container_engines.patiently(f"{program.name} does not become ready", is_ready)
        pid = target_of(started.pid, program)
        yield pid, str(pid)
    finally:
        with contextlib.suppress(ProcessLookupError, UnboundLocalError):
            os.kill(pid, signal.SIGINT)
        if not program.recorded:
            started.kill()
        started.wait(120)


@contextlib.contextmanager
def inside(program, folder, machine):
    binds = [*(path for path in SYSTEM if os.path.exists(path)), *program.shown]
    options = ["--network", "host", "--user", f"{OWNER}:{OWNER}", "--tmpfs", "/tmp:mode=1777", "-v", f"{folder}:{folder}"]
    for path in binds:
        options += ["-v", f"{path}:{path}:ro"]
    for name, value in program.environment.items():
        options += ["-e", f"{name}={value}"]
    machine.run(program.name, "bare", *program.words, options=options, says=program.says)
    try:
        pid = target_of(machine.pid(program.name), program)
        yield pid, machine.inspect(program.name)["Id"][:12]
    finally:
        if program.recorded:
            os.kill(pid, signal.SIGINT)
            machine.call("wait", program.name)
        machine.remove(program.name)


def attach(viewer, command, words):
    """What a user sees who has no other rights than his own."""
    as_user = [] if viewer == 0 else ["setpriv", "--reuid", str(viewer), "--regid", str(viewer), "--clear-groups"]
    done = subprocess.run([*as_user, command, "attach", "--json", *words], capture_output=True, text=True, timeout=120, check=False, cwd="/",
                          env={"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"})
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def rss(document, recorded):
    """Resident bytes by the kernel of the processes that were seen; a recorded process has its recording mapped, which is none of it."""
    total = 0
    for process in document["processes"]:
        with open(f"/proc/{process['pid']}/smaps_rollup", encoding="ascii") as file:
            total += next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))
    return total, 0.01 + 0.02 * recorded


def figures(document):
    return {name: memtally.row(memtally.host(document), name)["resident_bytes"] for name in ("weights", "kv_cache")}


def judge(program, viewer, document):
    """What is wrong, in words."""
    place = memtally.host(document)
    total, band = rss(document, program.recorded)
    seen = figures(document)
    sums = sum(row["resident_bytes"] or 0 for row in place["rows"]) + place["unattributed_bytes"]
    wrong = [] if sums == place["total_resident_bytes"] else [f"rows add up to {sums} of {place['total_resident_bytes']}"]
    if abs(place["total_resident_bytes"] - total) > band * total:
        wrong.append(f"{place['total_resident_bytes']} of {total} bytes")
    known = {(one["place"], name): memtally.row(one, name)["resident_bytes"] for one in document["places"] for name in seen}
    if program.unknown and any(value is not None for value in known.values()):
        wrong.append(f"known: {known}")
    if viewer == STRANGER and any(value == 0 for value in seen.values()):
        wrong.append(f"nothing where nobody could look: {seen}")
    if not program.unknown and not program.recorded and any(seen.values()):
        wrong.append(f"a model: {seen}")
    if viewer == STRANGER and not any("open to its own user" in note for note in document["notes"]):
        wrong.append("what is missing is not said")
    return wrong


def seen_by_all(program, pid, identity, command):
    """What each viewer is shown, and what of it is wrong. A busy machine may not let the endpoint answer within its second."""
    documents = {}
    for viewer, name in (OWNER, "same user"), (0, "root"), (STRANGER, "no rights"):
        words = ["--container", identity] if identity != str(pid) and not program.recorded else [str(pid)]
        for _ in range(30):
            document = attach(viewer, command, words)
            if not program.recorded or viewer == STRANGER or document["settings"]["sequences"]:
                break
        documents[viewer, name] = document, judge(program, viewer, document)
    return documents


def tell(program, where, documents, recorded):
    failed = 0
    for (viewer, name), (document, wrong) in documents.items():
        seen = figures(document)
        for category, truth in recorded.items():
            told = seen[category]
            if told is None and viewer == STRANGER:
                continue
            if told is None or abs(told - truth) > 0.02 * truth:
                wrong.append(f"{category} {told} where {truth} were recorded")
        shown = ", ".join(f"{key} {'unknown' if value is None else f'{value / memtally.MIB:.2f} MiB'}" for key, value in seen.items() if value != 0)
        total = memtally.host(document)["total_resident_bytes"] / memtally.MIB
        print(f"{'not ok' if wrong else 'ok'}  {program.name:12}  {where:3}  {name:9}  {total:7.1f} MiB  {shown or 'no model'}  {'; '.join(wrong)}", flush=True)
        failed += bool(wrong)
    return failed


def try_place(where, begin):
    failed = 0
    with tempfile.TemporaryDirectory(prefix="memtally-matrix-") as folder:
        os.chmod(folder, 0o777)
        command = f"{folder}/memtally"  # the tree may be where another user has no way to
        shutil.copy(memtally.program(), command)
        shutil.copy(os.path.join(os.environ["BUILD_DIR"], "src", "recorder", "libmemtally-record.so"), folder)
        memtally.must("sample-model", "custom", f"{folder}/model.gguf", "--quiet", *SHAPE)
        os.chmod(f"{folder}/model.gguf", 0o644)
        for program in programs(folder):
            with begin(program, folder) as (pid, identity):
                documents = seen_by_all(program, pid, identity, command)
            recorded = figures(memtally.report(f"{folder}/recording", "steady")) if program.recorded else {}
            failed += tell(program, where, documents, recorded)
    return failed


def main():
    if os.geteuid() != 0:
        sys.exit("--  only root can be each user: nothing was tried")
    failed = try_place("out", outside)
    machine = None
    try:
        machine = container_engines.Podman()
        machine.build("bare", {})
        failed += try_place("in", lambda program, folder: inside(program, folder, machine))
    except tap.Skip as reason:
        print(f"--  {reason}", flush=True)
    finally:
        if machine:
            machine.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
