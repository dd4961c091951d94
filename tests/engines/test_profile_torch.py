#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally profile` of a model in transformers, on pretended devices and on the CPU: lengths, sums and places by
arithmetic of the model's shape."""

import csv
import functools
import json
import os
import subprocess
import tempfile

import engine
import memtally
import on_host
import tap

SCRATCH = tempfile.TemporaryDirectory()
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, WORDS = 256, 512, 4, 8, 4, 4096
KV_WIDTH = HIDDEN // HEADS * KV_HEADS
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": WORDS,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}


def shapes():
    yield "model.embed_tokens.weight", [WORDS, HIDDEN]
    yield "lm_head.weight", [WORDS, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, width in (("q", HIDDEN), ("k", KV_WIDTH), ("v", KV_WIDTH)):
            yield f"{at}self_attn.{name}_proj.weight", [width, HIDDEN]
        yield at + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]
        yield at + "mlp.gate_proj.weight", [INNER, HIDDEN]
        yield at + "mlp.up_proj.weight", [INNER, HIDDEN]
        yield at + "mlp.down_proj.weight", [HIDDEN, INNER]
        yield at + "input_layernorm.weight", [HIDDEN]
        yield at + "post_attention_layernorm.weight", [HIDDEN]


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


PARAMETERS = sum(elements(shape) for _, shape in shapes())
ROUNDED = 512  # what PyTorch's blocks are multiples of; each weight here is one
COUNTS = """import sys, torch, transformers
with torch.device("meta"):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(sys.argv[1]))
print(*(buffer.nbytes for buffer in model.buffers()))
"""


@functools.cache
def model(has_weights=True):
    """A folder with the config.json, and a file of zeros for weights."""
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    if not has_weights:
        return folder
    header, at = {}, 0
    for name, shape in shapes():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * elements(shape)]}
        at += 2 * elements(shape)
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return folder


