#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally profile` with every engine: the tally against the engine's log, the runs, the files it leaves."""

import csv
import json
import os
import re
import tempfile

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
SKEW_RATIO = 0.001
MAX_TOKENS = 48


def model():
    path = os.path.join(SCRATCH.name, "model.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", "smollm-135m", path, "--random", "--type", "q8_0")
    return path


def skew_ratio(document):
    """Infinite where the kernel's figure is not known, as of a child that ends while its picture is taken."""
    place = memtally.host(document)
    skew = place["picture_skew_bytes"]
    return float("inf") if skew is None else abs(skew) / place["total_resident_bytes"]


def profile(name, engine_path, *arguments):
    """A profile whose picture was not taken while memory moved, as a busy machine may do: the third is the last."""
    for _ in range(3):
        answer = profile_once(name, engine_path, *arguments)
        if skew_ratio(answer[0]) <= SKEW_RATIO:
            break
    return answer


def profile_once(name, engine_path, *arguments):
    """Profiles with an engine; returns the report, the engine's log and the folder."""
    folder = tempfile.mkdtemp(prefix=name, dir=SCRATCH.name)
    environment = dict(os.environ, PATH=os.path.dirname(engine.node()) + ":" + os.environ["PATH"])
    memtally.must("profile", *memtally.PICTURES, model(), "--engine", name, "--engine-path", engine_path, "--threads", "1",
                  "--prompt-tokens", "24", "--max-tokens", str(MAX_TOKENS), "--repeats", "3", "-o", folder,
                  *arguments, env=environment)
    with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
        document = json.load(file)
    with open(os.path.join(folder, "engine.log"), encoding="utf-8", errors="replace") as file:
        return document, file.read(), folder


def check_place(document):
    place = memtally.host(document)
    total = place["total_resident_bytes"]
    memtally.assert_adds_up(place)
    assert place["unattributed_bytes"] <= 0.005 * total, (place["unattributed_bytes"], total)
    assert skew_ratio(document) <= SKEW_RATIO, (place["picture_skew_bytes"], total)
    return place


def check_runs(document, folder):
    """The warm-up and three repeats, each with its latency and peak, and the same in the CSV."""
    counted = [run for run in document["runs"] if not run["warm_up"]]
    assert len(counted) == 3, document["runs"]
    for run in counted:
        assert run["latency_ms"] > 0 and run["max_new_tokens"] == MAX_TOKENS
        assert abs(run["prefill_ms"] + run["decode_ms"] - run["latency_ms"]) <= 0.2 * run["latency_ms"] + 1, run
        assert 100 * memtally.MIB < run["peak_memory_bytes"] <= memtally.host(document)["peak_resident_bytes"] * 1.01
    with open(os.path.join(folder, "report.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"steps", "batch_size", "max_new_tokens", "latency_ms", "peak_memory_bytes"} <= set(rows[0]), rows[0]
    assert [int(row["peak_memory_bytes"]) for row in rows][-3:] == [run["peak_memory_bytes"] for run in counted]


def check_profiler_names(document):
    """The field names that LLM profilers write, beside the exact bytes."""
    breakdown = document["memory_breakdown"]
    parts = ("model_weights_gb", "kv_cache_gb", "activations_gb", "framework_overhead_gb")
    assert abs(sum(breakdown[part] for part in parts) - breakdown["total_gb"]) < 1e-6, breakdown
    assert document["model_info"]["num_parameters"] == 134515008, document["model_info"]
    assert document["gpu_info"]["num_gpus"] == 0, document["gpu_info"]


def test_node_llama_cpp_agrees_with_its_log():
    document, log, folder = profile("node-llama-cpp", engine.node_llama_cpp(), "--context", "1024")
    check_place(document)
    memtally.assert_recorded_buffers_are_as_logged(folder, log)
    check_runs(document, folder)
    check_profiler_names(document)
    assert document["settings"]["context_tokens"] == 1024


def test_node_llama_cpp_runs_two_sequences_side_by_side():
    document, log, folder = profile("node-llama-cpp", engine.node_llama_cpp(), "--context", "512", "--batch-size", "2")
    assert all(run["batch_size"] == 2 for run in document["runs"]), document["runs"]
    check_place(document)
    memtally.assert_recorded_buffers_are_as_logged(folder, log)


def test_llama_server_agrees_with_its_log():
    document, log, folder = profile("llama-server", engine.llama_cpp(""), "--context", "1024")
    log = re.sub(r"^\S+ [A-Z] ", "", log, flags=re.M)
    check_place(document)
    memtally.assert_recorded_buffers_are_as_logged(folder, log[log.rindex("load_tensors:"):])
    check_runs(document, folder)
    check_profiler_names(document)


def test_llama_bench_tells_prefill_and_decode_apart():
    document, _, folder = profile("llama-bench", engine.llama_cpp(""))
    check_place(document)
    check_runs(document, folder)
    assert document["engine"]["name"] == "llama.cpp"
    # Each of its tests has a context of its own, as large as the prompt or the output, both padded to 256 cells here.
    compared = json.loads(memtally.must("compare", folder, "--estimate", "--json").stdout)
    parts = {part["component"]: part["difference_bytes"] for part in compared["components"]}
    assert parts["kv_cache"] == 0, parts
    assert any("a context for each of its tests" in note for note in compared["notes"]), compared["notes"]


def test_an_engine_that_cannot_load_the_model_says_so_and_leaves_no_report():
    broken = os.path.join(SCRATCH.name, "broken.gguf")
    with open(model(), "rb") as whole, open(broken, "wb") as half:
        half.write(whole.read(1 << 20))
    folder = os.path.join(SCRATCH.name, "broken")
    done = memtally.run("profile", broken, "--engine", "llama-server", "--engine-path", engine.llama_cpp(""), "-o", folder)
    assert done.returncode != 0, done.stdout
    assert done.stderr.startswith("memtally: "), done.stderr
    assert not os.path.exists(os.path.join(folder, "report.json"))


if __name__ == "__main__":
    tap.main(globals())
