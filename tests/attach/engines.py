#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on vLLM and SGLang that serve on pretended devices, while the recorder is in them: two observers of one server.
What attach derives from the server's words and the model's header is held against the recording, within 2 %. Then the same with the
server in a container of Podman, which has a network of its own.

    engines.py MEMTALLY NAME PYTHON...     a name and the Python that has it, for each engine
    engines.py --beside                    what runs in the rehearsal, for a server in a container
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import container_engines
import ports
import tap

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "num_hidden_layers": 8, "num_attention_heads": 9,
          "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
          "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2}
MODULES = {"vllm": ["-m", "vllm.entrypoints.openai.api_server", "--model", "MODEL", "--load-format", "dummy", "--skip-tokenizer-init",
                    "--enforce-eager", "--max-model-len", "2048"],
           "sglang": ["-m", "sglang.launch_server", "--model-path", "MODEL", "--load-format", "dummy", "--skip-tokenizer-init",
                      "--disable-cuda-graph"]}
READY = {"vllm": "/health", "sglang": "/health"}
# The server is recorded; what attaches to it sees the devices that it sees. All is ended by the server's own process id. A rehearsal
# ends a server as soon as it is ready: so it listens in a network of its own, in which the rehearsal cannot ask.
LOOPBACK = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 1))"  # SIOCSIFFLAGS, IFF_UP
BESIDE = """
python3 -c "$LOOPBACK" || exit 1
eval "set -- $WORDS"
"$MEMTALLY" run -q -o "$FOLDER/recording" -- "$@" >"$FOLDER/log" 2>&1 &
run=$!
tries=0
until python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "http://127.0.0.1:$PORT$READY" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 1500 ] && kill -0 $run || { tail -40 "$FOLDER/log" >&2; exit 1; }
    sleep 1
done
server=$(cat /proc/$run/task/$run/children)
for pid in $server $(cat /proc/${server%% *}/task/*/children); do
    tries=0 # a busy machine may not grant an answer within the second
    until "$MEMTALLY" attach --json $pid >"$FOLDER/attached-$pid" && grep -q '"at port' "$FOLDER/attached-$pid" || [ $tries -ge 30 ]; do
        tries=$((tries + 1))
    done
done
"$MEMTALLY" attach $server
cp "$MEMTALLY" "$FOLDER/memtally"
chmod 755 "$FOLDER"
setpriv --reuid 12345 --regid 12345 --clear-groups env -i PATH="$PATH" TMPDIR=/tmp "$FOLDER/memtally" attach --json $server >"$FOLDER/stranger"
kill -INT $server
wait $run
"""


ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"
SYSTEM = "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/etc/passwd"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def options_of(words, folder):
    """The container has such of this machine's files as the server needs, and it is preloaded as all of the rehearsal is, which knows processes
    by the machine's numbers."""
    base = subprocess.run([words[0], "-c", "import sys; print(sys.prefix, sys.base_prefix)"], capture_output=True, text=True, check=True).stdout.split()
    options = ["--network", "none", "--pid", "host", "--shm-size", "1g", "--env-host", "-v", f"{tempfile.gettempdir()}:{tempfile.gettempdir()}"]
    for path in [*(path for path in SYSTEM if os.path.exists(path)), *base, os.environ["BUILD_DIR"], ROOT]:
        if not path.startswith(tempfile.gettempdir()):
            options += ["-v", f"{path}:{path}:ro"]
    return [*options, "-w", folder]


def beside():
    """A server in a container, recorded there and attached to from here. The rehearsal does not find it, for it is in another network."""
    memtally, folder, port = os.environ["MEMTALLY"], os.environ["FOLDER"], os.environ["PORT"]
    words = shlex.split(os.environ["WORDS"])
    tempfile.tempdir = os.environ["TEMPORARY"]  # a rehearsal's own is in it; its name is too long for Podman
    machine = container_engines.Podman()
    try:
        machine.build("bare", {})
        machine.call("run", "-d", "--name", "server", *options_of(words, folder), "localhost/bare:1", memtally, "run", "-q", "-o",
                     f"{folder}/recording", "--", *words)
        machine.containers.append("server")
        enter = ["nsenter", "--net", "-t", str(machine.pid("server")), sys.executable, "-c", ASK, f"http://127.0.0.1:{port}{os.environ['READY']}"]
        until = time.monotonic() + 1500
        while subprocess.run(enter, stderr=subprocess.DEVNULL, check=False).returncode:
            assert machine.inspect("server")["State"]["Running"] and time.monotonic() < until, machine.logs("server")[-4000:]
            time.sleep(1)
        server = child_of(machine.pid("server"))
        for name, which in ("container", ["--container", machine.inspect("server")["Id"][:12]]), ("server", [str(server)]):
            for _ in range(30):  # a busy machine may not grant an answer within the second
                done = subprocess.run([memtally, "attach", "--json", *which], capture_output=True, text=True, check=True)
                if '"at port' in done.stdout:
                    break
            with open(f"{folder}/attached-{name}", "w", encoding="utf-8") as file:
                file.write(done.stdout)
        shutil.copy(memtally, f"{folder}/memtally")
        os.chmod(folder, 0o755)
        done = subprocess.run(["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", f"{folder}/memtally", "attach", "--json", str(server)],
                              env={"PATH": os.environ["PATH"], "TMPDIR": "/tmp"}, cwd="/", capture_output=True, text=True, check=True)
        with open(f"{folder}/stranger", "w", encoding="utf-8") as file:
            file.write(done.stdout)
        os.kill(server, signal.SIGINT)
        machine.call("wait", "server", check=False)
    finally:
        machine.close()