@functools.cache
def buffers():
    """The bytes of each buffer, as the model itself counts them where no memory is: the rotary embedding's frequencies, which some
    versions of transformers have twice."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([engine.torch(), "-c", COUNTS, model(has_weights=False)], env=on_host.stage(os.path.join(folder, "stage")),
                              stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    sizes = [int(word) for word in done.stdout.split()]
    assert set(sizes) == {HIDDEN // HEADS // 2 * 4}, sizes
    return sizes


def buffers_on_a_device():
    return sum(-(-size // ROUNDED) * ROUNDED for size in buffers())


def copy_on_the_host():
    """What 4.57 of transformers keeps of the frequencies on the host; the watcher sees it in some runs only."""
    return -(-buffers()[0] // 64) * 64


def ask(folder, *arguments, environment=None):
    return memtally.run("profile", folder, "--engine", "transformers", "--engine-path", engine.torch(), "--threads", "1",
                        *arguments, env=dict(os.environ, **environment or {}), timeout=580)


def profile(*arguments, folder=None, environment=None, repeats=1, prompt=8, new=4):
    """The report, and the folder that it is in."""
    out = tempfile.mkdtemp(dir=SCRATCH.name)
    done = ask(folder or model(), "--prompt-tokens", str(prompt), "--max-tokens", str(new), "--repeats", str(repeats), "-o", out,
               *arguments, environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
        return json.load(file), out


def on_devices(document):
    return [place for place in document["places"] if place["place"].startswith("gpu:") and place["rows"]]


def weights(place):
    return memtally.row(place, "weights")["resident_bytes"]


@functools.cache
def on_one():
    return profile("--on", "H100-80GB", new=100, repeats=3)


def test_lengths_include_the_prompt():
    """8 tokens of a prompt and 100 new ones; `compare` subtracts again."""
    info = on_one()[0]["model_info"]
    assert (info["prompt_length"], info["generated_length"], info["total_sequence_length"]) == (8, 108, 108), info
    assert info["num_parameters"] == PARAMETERS and info["dtype"] == "BF16" and info["batch_size"] == 1, info


def test_a_model_on_one_device_has_no_overhead_and_says_so():
    document, _ = on_one()
    info = document["gpu_info"]
    assert info["num_gpus"] == 1 and info["multi_gpu_overhead_gb"] == 0 and len(info["gpu_memory_per_device"]) == 1, info
    assert any("lies on one device" in note for note in document["notes"]), document["notes"]
    assert document["model_info"]["hf_device_map"] == {"model": "cuda:0"}, document["model_info"]
    (place,) = on_devices(document)
    assert weights(place) == 2 * PARAMETERS + buffers_on_a_device(), (weights(place), PARAMETERS)
    assert document["model"]["weight_bytes"] == 2 * PARAMETERS + sum(buffers()), document["model"]


def test_each_run_has_its_times_and_peaks():
    document, folder = on_one()
    assert [run["run"] for run in document["runs"]] == [0, 1, 2, 3] and document["runs"][0]["warm_up"], document["runs"]
    assert document["spread"]["latency_ms"]["runs"] == 3, document["spread"]
    for run in document["runs"]:
        assert run["steps"] == 100 and 0 < run["prefill_ms"] < run["latency_ms"], run
        assert abs(run["prefill_ms"] + run["decode_ms"] - run["latency_ms"]) < 0.01, run
        assert run["peak_device_bytes"] >= 2 * PARAMETERS, run
    with open(os.path.join(folder, "report.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["peak_device_bytes"]) for row in rows] == [run["peak_device_bytes"] for run in document["runs"][1:]], rows
    assert all(float(row["prefill_ms"]) > 0 and float(row["decode_ms"]) > 0 for row in rows), rows


def test_layers_and_operations_stand_below_the_table_and_in_files():
    """Each layer has its weights by arithmetic: attention's four and the three of the block behind it, and two norms."""
    out = tempfile.mkdtemp(dir=SCRATCH.name)
    done = ask(model(), "--prompt-tokens", "8", "--max-tokens", "4", "--repeats", "1", "-o", out, "--on", "H100-80GB", "--layers", "--operations")
    assert done.returncode == 0, done.stderr[-3000:]
    layer = 2 * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_WIDTH + 3 * HIDDEN * INNER + 2 * HIDDEN)
    with open(os.path.join(out, "layers.csv"), encoding="utf-8", newline="") as file:
        rows = {row["module"]: row for row in csv.DictReader(file)}
    for number in range(LAYERS):
        assert int(rows[f"model.layers.{number}"]["weights_device_bytes"]) == layer, (layer, rows)
    with open(os.path.join(out, "operations.json"), encoding="utf-8") as file:
        operations = json.load(file)["operations"]
    # Two products of each block widen the 8 tokens of a prompt, in the warm-up and in the run behind it.
    (widening,) = [one for one in operations if one["operation"] == "aten::mm" and one["shapes"] == f"[8, {HIDDEN}] [{HIDDEN}, {INNER}]"]
    n_products = 2 * LAYERS * 2
    assert (widening["count"], widening["own_device_bytes"]) == (n_products, n_products * 8 * INNER * 2), widening
    assert "lm_head Linear" in done.stdout and f"aten::mm [8, {HIDDEN}] [{HIDDEN}, {INNER}]" in done.stdout, done.stdout[-3000:]


def test_layers_that_would_be_lost_are_refused():
    for words, said in ((("--json", "--layers"), "say where with -o DIR"), (("--engine", "llama-bench", "--operations"), "llama-bench is none")):
        done = ask(model(), *words)
        assert done.returncode == 2 and said in done.stderr, done


def test_a_report_is_shown_again_with_its_map():
    shown = memtally.report(on_one()[1])
    assert shown["model_info"] == on_one()[0]["model_info"], shown["model_info"]


def test_the_estimate_of_a_profile_has_its_type_and_its_length():
    """The cache has a place for each of the 108 tokens."""
    compared = json.loads(memtally.must("compare", on_one()[1], "--estimate", "--json").stdout)
    parts = {part["component"]: part for part in compared["components"]}
    assert abs(parts["weights"]["difference_bytes"]) <= buffers_on_a_device() + copy_on_the_host(), parts["weights"]
    assert parts["kv_cache"]["b_bytes"] == LAYERS * 2 * KV_WIDTH * 2 * 108, parts["kv_cache"]


