#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on servers that answer as engines do. The forms are those of the engines' documentation and sources, which each
answer names; docs/ATTACH.md has the table of what was seen of the engines themselves."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import ports
import tap

MEMTALLY = os.environ["MEMTALLY"]
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.mkdtemp(prefix="memtally-attach-servers-")
MIB = 1 << 20
SECRET = "swordfish"
CACHE = os.path.join(FOLDER, "cache")
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 512,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "max_position_embeddings": 4096}
# By the shapes above, 2 bytes each: embedding and output; of a layer queries and output, keys and values, three matrices of the
# feed-forward, two norms; a last norm.
WEIGHTS = 2 * (2 * 4096 * 256 + 4 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256) + 256)
ROTARY = 2 * 4096 * 64  # vLLM keeps the sines and cosines of all positions beside them, SGLang does so in 32 bits
TOKEN = 4 * 2 * 2 * 64 * 2  # layers, keys and values, heads, head size, bytes


def model():
    path = os.path.join(FOLDER, "model")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w", encoding="ascii") as file:
        json.dump(CONFIG, file)
    return path


@contextlib.contextmanager
def server(*words, before=(), log=None, **environment):
    """A server that is started by these words, by way of those before, with `log` as its standard error; gives its process, its port and its
    child's process id."""
    program = os.path.join(FOLDER, words[0])
    shutil.copy(os.path.join(HERE, "server.py"), program)
    settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in environment.items()}
    with subprocess.Popen([*before, sys.executable, program, *words[1:]], env=dict(os.environ, **settings), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=log) as process:
        try:
            port, child = map(int, process.stdout.readline().split())
            yield process, port, child
        finally:
            process.stdin.close()
            process.wait(60)


