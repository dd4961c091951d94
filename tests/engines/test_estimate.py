#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally estimate` by rules against what a real llama-server says of its buffers, and against a profile of a real run."""

import json
import os
import re
import subprocess
import tempfile

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
LINE = re.compile(r"(?P<buffer>\S+)\s+(?P<kind>model|KV|compute|output|RS) buffer size\s*=\s*(?P<mib>[0-9.]+) MiB")
CATEGORY = {"model": "weights", "KV": "kv_cache", "compute": "activations", "output": "activations", "RS": "recurrent_state"}


def model(shape, kind, mode="--sparse", smaller=()):
    """A sample of a shape, with smaller numbers where it would fill the page cache."""
    path = os.path.join(SCRATCH.name, f"{shape}-{kind}{mode}.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", shape, path, mode, "--type", kind, *smaller)
    return path


def server_log(path, *flags):
    """What llama-server prints until it listens; the buffers of a dry run before are cut off."""
    command = [engine.llama_cpp("llama-server"), "-m", path, "--no-warmup", "--port", "0", "-t", "1", "-fit", "off", "-v", *flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        text = engine.listening(server)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    text = text.decode(errors="replace")
    assert "listening" in text, text[-2000:]
    return text[text.index("load_tensors:"):]


def logged(log):
    """MiB of each category, as printed."""
    sums = {}
    for match in LINE.finditer(log):
        category = CATEGORY[match["kind"]]
        sums.setdefault(category, []).append(float(match["mib"]))
    assert "weights" in sums and "kv_cache" in sums and len(sums["activations"]) == 2, log[-2000:]
    return sums


def estimate(path, *flags):
    return json.loads(memtally.must("estimate", path, "--engine", "llama.cpp@11434", "--no-rehearse", "--cpu", engine.cpu(),
                                    "--json", *flags).stdout)


def assert_as_logged(path, ours, theirs):
    """Each category is the sum of what the log prints, to half of its last digit for each line."""
    host = memtally.host(estimate(path, *ours))
    for category, values in logged(server_log(path, *theirs)).items():
        mib = memtally.row(host, category)["allocated_bytes"] / memtally.MIB
        assert abs(mib - sum(values)) <= 0.005 * len(values) + 1e-9, (category, mib, values)


def test_a_server_with_all_defaults():
    assert_as_logged(model("smollm-135m", "q8_0"), ["--context", "2048"], ["-c", "2048"])


def test_weights_that_are_repacked():
    path = model("smollm-135m", "q4_0", "--random")
    assert_as_logged(path, ["--context", "1024", "--sequences", "1"], ["-c", "1024", "-np", "1"])
    assert_as_logged(path, ["--context", "1024", "--sequences", "1", "--no-mmap"], ["-c", "1024", "-np", "1", "--load-mode", "none"])


def test_sequences_with_caches_of_their_own():
    assert_as_logged(model("qwen3-0.6b", "q8_0"), ["--context", "5000", "--sequences", "3", "--no-kv-unified"],
                     ["-c", "5000", "-np", "3", "--no-kv-unified"])


def test_a_quantised_cache_and_large_batches():
    assert_as_logged(model("qwen3-0.6b", "q8_0"),
                     ["--context", "8192", "--sequences", "1", "--ubatch", "1024", "--kv-type", "q8_0", "--flash-attn", "on"],
                     ["-c", "8192", "-np", "1", "-ub", "1024", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"])


def test_without_flash_attention():
    assert_as_logged(model("llama-3.2-1b", "q8_0"), ["--context", "4096", "--sequences", "2", "--flash-attn", "off"],
                     ["-c", "4096", "-np", "2", "-fa", "off"])


def test_windowed_layers():
    path = model("gemma-3-1b", "q8_0")
    assert_as_logged(path, ["--context", "16384", "--sequences", "1"], ["-c", "16384", "-np", "1"])
    assert_as_logged(path, ["--context", "16384", "--sequences", "1", "--swa-full"], ["-c", "16384", "-np", "1", "--swa-full"])


def test_latent_attention():
    """With AMX llama.cpp ends where several matrices are in one tensor, so that there its own layouts are not seen."""
    without = (["--no-repack"], ["--no-repack"]) if engine.cpu() == "amx" else ([], [])
    if without[0]:
        tap.comment("a processor with AMX: layouts of latent attention's weights are not seen")
    assert_as_logged(model("deepseek-v2-lite", "q8_0", smaller=["--experts", "8"]),
                     ["--context", "4096", "--sequences", "1", *without[0]], ["-c", "4096", "-np", "1", *without[1]])


def test_experts():
    assert_as_logged(model("qwen3-30b-a3b", "q8_0", smaller=["--layers", "3"]), ["--context", "4096", "--sequences", "1"], ["-c", "4096", "-np", "1"])


def test_the_pasted_flags_make_the_server_hold_what_was_estimated():
    path = model("smollm-135m", "q8_0")
    document = estimate(path, "--context", "3000", "--sequences", "2", "--kv-type", "q8_0", "--ubatch", "256")
    sums = logged(server_log(path, *document["flags"].split()))
    for category, values in sums.items():
        mib = memtally.row(memtally.host(document), category)["allocated_bytes"] / memtally.MIB
        assert abs(mib - sum(values)) <= 0.005 * len(values) + 1e-9, (category, mib, values)


def test_a_profile_agrees_with_its_estimate():
    """As `make demo` does: the engine's own buffers to the byte, but for what the model's header takes."""
    path = model("smollm-135m", "q8_0", "--random")
    environment = dict(os.environ, PATH=os.path.dirname(engine.node()) + ":" + os.environ["PATH"],
                       XDG_STATE_HOME=os.path.join(SCRATCH.name, "state"))
    folder = memtally.profile_of_all_buffers(
        os.path.join(SCRATCH.name, "profile"), path, "--engine", "node-llama-cpp", "--engine-path", engine.node_llama_cpp(),
        "--threads", "1", "--max-tokens", "16", "--repeats", "1", "--context", "1024", env=environment)
    first = json.loads(memtally.must("compare", folder, "--estimate", "--json", env=environment).stdout)
    parts = {part["component"]: part for part in first["components"]}
    for name in ("kv_cache", "activations"):
        assert parts[name]["difference_bytes"] == 0, parts[name]
    assert abs(parts["weights"]["difference_bytes"]) < 65536, parts["weights"]
    memtally.must("compare", folder, "--estimate", "--learn", env=environment)
    second = json.loads(memtally.must("compare", folder, "--estimate", "--json", env=environment).stdout)
    total = {part["component"]: part for part in second["components"]}["total"]
    assert abs(total["difference_ratio"]) <= 0.01, total


if __name__ == "__main__":
    tap.main(globals())