def test_layers_are_divided_over_two_devices():
    document, _ = profile("--on", "2xH100-80GB", "--device-map", "auto")
    assert set(document["model_info"]["hf_device_map"].values()) == {"cuda:0", "cuda:1"}, document["model_info"]
    places = on_devices(document)
    assert len(places) == 2 and sum(map(weights, places)) >= 2 * PARAMETERS, places
    # No weight is on both: beyond one copy there is the other device's context.
    contexts = [memtally.row(place, "context")["resident_bytes"] for place in places]
    beyond = sum(map(weights, places)) - document["model"]["weight_bytes"]
    assert abs(document["gpu_info"]["multi_gpu_overhead_gb"] * 1e9 - min(contexts) - beyond) < 1, (document["gpu_info"], contexts)
    assert beyond <= 2 * buffers_on_a_device(), beyond
    assert not any("lies on one device" in note for note in document["notes"]), document["notes"]


def test_a_file_says_where_modules_go():
    path = os.path.join(SCRATCH.name, "map.json")
    said = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 1, "lm_head": 1}
    said |= {f"model.layers.{layer}": int(layer > 0) for layer in range(LAYERS)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)
    document, _ = profile("--on", "2xH100-80GB", "--device-map", path)
    assert document["model_info"]["hf_device_map"] == {name: f"cuda:{device}" for name, device in said.items()}
    layer = sum(elements(shape) for name, shape in shapes() if name.startswith("model.layers.0."))
    first = [place for place in on_devices(document) if abs(weights(place) - 2 * (WORDS * HIDDEN + layer)) <= 2 * ROUNDED]
    assert len(first) == 1, on_devices(document)


def test_two_devices_share_each_layer():
    document, _ = profile("--on", "2xH100-80GB", "--tensor-parallel", "2")
    assert document["model"]["weight_bytes"] == 2 * PARAMETERS + sum(buffers()), document["model"]
    assert document["gpu_info"]["num_gpus"] == 2 and document["gpu_info"]["multi_gpu_overhead_gb"] > 0, document["gpu_info"]
    one, other = map(weights, on_devices(document))
    assert one == other and PARAMETERS < one < 2 * PARAMETERS, (one, other, PARAMETERS)


def test_a_folder_without_weights_will_do_on_pretended_devices_in_another_type():
    document, _ = profile("--on", "H100-80GB", "--dtype", "f32", folder=model(has_weights=False))
    assert weights(on_devices(document)[0]) == 4 * PARAMETERS + buffers_on_a_device(), on_devices(document)
    assert document["model_info"]["dtype"] == "F32", document["model_info"]


def test_on_the_cpu():
    """The libraries of CUDA are stand-ins and show no device: the fetched PyTorch has none of its own."""
    document, _ = profile("--on", "H100-80GB", "--batch-size", "2", environment={"CUDA_VISIBLE_DEVICES": ""})
    assert document["model_info"]["hf_device_map"] == {"model": "cpu"} and document["model_info"]["batch_size"] == 2
    assert document["gpu_info"]["num_gpus"] == 0, document["gpu_info"]
    assert all(run["peak_device_bytes"] is None for run in document["runs"]), document["runs"]
    memtally.assert_adds_up(memtally.host(document))


def test_bad_settings_are_the_users():
    path = os.path.join(SCRATCH.name, "no-map.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[]")
    for arguments, words in ((["--device-map", path], "no JSON object of modules"), (["--prompt", "hello"], "no tokenizer"),
                             (["--dtype", "q4_0"], "no weights of type q4_0")):
        done = ask(model(), "--on", "H100-80GB", *arguments)
        assert done.returncode == 2 and words in done.stderr, (done.returncode, done.stderr[-2000:])


if __name__ == "__main__":
    tap.main(globals())
