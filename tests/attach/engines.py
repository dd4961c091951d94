#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on vLLM and SGLang that serve on pretended devices, while the recorder is in them: two observers of one server.
What attach derives from the server's words and the model's header is held against the recording, within 2 %.

    engines.py MEMTALLY NAME PYTHON...     a name and the Python that has it, for each engine
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

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
kill -INT $server
wait $run
"""


def free_port():
    import socket  # pylint: disable=import-outside-toplevel
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


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


def attach_to(memtally, name, python, folder):
    model = os.path.join(folder, "model")
    os.makedirs(model)
    with open(os.path.join(model, "config.json"), "w", encoding="ascii") as file:
        json.dump(CONFIG, file)
    port = str(free_port())
    words = [model if word == "MODEL" else word for word in MODULES[name]]
    environment = dict(os.environ, MEMTALLY=memtally, FOLDER=folder, PORT=port, READY=READY[name], LOOPBACK=LOOPBACK, HF_HUB_OFFLINE="1",
                       VLLM_NO_USAGE_STATS="1", WORDS=shlex.join([python, *words, "--host", "127.0.0.1", "--port", port]))
    subprocess.run([memtally, "rehearse", "--layer", "cuda", "-d", "H100-80GB", "--requests", "0", "--no-suggest", "--quiet", "--timeout", "1800", "--",
                    "unshare", "--net", "sh", "-c", BESIDE], env=environment, check=True, timeout=1800)
    report = subprocess.run([memtally, "report", "--json", os.path.join(folder, "recording")], capture_output=True,
                            check=True)
    inside = rows(json.loads(report.stdout))
    failed = 0
    for file_name in sorted(os.listdir(folder)):
        if not file_name.startswith("attached-"):
            continue
        with open(os.path.join(folder, file_name), encoding="utf-8") as file:
            document = json.load(file)
        outside = rows(document)
        for category in "weights", "kv_cache":
            one, other = outside.get(category, 0), inside.get(category, 0)
            is_near = other > 0 and abs(one - other) <= 0.02 * other
            failed += not is_near
            print(f"{'ok' if is_near else 'not ok'}  {name} {document['engine']['version']}  {document['processes'][0]['command'][:30]:30}"
                  f"  {category:8}  attached {one / 2**20:10.2f} MiB  recorded {other / 2**20:10.2f} MiB", flush=True)
        if not is_near:
            print("\n".join(document["notes"]), flush=True)
    return failed


def main():
    memtally = os.path.abspath(sys.argv[1])
    failed = 0
    for name, python in zip(sys.argv[2::2], sys.argv[3::2]):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            failed += attach_to(memtally, name, python, folder)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
