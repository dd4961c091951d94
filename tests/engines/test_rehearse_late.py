#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What llama-server loads beside its model or takes while it serves, rehearsed: projectors, adapters, draft models,
embeddings, checkpoints, rows split, several devices as one.

Figures are held against llama-server's own log of the same run, or follow from the shapes. The model is Qwen3-0.6B in
8 bits with embeddings of 1,024 values."""

import functools
import json
import os
import re
import tempfile

import attachments
import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance", "configs")
TWO = ["--device", "24GiB,24GiB"]
ONE = ["--device", "24GiB"]


@functools.lru_cache(maxsize=None)
def model(name="qwen3-0.6b"):
    path = os.path.join(SCRATCH.name, name + ".gguf")
    config = os.path.join(CONFIGS, name + ".json")
    source = ["--from", config] if os.path.exists(config) else [name]
    memtally.must("sample-model", *source, path, "--sparse", "--type", "q8_0")
    return path


def rehearse(options, *flags, name="qwen3-0.6b", requests=2):
    """The document and the server's log."""
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    command = [engine.llama_cpp("llama-server"), "-m", model(name), "-np", "1", "-fit", "off", "-t", "1", "-lv", "4", *flags]
    done = memtally.run("rehearse", "--json", "--no-suggest", "--folder", folder, "--requests", str(requests), *options, "--",
                        *command)
    assert done.returncode in (0, 1), done.stderr
    with open(os.path.join(folder, "errors"), encoding="utf-8", errors="replace") as file:
        return json.loads(done.stdout), file.read()


def parts(document, place, category):
    """{detail: bytes} of a place's category."""
    (found,) = [one for one in document["places"] if one["place"] == place]
    return {part["name"]: part["allocated_bytes"] for part in memtally.row(found, category)["detail"]}


def of(document, place, category, words):
    """The bytes of the one part whose detail has the words."""
    found = {name: size for name, size in parts(document, place, category).items() if words in name}
    assert len(found) == 1, (words, parts(document, place, category))
    return sum(found.values())


def logged(log, pattern):
    """The MiB that the log's lines say of a buffer."""
    found = [float(mib) for mib in re.findall(pattern + r"\s*=\s*([0-9.]+) MiB", log)]
    assert found, (pattern, log[-2000:])
    return found


def assert_mib(size, mib):
    assert abs(size / memtally.MIB - mib) <= 0.0051, (size / memtally.MIB, mib)


def projector():
    path = os.path.join(SCRATCH.name, "mmproj-qwen.gguf")
    return path, attachments.write_projector(path, 1024)


def image_rows(document):
    return {(late["place"], late["category"]): late for late in document["rehearsal"]["late"]
            if late["step"] == "request: an image" and "mmproj-qwen" in (late["detail"] or "")}


def test_a_projector_is_loaded_before_the_server_is_ready_and_grows_with_a_large_image():
    path, weights = projector()
    document, log = rehearse(ONE, "-c", "8192", "--mmproj", path, requests=3)
    assert of(document, "gpu:0", "weights", "mmproj-qwen") == weights
    late = image_rows(document)
    assert all(one["category"] != "weights" for one in document["rehearsal"]["late"]), document["rehearsal"]["late"]
    # The encoder is planned for 46 x 46 tokens of 28 points; 4,096 tokens are the most that an image may have.
    assert "warmup with image size = 1288 x 1288" in log
    assert_mib(late["gpu:0", "activations"]["before_bytes"], logged(log, r"reserve_compute_meta:\s+CUDA0 compute buffer size")[-1])
    assert_mib(late["host", "activations"]["before_bytes"], logged(log, r"reserve_compute_meta:\s+CPU compute buffer size")[-1])
    # On the host: three colours of 1,792 x 1,792 points and a mask of 128 x 128 patches by as many, in 32 bits, and the
    # patches' places and orders, of which there are fewer than eight numbers each.
    inputs = 4 * (3 * 1792**2 + (128 * 128) ** 2)
    assert inputs <= late["host", "activations"]["bytes"] <= inputs + 4 * 8 * 128 * 128, late


def test_a_projector_takes_no_more_for_an_image_that_it_was_planned_for():
    path, _ = projector()
    document, _ = rehearse(ONE, "-c", "4096", "--mmproj", path, "--image-max-tokens", "1024", requests=3)
    grown = {key: one for key, one in image_rows(document).items() if one["bytes"] > one["before_bytes"]}
    assert not grown and document["rehearsal"]["requests_refused"] == 0, grown