def rows(document):
    """Bytes of weights and cache of all devices."""
    sums = {}
    for place in document["places"]:
        if place["place"].startswith("gpu:"):
            for row in place["rows"]:
                sums[row["category"]] = sums.get(row["category"], 0) + (row["resident_bytes"] or 0)
            total = sum(row["resident_bytes"] or 0 for row in place["rows"]) + place["unattributed_bytes"]
            assert total == place["total_resident_bytes"], place
    return sums


def judge_stranger(name, folder):
    """Who has no rights sees sizes: what they are for is unknown, and that is said."""
    with open(os.path.join(folder, "stranger"), encoding="utf-8") as file:
        document = json.load(file)
    told = {row["category"]: row["resident_bytes"] for place in document["places"] for row in place["rows"]}
    sums = [sum(row["resident_bytes"] or 0 for row in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"]
            for place in document["places"]]
    is_fine = all(sums) and not told.get("weights") and not told.get("kv_cache") and \
        any("open to its own user" in note for note in document["notes"])
    print(f"{'ok' if is_fine else 'not ok'}  {name}  seen by a user without rights: {told}", flush=True)
    return not is_fine


def attach_to(memtally, name, python, folder, program):
    """`program` runs in the rehearsal."""
    model = os.path.join(folder, "model")
    os.makedirs(model)
    with open(os.path.join(model, "config.json"), "w", encoding="ascii") as file:
        json.dump(CONFIG, file)
    port = str(ports.free_port())
    words = [model if word == "MODEL" else word for word in MODULES[name]]
    environment = dict(os.environ, MEMTALLY=memtally, FOLDER=folder, PORT=port, READY=READY[name], LOOPBACK=LOOPBACK, TEMPORARY=tempfile.gettempdir(), HF_HUB_OFFLINE="1",
                       VLLM_NO_USAGE_STATS="1", WORDS=shlex.join([python, *words, "--host", "127.0.0.1", "--port", port]))
    subprocess.run([memtally, "rehearse", "--layer", "cuda", "-d", "H100-80GB", "--requests", "0", "--no-suggest", "--quiet", "--timeout", "1800", "--",
                    *program], env=environment, check=True, timeout=1800)
    report = subprocess.run([memtally, "report", "--json", os.path.join(folder, "recording")], capture_output=True,
                            check=True)
    inside = rows(json.loads(report.stdout))
    failed, n_seen = judge_stranger(name, folder), 0
    for file_name in sorted(os.listdir(folder)):
        if not file_name.startswith("attached-"):
            continue
        with open(os.path.join(folder, file_name), encoding="utf-8") as file:
            document = json.load(file)
        if not document["engine"]["name"]:  # one that Python starts beside a server, of which nothing tells
            print(f"--  {document['processes'][0]['command'][-60:]}", flush=True)
            continue
        n_seen += 1
        outside = rows(document)
        if any("and this process has" in note for note in document["notes"]):  # one with no more than a context
            failed += bool(outside.get("weights") or outside.get("kv_cache"))
            print(f"--  {document['processes'][0]['command'][-60:]}: not the one that has them", flush=True)
            continue
        for category in "weights", "kv_cache":
            one, other = outside.get(category, 0), inside.get(category, 0)
            is_near = other > 0 and abs(one - other) <= 0.02 * other
            failed += not is_near
            print(f"{'ok' if is_near else 'not ok'}  {name} {document['engine']['version']}  {document['processes'][0]['command'][:30]:30}"
                  f"  {category:8}  attached {one / 2**20:10.2f} MiB  recorded {other / 2**20:10.2f} MiB", flush=True)
        if not is_near:
            print("\n".join(document["notes"]), flush=True)
    return failed or n_seen == 0


def places():
    """Where a server is started: a name, and the program that does it."""
    yield "out of a container", ["unshare", "--net", "sh", "-c", BESIDE]
    try:
        container_engines.Podman().close()
    except tap.Skip as reason:
        print(f"--  {reason}", flush=True)
        return
    yield "in a container", [sys.executable, os.path.abspath(__file__), "--beside"]


def main():
    if sys.argv[1:] == ["--beside"]:
        beside()
        return
    memtally = os.path.abspath(sys.argv[1])
    failed = 0
    for name, python in zip(sys.argv[2::2], sys.argv[3::2]):
        for place, program in places():
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                failed += attach_to(memtally, name, python, folder, program)
                print(f"{name} {place}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