def attach(*arguments):
    done = subprocess.run([MEMTALLY, "attach", "--json", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def answered(pid):
    """What is seen once the endpoint answered in its second, which a busy machine may not grant at once."""
    for _ in range(30):
        document = attach(pid)
        if any(note.startswith("at port") for note in document["notes"]):
            return document
    raise AssertionError(document["notes"])


def host(document):
    [place] = [place for place in document["places"] if place["place"] == "host"]
    assert sum(row["resident_bytes"] or 0 for row in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"], place
    return {row["category"]: row for row in place["rows"]}


def figure(row):
    return row["resident_bytes"], row["provenance"]


# vllm/v1/metrics/loggers.py of 0.11: a line of labels for each engine, among others.
METRICS = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",num_cpu_blocks="None",num_gpu_blocks="1000",num_gpu_blocks_override="None"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
"""


def vllm(metrics=METRICS):
    return {"/v1/models": {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm", "root": model(), "max_model_len": 512}]},
            "/version": {"version": "0.11.0"}, "/metrics": metrics}


def test_vllms_blocks_times_the_bytes_of_one():
    with server("vllm", "serve", model(), ANSWERS=vllm(), MIB=64) as (process, _, _):
        document = answered(process.pid)
    rows = host(document)
    assert figure(rows["kv_cache"]) == (1000 * 16 * TOKEN, "derived"), rows
    assert figure(rows["weights"]) == (WEIGHTS + ROTARY, "derived"), rows
    assert document["engine"] == {**document["engine"], "name": "vllm", "version": "0.11.0"}, document["engine"]
    assert document["settings"]["context_tokens"] == 512 and document["model"]["path"] == model(), document


# A cache of models that nobody sees but the server: the folder is empty for all others.
APART = """
set -e
mount -t tmpfs none "$APART"
mkdir -p "$APART/hub/models--org--small/refs" "$APART/hub/models--org--small/snapshots/1"
printf 1 >"$APART/hub/models--org--small/refs/main"
cp "$MODEL/config.json" "$APART/hub/models--org--small/snapshots/1"
exec "$@"
"""


@contextlib.contextmanager
def server_apart(**cache):
    """vLLM that serves a model of such a cache; gives its process."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise tap.Skip("no files of one's own may be mounted here")
    answers = vllm()
    answers["/v1/models"]["data"][0]["root"] = "org/small"
    os.makedirs(CACHE, exist_ok=True)
    with server("vllm", "serve", "org/small", before=[*unshare, "sh", "-c", APART, "sh"], ANSWERS=answers, MIB=64, APART=CACHE,
                MODEL=model(), **cache) as (process, _, _):
        yield process
    assert not os.listdir(CACHE)


def test_a_model_is_read_among_the_files_that_its_server_sees():
    for cache in {"HF_HOME": CACHE}, {"HUGGINGFACE_HUB_CACHE": CACHE + "/hub"}:
        with server_apart(**cache) as process:
            rows = host(answered(process.pid))
        assert figure(rows["kv_cache"]) == (1000 * 16 * TOKEN, "derived"), rows
        assert figure(rows["weights"]) == (WEIGHTS + ROTARY, "derived"), rows


def has_begun_to_watch(folder):
    """The machine is looked at when memtally attaches, and again once it has read of the server what it reads."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "watch.mtr"), "rb") as file:
        return file.read(1 << 22).count(b"resident_bytes ") >= 2
    return False


def test_the_model_of_a_server_that_ends_while_it_is_watched_is_known():
    """Its number may be another process's at the end, and its files are gone."""
    with server_apart(HF_HOME=CACHE) as process, tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        words = [MEMTALLY, "attach", "--json", "--no-endpoint", "--for", "1h", "-o", folder, str(process.pid)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as watcher:
            while watcher.poll() is None and not has_begun_to_watch(folder):
                time.sleep(0.01)
            process.stdin.close()
            process.wait(60)
            document = json.loads(watcher.communicate(timeout=120)[0])
    weights = host(document)["weights"]
    assert figure(weights)[1] == "derived" and WEIGHTS <= weights["resident_bytes"] <= WEIGHTS + 2 * ROTARY, weights  # by its version


def asked_silent(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/silent") as answer:
        return json.load(answer)


def test_ports_that_are_silent_leave_time_for_the_one_that_answers():
    """Workers of vLLM and SGLang listen for each other. Which port comes first is the kernel's choice."""
    with server("vllm", "serve", model(), ANSWERS=vllm(), MIB=64, SILENT="6") as (process, _, _):
        assert figure(host(answered(process.pid))["kv_cache"]) == (1000 * 16 * TOKEN, "derived")


def test_of_many_ports_the_one_that_it_was_told_is_asked_alone():
    told = str(ports.free_port())
    with server("vllm", "serve", model(), "--port", told, ANSWERS=vllm(), MIB=64, SILENT="6", PORT=told) as (process, port, _):
        assert figure(host(answered(process.pid))["kv_cache"]) == (1000 * 16 * TOKEN, "derived")
        assert str(port) == told and asked_silent(port) == 0


def test_metrics_that_do_not_tell_leave_the_cache_unknown():
    two = METRICS + METRICS.replace('engine="0"', 'engine="1"')
    for metrics in "", two, METRICS.replace('"1000"', '"None"'), "vllm:cache_config_info{", METRICS.replace("vllm:cache", "x vllm:cache"):
        with server("vllm", "serve", model(), ANSWERS=vllm(metrics), MIB=64) as (process, _, _):
            rows = host(answered(process.pid))
        assert figure(rows["kv_cache"]) == (None, None) and rows["kv_cache"]["allocated_bytes"] is None, (metrics, rows)
        assert rows["weights"]["resident_bytes"] == WEIGHTS + ROTARY, rows


# python/sglang/srt/managers/scheduler.py, get_internal_state: GiB of two digits; http_server.py has the server's arguments beside it.
def sglang(**more):
    return {"/server_info": {"model_path": model(), "version": "0.5.23", "tp_size": 1, "kv_cache_dtype": "auto", "api_key": SECRET,
                             "internal_states": [{"memory_usage": {"weight": 0.02, "kvcache": 0.03, "token_capacity": 12345, "cuda_graph": 0}}],
                             **more}}


def test_sglangs_tokens_times_the_bytes_of_one():
    with server("sglang", "serve", "--model-path", model(), ANSWERS=sglang(), MIB=64) as (process, _, _):
        document = answered(process.pid)
    rows = host(document)
    assert figure(rows["kv_cache"]) == (12345 * TOKEN, "derived"), rows
    assert figure(rows["weights"]) == (WEIGHTS + 2 * ROTARY, "derived"), rows
    assert SECRET not in json.dumps(document), document


def test_an_engines_own_word_counts_where_its_model_cannot_be_read():
    """It is never exact, and not even derived."""
    answers = sglang(model_path="/nowhere/at/all")
    with server("sglang", "serve", ANSWERS={"/get_server_info": answers["/server_info"]}, MIB=64) as (process, _, _):
        document = answered(process.pid)
    rows = host(document)
    assert figure(rows["kv_cache"]) == (int(0.03 * 2**30), "inferred"), rows
    assert figure(rows["weights"]) == (int(0.02 * 2**30), "inferred"), rows


# backends/v3/src/lib.rs: a gauge that is set after the warm-up; the exporter writes other lines of the same beginning.
TGI_METRICS = """# TYPE tgi_batch_max_total_tokens gauge
tgi_batch_max_total_tokens 10000
# TYPE tgi_batch_current_max_tokens gauge
tgi_batch_current_max_tokens 7
"""


def tgi(version, info, metrics=None, log=None):
    """router/src/lib.rs, struct Info; MODEL_ID is a variable of its launcher."""
    answers = {"/info": {"model_id": model(), "version": version, "max_total_tokens": 2048, "max_concurrent_requests": 128,
                         "router": "text-generation-router", **info}, **({"/metrics": metrics} if metrics else {})}
    with server("text-generation-launcher", "--json-output", log=log, ANSWERS=answers, MIB=64, MODEL_ID=model()) as (process, _, _):
        return answered(process.pid)


def test_tgis_tokens_times_the_bytes_of_one():
    """Its word on tokens left /info after 2.2.0, and came to /metrics with 2.3.1."""
    for document in tgi("2.2.0", {"max_batch_total_tokens": 10000}), tgi("3.3.7", {}, TGI_METRICS):
        rows = host(document)
        assert figure(rows["kv_cache"]) == (10000 * TOKEN, "derived"), rows
        assert figure(rows["weights"]) == (WEIGHTS, "derived"), rows
        assert document["engine"]["name"] == "tgi" and document["settings"]["context_tokens"] == 2048, document


def test_tgis_metrics_that_do_not_tell_leave_the_cache_unknown():
    for metrics in None, TGI_METRICS.replace("10000", "NaN"), TGI_METRICS.replace("10000", "-5"), TGI_METRICS.replace("10000", "1e300"), \
            TGI_METRICS + TGI_METRICS, "tgi_batch_max_total_tokens":
        assert figure(host(tgi("3.3.7", {}, metrics))["kv_cache"]) == (None, None), metrics


# Published logs of TGI 1.4 (--json-output) and 2.2: router/src/main.rs, router/src/server.rs.
TGI_LOGS = (
    '{"timestamp":"2024-03-09T05:08:19.961136Z","level":"INFO","message":"Setting max batch total tokens to 10000",'
    '"target":"text_generation_router","filename":"router/src/main.rs","line_number":328}\n',
    "2024-09-03T04:40:19.370247Z  INFO text_generation_router::server: router/src/server.rs:1651: Setting max batch total tokens to 10000\n",
)


def test_tgis_log_tells_where_its_endpoint_does_not():
    """Releases between 2.2.0 and 2.3.1 tell nowhere else. What an older run wrote to the same file does not count, nor does anything else in it."""
    older = f"Setting max batch total tokens to 77\nArgs {{ api_key: Some({SECRET}) }}\n"
    for text, tokens in [(older + line, 10000) for line in TGI_LOGS] + [("Setting max batch total tokens to " + "9" * 30, None), ("x" * 100, None)]:
        with tempfile.TemporaryFile(dir=FOLDER) as log:
            log.write(text.encode())
            log.flush()
            document = tgi("2.3.0", {}, log=log)
        assert figure(host(document)["kv_cache"]) == ((tokens * TOKEN, "derived") if tokens else (None, None)), (text, document)
        assert SECRET not in json.dumps(document), document


def test_ollamas_own_word_is_of_all_that_it_has_loaded():
    """docs/api.md, List Running Models: size and size_vram; nothing tells weights and cache apart."""
    loaded = {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest", "size": 40 * MIB, "size_vram": 10 * MIB, "context_length": 4096,
                          "digest": "a80c4f17acd5", "expires_at": "2026-01-01T00:00:00Z", "details": {"format": "gguf"}}]}
    with server("ollama", "serve", ANSWERS={"/api/ps": loaded, "/api/version": {"version": "0.31.0"}}, MIB=64) as (process, _, _):
        document = answered(process.pid)
    rows = host(document)
    parts = {part["name"]: part for part in rows["runtime"]["detail"]}
    assert figure(parts["weights, cache and compute by the engine's own word"]) == (30 * MIB, "inferred"), rows
    [place] = [place for place in document["places"] if place["place"].startswith("gpu:")]
    told = {row["category"]: figure(row) for row in place["rows"]}
    assert told == {"weights": (None, None), "kv_cache": (None, None), "activations": (None, None), "runtime": (10 * MIB, "inferred")}, place
    assert place["total_resident_bytes"] is None, place  # nobody measured the device
    assert figure(rows["kv_cache"]) == (None, None) and figure(rows["weights"]) == (None, None), rows
    assert any("40.00 MiB, of which 10.00 MiB on devices" in note for note in document["notes"]), document["notes"]


def sample(name):
    path = os.path.join(FOLDER, name)
    shape = "--layers 4 --embedding-length 256 --ff-length 512 --heads 4 --vocabulary 4096".split()
    subprocess.run([MEMTALLY, "sample-model", "custom", path, "--quiet", *shape], check=True)
    return path


def test_ollamas_runner_tells_its_memory():
    """From 0.30 on it is llama-server, on a blob whose name tells nothing."""
    path = sample("sha256-6a0746a1ec1a")
    loaded = {"models": [{"name": "llama3.2:latest", "size": 40 * MIB, "size_vram": 0, "context_length": 2048}]}
    props = {"/props": {"total_slots": 1, "model_path": path, "default_generation_settings": {"n_ctx": 2048}}}
    program = os.path.join(FOLDER, "llama-server")
    shutil.copy(os.path.join(HERE, "server.py"), program)
    with server("ollama", "serve", ANSWERS={"/api/ps": loaded, "/api/version": {"version": "0.31.0"}}, MIB=64,
                RUNNER=[program, "-m", path, "-c", "2048", "-np", "1"], RUNNER_ANSWERS=props) as (process, _, runner):
        document = answered(process.pid)
    assert {one["pid"] for one in document["processes"]} == {process.pid, runner}, document["processes"]
    rows = host(document)
    assert document["engine"] == {**document["engine"], "name": "ollama", "version": "0.31.0"}, document["engine"]
    assert figure(rows["kv_cache"]) == (2048 * 4 * 2 * 256 * 2, "derived"), rows
    assert figure(rows["weights"])[1] == "derived" and abs(rows["weights"]["resident_bytes"] - os.path.getsize(path)) < MIB, rows


def test_answers_that_make_no_sense_do_no_harm():
    huge = 2**62
    for info in ([], {}, {"internal_states": 7}, {"internal_states": [[]], "tp_size": huge}, {"tp_size": -1, "model_path": 8},
                 {"tp_size": huge, "internal_states": [{"memory_usage": {"kvcache": 1e300, "weight": -1, "token_capacity": huge}}]},
                 {"model_path": model(), "internal_states": [{"memory_usage": {"token_capacity": huge}}]}):
        with server("sglang", "serve", ANSWERS={"/server_info": info}, MIB=8) as (process, _, _):
            rows = host(answered(process.pid))
            assert (rows["kv_cache"]["resident_bytes"] or 0) < 64 * MIB, (info, rows)
    for sizes in {"size": -1, "size_vram": 5}, {"size": 5, "size_vram": huge}, {"size": "x"}, {}:
        with server("ollama", "serve", ANSWERS={"/api/ps": {"models": [sizes]}}, MIB=8) as (process, _, _):
            assert not any("has loaded" in note for note in answered(process.pid)["notes"]), sizes


def test_tensorrt_llm_is_not_asked_what_an_answer_would_take_away():
    """tensorrt_llm/serve/openai_server.py: /metrics empties the queue of statistics."""
    answers = {"/v1/models": {"data": [{"id": "m"}]}, "/version": {"version": "1.2.0"}, "/metrics": []}
    with server("trtllm-serve", model(), ANSWERS=answers, MIB=64) as (process, port, _):
        document = answered(process.pid)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/asked") as answer:
            assert "/metrics" not in json.load(answer)
    rows = host(document)
    assert document["engine"] == {**document["engine"], "name": "trt-llm", "version": "1.2.0"}, document["engine"]
    assert figure(rows["kv_cache"]) == (None, None), rows
    assert figure(rows["weights"]) == (WEIGHTS, "derived"), rows


# A published log of 1.2: a cache for the first pass, and then the one that stays.
TRT_LLM_LOG = """[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.28 GiB for max tokens in paged KV cache (8224).
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (16000).
"""


def test_tensorrt_llms_log_tells_of_its_cache():
    with tempfile.TemporaryFile(dir=FOLDER) as log:
        log.write(TRT_LLM_LOG.encode())
        log.flush()
        with server("trtllm-serve", model(), log=log, ANSWERS={"/v1/models": {"data": [{"id": "m"}]}}, MIB=64) as (process, _, _):
            document = answered(process.pid)
    assert figure(host(document)["kv_cache"]) == (16000 * TOKEN, "derived"), document
    assert any("its log says: room for 16000 tokens" in note for note in document["notes"]), document["notes"]


def test_a_worker_that_retitled_itself_is_known_by_its_parent():
    """The model stands in the parent's command line, the port is the parent's; of its own nothing is left to read."""
    words = ["vllm", "serve", model(), "--tensor-parallel-size", "1"]
    with server(*words, ANSWERS=vllm(), MIB=64, WORKER="1", TITLE="VLLM::EngineCore") as (_, port, child):
        with open(f"/proc/{child}/cmdline", "rb") as file:
            assert file.read().rstrip(b"\0") == b"VLLM::EngineCore"
        with open(f"/proc/{child}/environ", "rb") as file:
            assert not file.read().strip(b"\0")
        document = answered(child)
    assert document["engine"]["name"] == "vllm" and document["model"]["path"] == model(), document
    assert any(f"at port {port} " in note for note in document["notes"]), document["notes"]
    assert [process["pid"] for process in document["processes"]] == [child], document["processes"]
    rows = host(document)
    assert figure(rows["kv_cache"]) == (1000 * 16 * TOKEN, "derived"), rows


def test_only_listed_names_of_an_environment_are_read():
    """A secret in a variable of which no table speaks, and one in a flag's variable that is a key."""
    planted = {"HF_TOKEN": SECRET, "VLLM_API_KEY": SECRET, "LLAMA_API_KEY": SECRET}
    folder = os.path.join(FOLDER, "kept")
    props = {"/props": {"total_slots": 1, "model_path": "m.gguf", "default_generation_settings": {"n_ctx": 64}}}
    with server("llama-server", "--api-key", SECRET, ANSWERS=props, **planted) as (process, _, _):
        document = answered(process.pid)
        document["kept"] = attach("-o", folder, process.pid)
    assert SECRET not in json.dumps(document), document
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            assert SECRET.encode() not in file.read(), name


def test_a_variable_that_stands_for_a_flag_counts():
    """The cache's type: 8.5 bits a value in place of 16."""
    path = sample("m.gguf")
    props = {"/props": {"total_slots": 1, "model_path": path, "build_info": "b11434-0", "default_generation_settings": {"n_ctx": 4096}}}
    seen = {}
    for kind in "f16", "q8_0":
        variables = {"LLAMA_ARG_CACHE_TYPE_K": kind, "LLAMA_ARG_CACHE_TYPE_V": kind}
        with server("llama-server", ANSWERS=props, MIB=64, **variables) as (process, _, _):
            seen[kind] = figure(host(answered(process.pid))["kv_cache"])
    assert seen["f16"] == (4096 * 4 * 2 * 256 * 2, "derived"), seen
    assert seen["q8_0"] == (4096 * 4 * 2 * 256 * 34 // 32, "derived"), seen


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