def test_an_adapter_lies_with_the_layers_that_it_is_of():
    path = os.path.join(SCRATCH.name, "style.gguf")
    shapes = {"attn_q": (1024, 2048), "ffn_up": (1024, 3072)}
    bytes_in_all = attachments.write_adapter(path, "qwen3", range(28), shapes)
    document, log = rehearse(TWO, "-c", "4096", "--lora", path)
    held = [of(document, f"gpu:{i}", "weights", "style") for i in (0, 1)]
    for i in (0, 1):
        assert_mib(held[i], logged(log, rf"CUDA{i} LoRA buffer size")[0])
    # The first device has 15 of 28 layers and the output, the second 13.
    assert held == [bytes_in_all * 15 // 28, bytes_in_all * 13 // 28], held


def test_adapters_that_a_request_asks_for_are_asked_for():
    path = os.path.join(SCRATCH.name, "late.gguf")
    attachments.write_adapter(path, "qwen3", range(28), {"attn_q": (1024, 2048)})
    document, log = rehearse(ONE, "-c", "1024", "--lora", path, "--lora-init-without-apply", requests=4)
    assert document["rehearsal"]["requests_refused"] == 0, document["rehearsal"]
    assert "request: with adapters" in {late["step"] for late in document["rehearsal"]["late"]}
    assert_mib(of(document, "gpu:0", "activations", "compute buffer"), max(logged(log, r"CUDA0 compute buffer size")))


def test_a_draft_model_is_shown_under_its_own_name_on_its_own_device():
    draft = os.path.join(SCRATCH.name, "small-draft.gguf")
    os.symlink(model(), draft)
    document, log = rehearse(TWO, "-c", "4096", "-ts", "1,0", "-md", draft, "--device-draft", "CUDA1")
    # Keys and values of 28 layers for each of 4,096 tokens, 1,024 numbers of 16 bits each.
    assert of(document, "gpu:1", "kv_cache", "small-draft") == 2 * 28 * 4096 * 1024 * 2
    assert_mib(of(document, "gpu:1", "weights", "small-draft"), logged(log, r"CUDA1 model buffer size")[-1])
    assert_mib(of(document, "gpu:1", "activations", "compute buffer, small-draft"), logged(log, r"CUDA1 compute buffer size")[-1])


def test_a_second_context_of_one_model_is_told_from_the_first():
    """Two models of one file have one name; so do two contexts of one model."""
    document, log = rehearse(ONE, "-c", "4096", "-md", model())
    first, second = logged(log, r"CUDA0 compute buffer size")
    assert_mib(of(document, "gpu:0", "activations", "compute buffer, qwen3-0.6b (context 2)"), second)
    assert_mib(parts(document, "gpu:0", "activations")["CUDA0: compute buffer, qwen3-0.6b"], first)


def test_a_server_of_embeddings_is_asked_for_embeddings_alone():
    document, _ = rehearse(ONE, "--embeddings", name="bert-base-uncased", requests=8)
    assert document["rehearsal"]["requests_refused"] == 0 and document["rehearsal"]["requests"] == 1, document["rehearsal"]
    tokens = document["rehearsal"]["longest_prompt_tokens"]
    (late,) = [one for one in document["rehearsal"]["late"] if one["category"] == "activations"]
    # Logits and embeddings of each token: 30,522 and 768 numbers of 32 bits.
    assert late["step"] == "request: embedding" and late["bytes"] >= tokens * 4 * (30522 + 768), (late, tokens)


def test_a_server_of_ranks_is_asked_to_rank():
    document, _ = rehearse(ONE, "--reranking", name="bert-base-uncased", requests=8)
    assert document["rehearsal"]["requests_refused"] == 0 and document["rehearsal"]["requests"] == 1, document["rehearsal"]


def test_checkpoints_of_recurrent_states_are_copies_of_states():
    document, log = rehearse(TWO, "-c", "8192", name="Qwen3.5-35B-A3B", requests=2)
    said = {float(mib) for mib in re.findall(r"created context checkpoint .*? size = ([0-9.]+) MiB", log)}
    copies = [late["bytes"] / memtally.MIB for late in document["rehearsal"]["late"] if late["category"] == "kv_cache"]
    assert said and all(any(abs(copy - mib) < 0.001 for copy in copies) for mib in said), (said, copies)


def test_several_devices_as_one_share_weights_and_cache():
    document, log = rehearse(TWO, "-c", "4096", "-sm", "tensor", requests=3)
    assert document["rehearsal"]["outcome"] == "ran" and document["rehearsal"]["requests_refused"] == 0, document["rehearsal"]
    for i in (0, 1):
        assert_mib(sum(parts(document, f"gpu:{i}", "weights").values()), logged(log, r"Meta\(\) model buffer size")[0])
        assert_mib(sum(parts(document, f"gpu:{i}", "kv_cache").values()), logged(log, r"Meta\(\) KV buffer size")[0])
        assert_mib(of(document, f"gpu:{i}", "activations", "compute buffer"), logged(log, r"Meta\(\) compute buffer size")[0])
        # What is summed: 512 tokens of 1,024 numbers of 32 bits, with the padding of an allocator.
        summed = of(document, f"gpu:{i}", "activations", "sums over devices")
        assert 0 <= summed - 512 * 1024 * 4 < 65536, summed
    assert any("NCCL" in note for note in document["notes"]), document["notes"]
    # Half of 2 x 28 layers x 1,024 numbers x 16 bits of each token.
    assert sum(parts(document, "gpu:0", "kv_cache").values()) == 4096 * 28 * 1024 * 2


def test_rows_are_not_split_by_a_build_that_cannot():
    document, log = rehearse(TWO, "-sm", "row")
    assert document["rehearsal"]["outcome"] != "ran" and "does not support split buffers" in log
    done = memtally.run("estimate", model(), "--no-rehearse", "--split", "row", *TWO)
    assert done.returncode == 2 and "--split layer is the nearest" in done.stderr, done.stderr


def test_weights_that_do_not_fit_suggest_experts_on_the_processor():
    command = [engine.llama_cpp("llama-server"), "-m", model("qwen3-30b-a3b"), "-np", "1", "-fit", "off", "-c", "2048"]
    options = ["rehearse", "--json", "--quiet", "--device", "8GiB", "--requests", "0"]
    document = json.loads(memtally.run(*options, "--", *command).stdout)
    changes = [change["flags"] for change in document["rehearsal"]["would_fit"]]
    assert changes and changes[0].startswith("-ncmoe "), changes
    assert not any(change.startswith(("-c ", "-ub ")) for change in changes), changes
    flag, layers = changes[0].split()
    for moved, outcome in ((int(layers), "ran"), (int(layers) - 1, "ran out")):
        again = json.loads(memtally.run(*options, "--no-suggest", "--", *command, flag, str(moved)).stdout)
        assert again["rehearsal"]["outcome"] == outcome, (moved, again["rehearsal"]["outcome"])


if __name__ == "__main__":
    tap.main(globals())
