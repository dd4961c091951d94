#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally rehearse MODEL` with a real llama-server: the table against what the server itself prints, against the
rules, verdicts, sweeps, and a rehearsal as one side of a comparison."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import tempfile
import time

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
LINE = re.compile(r"(?P<buffer>\S+)\s+(?P<kind>model|KV|compute|output|RS) buffer size\s*=\s*(?P<mib>[0-9.]+) MiB")
CATEGORY = {"model": "weights", "KV": "kv_cache", "compute": "activations", "output": "activations", "RS": "recurrent_state"}
MIB = memtally.MIB


def model(shape, kind="q8_0", smaller=()):
    """A sample of a shape: a header with a hole."""
    path = os.path.join(SCRATCH.name, f"{shape}-{kind}{'-'.join(smaller)}.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", shape, path, "--sparse", "--type", kind, *smaller)
    return path


def rehearse(*arguments, status=0, **more):
    """What a rehearsal of a model writes as JSON."""
    done = memtally.run("rehearse", *arguments, "--engine-path", engine.llama_cpp(""), "--json", **more)
    assert done.returncode == status, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def place(document, name):
    (found,) = [one for one in document["places"] if one["place"] == name]
    return found


def own_word(devices, *flags):
    """What llama-server prints of its buffers on the same pretended devices: {(place, category): [MiB, …]}."""
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    memtally.must("rehearse", "--device", devices, "--requests", "0", "--no-suggest", "--folder", folder, "--",
                  engine.llama_cpp("llama-server"), "--no-warmup", "-lv", "4", "-fit", "off", *flags)
    log = ""
    for name in ("output", "errors"):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            log += file.read()
    sums = {}
    for match in LINE.finditer(log):
        device = re.fullmatch(r"CUDA(\d+)", match["buffer"])
        where = f"gpu:{device[1]}" if device else "host"
        sums.setdefault((where, CATEGORY[match["kind"]]), []).append(float(match["mib"]))
    assert any(where.startswith("gpu:") for where, _ in sums), log[-3000:]
    return sums


def assert_as_printed(path, devices, ours, theirs):
    """Each category of each place is the sum of what the server prints, to half of the last digit of each line."""
    document = rehearse(path, "--device", devices, *ours)
    assert document["kind"] == "estimate" and document["engine"]["path"].endswith("llama-server")
    for (where, category), values in own_word(devices, "-m", path, *theirs).items():
        mib = memtally.row(place(document, where), category)["allocated_bytes"] / MIB
        assert abs(mib - sum(values)) <= 0.005 * len(values) + 1e-9, (where, category, mib, values)
    return document


def test_one_device_as_the_server_prints_it():
    document = assert_as_printed(model("qwen3-0.6b"), "8GiB", ["--context", "8192", "--gpu-layers", "all", "--sequences", "1"],
                                 ["-c", "8192", "-ngl", "99", "-np", "1"])
    assert document["verdict"] == "FITS"
    said = [detail["provenance"] for one in place(document, "gpu:0")["rows"] for detail in one["detail"]]
    assert set(said) == {"exact", "derived"}, said


def test_two_devices_a_quantised_cache_and_large_batches_as_the_server_prints_them():
    assert_as_printed(model("qwen3-0.6b"), "8GiB,8GiB",
                      ["--context", "16384", "--gpu-layers", "all", "--sequences", "4", "--no-kv-unified", "--ubatch", "1024",
                       "--kv-type", "q8_0", "--flash-attn", "on"],
                      ["-c", "16384", "-ngl", "99", "-np", "4", "--no-kv-unified", "-ub", "1024", "-ctk", "q8_0", "-ctv", "q8_0",
                       "-fa", "on"])


def test_half_of_the_layers_and_experts_on_the_host_as_the_server_prints_them():
    assert_as_printed(model("gemma-3-1b"), "8GiB", ["--context", "8192", "--gpu-layers", "10", "--sequences", "1", "--swa-full"],
                      ["-c", "8192", "-ngl", "10", "-np", "1", "--swa-full"])
    experts = model("qwen3-30b-a3b", smaller=("--layers", "3"))
    assert_as_printed(experts, "8GiB",
                      ["--context", "4096", "--gpu-layers", "all", "--sequences", "1", "--cpu-moe", "2", "--no-kv-offload"],
                      ["-c", "4096", "-ngl", "99", "-np", "1", "--n-cpu-moe", "2", "--no-kv-offload"])
    assert_as_printed(experts, "8GiB,8GiB",
                      ["--context", "4096", "--gpu-layers", "all", "--sequences", "1", "--override-tensor", r"blk\.0\..*exps=CPU",
                       "--override-tensor", "ffn_gate_exps=0"],
                      ["-c", "4096", "-ngl", "99", "-np", "1", "-ot", r"blk\.0\..*exps=CPU,ffn_gate_exps=CUDA0"])


def assert_rules_say_the_same(path, *flags):
    """Weights and cache to the byte, compute buffers to 0.05 %. Returns the compute buffer of the first device."""
    flags = [path, "--device", "24GiB,24GiB", "--gpu-layers", "all", *flags, "--json"]
    rules = json.loads(memtally.must("estimate", *flags, "--no-rehearse", "--engine", "llama.cpp@11434").stdout)
    said = rehearse(*flags[:-1])
    for where in ("gpu:0", "gpu:1", "host"):
        for category in ("weights", "kv_cache", "activations"):
            ours = memtally.row(place(rules, where), category)["allocated_bytes"]
            theirs = memtally.row(place(said, where), category)["allocated_bytes"]
            slack = 0.0005 * theirs if category == "activations" else 0
            assert abs(ours - theirs) <= slack, (where, category, ours, theirs)
    return memtally.row(place(said, "gpu:0"), "activations")["allocated_bytes"]


def test_rules_say_the_same_of_a_shape_that_they_know():
    assert_rules_say_the_same(model("qwen3-0.6b"), "--context", "8192", "--sequences", "1")


def test_rules_say_the_same_of_experts_whose_operations_are_fused_or_not():
    flags = ["--context", "4096", "--sequences", "2", "--no-kv-unified", "--flash-attn", "off", "--ubatch", "1024"]
    for path in (model("qwen3-30b-a3b", smaller=("--layers", "6")), model("deepseek-v2-lite")):
        fused = assert_rules_say_the_same(path, *flags)
        plain = assert_rules_say_the_same(path, *flags, "--no-fusion")
        assert fused != plain, (path, fused)


def test_an_estimate_is_rehearsed_where_an_engine_is_at_hand():
    folder = os.path.dirname(engine.llama_cpp("llama-server"))
    environment = dict(os.environ, MEMTALLY_ENGINES="/nonexistent", PATH=folder + ":/usr/bin:/bin")
    environment.pop("MEMTALLY_NO_REHEARSE", None)
    flags = ["estimate", model("qwen3-0.6b"), "--device", "8GiB", "--context", "4096", "--json"]
    found = json.loads(memtally.must(*flags, env=environment).stdout)
    assert found["engine"]["path"] == os.path.realpath(engine.llama_cpp("llama-server")), found["engine"]
    assert any(note.startswith("Rehearsed:") for note in found["notes"]), found["notes"]
    other = json.loads(memtally.must(*flags, "--engine", "llama.cpp@9000", env=environment).stdout)
    assert other["engine"]["path"] is None, other["engine"]
    without = json.loads(memtally.must(*flags, "--no-rehearse", env=environment).stdout)
    assert without["engine"]["path"] is None, without["engine"]
    empty = dict(environment, PATH="/nonexistent")
    alone = json.loads(memtally.must(*flags, env=empty).stdout)
    assert alone["engine"]["path"] is None and alone["places"] == without["places"]


def test_an_inverse_query_is_answered_by_rules_and_rehearsed_once():
    path = model("qwen3-0.6b")
    done = memtally.run("estimate", path, "--device", "4GiB", "--max-context", "--sequences", "1", "--engine-path", engine.llama_cpp(""), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["answer"]["value"] == document["settings"]["context_tokens"], document["answer"]
    assert document["engine"]["path"].endswith("llama-server")


def test_an_answer_is_rehearsed_with_the_sequences_that_the_engine_takes():
    """llama-server keeps one cache for all sequences unless it is told how many there are."""
    path = model("qwen3-0.6b")
    found = json.loads(memtally.must("estimate", path, "--device", "4GiB", "--max-context", "--engine-path", engine.llama_cpp(""), "--json").stdout)
    context = found["answer"]["value"]
    assert found["settings"]["context_tokens"] == context, (found["answer"], found["settings"])
    asked = rehearse(path, "--device", "4GiB", "--context", str(context), "--gpu-layers", "all")
    rows = [memtally.row(place(document, "gpu:0"), "activations")["allocated_bytes"] for document in (found, asked)]
    assert rows[0] == rows[1], rows


def test_the_largest_ubatch_is_rehearsed_with_a_batch_that_holds_it():
    """llama.cpp computes no more tokens at a time than it is handed over, 2048 where nothing is said."""
    path = model("qwen3-0.6b")
    found = json.loads(memtally.must("estimate", path, "--device", "24GiB", "-c", "8192", "--max-batch", "--engine-path", engine.llama_cpp(""), "--json").stdout)
    assert found["answer"]["value"] == found["settings"]["ubatch"] == 8192, (found["answer"], found["settings"])


def test_the_largest_file_that_fits_is_asked_of_the_engine_itself():
    """By rules both fit 24 GiB; what is shown of the larger one is the engine's own plan, and of the other the rules'."""
    paths = model("qwen3-0.6b"), model("qwen3-0.6b", "f16")
    flags = ("--device", "24GiB", "-c", "4096", "--engine-path", engine.llama_cpp(""), "--json")
    found = json.loads(memtally.must("estimate", "--best-quant", *paths, *flags).stdout)
    assert found["answer"]["path"] == paths[1], found["answer"]
    small, large = found["estimates"]
    assert large["engine"]["path"].endswith("llama-server") and small["engine"]["path"] is None, (small["engine"], large["engine"])
    alone = json.loads(memtally.must("estimate", paths[1], *flags).stdout)
    assert alone["places"] == large["places"], "rehearsed by itself the file takes something else"


def test_attention_copies_as_on_the_card_that_is_named():
    """Ada's kernel reads q8_0 of two rows as it is; Ampere's takes copies in f16 (fattn.cu): 8192 cells of 1024 values, twice."""
    path = model("qwen3-0.6b")
    flags = ("--context", "8192", "--kv-type", "q8_0", "--batch", "2", "--ubatch", "2", "--program", "bench", "--gpu-layers", "99")
    ampere, ada = (memtally.row(place(rehearse(path, "--device", card, *flags), "gpu:0"), "activations")["allocated_bytes"]
                   for card in ("RTX3090", "RTX4090"))
    assert 30 * MIB < ampere - ada <= 32 * MIB, (ampere, ada)
    done = memtally.run("rehearse", path, "--device", "RTX3090", "--generation", "ada")
    assert done.returncode == 2 and "RTX3090 is a GPU of generation ampere (8.6), not of 'ada'" in done.stderr, done.stderr


def test_each_of_two_cards_copies_as_its_own_generation_does():
    """An Ampere card copies beside an Ada one what it copies alone, whichever is first: half the layers' kernels are its."""
    path = model("qwen3-0.6b")
    flags = ("--context", "8192", "--kv-type", "q8_0", "--batch", "2", "--ubatch", "2", "--program", "bench", "--gpu-layers", "99")
    for cards in ("RTX3090,RTX4090", "RTX4090,RTX3090"):
        document = rehearse(path, "--device", cards, *flags)
        taken = {card: memtally.row(place(document, f"gpu:{i}"), "activations")["allocated_bytes"]
                 for i, card in enumerate(cards.split(","))}
        assert taken["RTX3090"] > 30 * MIB > 8 * MIB > taken["RTX4090"], (cards, taken)


def test_a_device_that_is_too_small_cannot():
    """12.9 GiB of weights do not go into 8 GiB; the table says what they would take."""
    path = model("qwen3-30b-a3b", smaller=("--layers", "20"))
    document = rehearse(path, "--device", "8GiB", "--context", "4096", "--gpu-layers", "all", status=1)
    assert document["verdict"] == "CANNOT" and "gpu:0" in document["reason"], document["reason"]
    weights = memtally.row(place(document, "gpu:0"), "weights")["allocated_bytes"]
    assert weights > 8 * 1024 * MIB, weights


def test_what_is_left_open_is_placed_by_the_engine_and_spills():
    path = model("qwen3-30b-a3b", smaller=("--layers", "20"))
    document = rehearse(path, "--device", "8GiB", "--context", "4096", "--host", "64GiB", status=1)
    assert document["verdict"] == "SPILLS", (document["verdict"], document["reason"])
    gpu = place(document, "gpu:0")
    assert gpu["total_allocated_bytes"] <= 8 * 1024 * MIB, gpu["total_allocated_bytes"]
    assert memtally.row(memtally.host(document), "weights")["allocated_bytes"] > 1024 * MIB
    assert "-ngl" not in document["flags"].split(), document["flags"]


def test_the_flags_of_what_spills_are_those_that_it_ran_with():
    """Pasted, they put the same weights and cache on the device; then they are asked for, and nothing spills."""
    path = model("qwen3-0.6b")
    document = rehearse(path, "--device", "2GiB", "--context", "8192", "--sequences", "1", status=1)
    assert document["verdict"] == "SPILLS" and "(-fitt)" in document["reason"], document["reason"]
    flags = document["flags"].split()
    layers = int(flags[flags.index("-ngl") + 1])
    assert 0 < layers < 28 and flags[flags.index("-c") + 1] == "8192", flags
    done = memtally.run("rehearse", "--device", "2GiB", "--requests", "0", "--json", "--", engine.llama_cpp("llama-server"),
                        "-m", path, *flags)
    pasted = json.loads(done.stdout)
    assert done.returncode == 0 and pasted["verdict"] == "FITS", pasted["reason"]
    for category in ("weights", "kv_cache"):
        assert memtally.row(place(document, "gpu:0"), category)["allocated_bytes"] == \
            memtally.row(place(pasted, "gpu:0"), category)["allocated_bytes"], category


def test_a_model_that_runs_out_is_told_as_a_command_line_is():
    """28 layers, 8 heads of keys and of values, 128 wide, 2 bytes, 16384 tokens: 1.75 GiB do not go into 1.5."""
    flags = [model("qwen3-0.6b"), "--device", "1536MiB", "--context", "16384", "--gpu-layers", "all", "--sequences", "1"]
    document = rehearse(*flags, status=1)
    rehearsal = document["rehearsal"]
    refused = rehearsal["refused"]
    assert document["verdict"] == "CANNOT" and rehearsal["outcome"] == "ran out", document["reason"]
    assert (refused["place"], refused["category"], refused["asked_bytes"]) == ("gpu:0", "kv_cache", 28 * 2 * 8 * 128 * 2 * 16384)
    assert refused["missing_bytes"] == refused["asked_bytes"] - refused["free_bytes"] > 0, refused
    assert "are missing" in document["reason"] and rehearsal["command"][-1] == "off", document["reason"]
    (context,) = [change for change in rehearsal["would_fit"] if change["flags"].startswith("-c ")]
    assert context["options"] == "--context " + context["flags"].split()[1], context
    flags[flags.index("16384")] = context["flags"].split()[1]
    assert rehearse(*flags)["rehearsal"]["outcome"] == "ran"
    assert rehearse(*flags, "--context", "16384", "--no-suggest", status=1)["rehearsal"]["would_fit"] == []


def test_where_no_change_fits_the_least_that_was_tried_is_named():
    document = rehearse(model("qwen3-0.6b"), "--device", "110MiB", "--context", "4096", "--gpu-layers", "all", status=1)
    (note,) = [note for note in document["notes"] if note.startswith("No change of flags that was tried fits")]
    assert "not even -ngl 0" in note and document["rehearsal"]["would_fit"] == [], note


def test_a_model_is_asked_and_kept_where_that_is_wanted():
    folder = os.path.join(SCRATCH.name, "kept")
    flags = [model("qwen3-0.6b"), "--device", "8GiB", "--context", "4096", "--sequences", "1"]
    assert rehearse(*flags)["rehearsal"]["requests"] == 0
    document = rehearse(*flags, "--folder", folder, "--requests", "2")
    assert document["rehearsal"]["requests"] == 2 and document["rehearsal"]["longest_prompt_tokens"] > 0, document["rehearsal"]
    assert document["verdict"] == "FITS", document["reason"]
    assert sorted(os.listdir(folder)) == ["account", "engine.log"], os.listdir(folder)
    assert memtally.run("rehearse", *flags, "--engine-path", engine.llama_cpp(""), "--folder", folder).returncode == 2


def test_the_cpu_alone():
    document = rehearse(model("qwen3-0.6b"), "--context", "4096", "--sequences", "1")
    assert [one["place"] for one in document["places"]] == ["host"]
    rules = json.loads(memtally.must("estimate", model("qwen3-0.6b"), "--context", "4096", "--sequences", "1", "--no-rehearse",
                                     "--engine", "llama.cpp@11434", "--json").stdout)
    for category in ("kv_cache", "activations"):
        assert memtally.row(memtally.host(document), category)["allocated_bytes"] == \
            memtally.row(memtally.host(rules), category)["allocated_bytes"], category


def test_every_program_answers():
    flags = [model("qwen3-0.6b"), "--device", "8GiB", "--context", "4096", "--gpu-layers", "all"]
    server = rehearse(*flags, "--sequences", "1")
    bench = rehearse(*flags, "--program", "bench")
    fit = rehearse(*flags, "--program", "fit-params")
    for document, name in ((server, "llama-server"), (bench, "llama-bench"), (fit, "llama-fit-params")):
        assert document["engine"]["path"].endswith(name), document["engine"]
        # 28 layers, 8 heads of 128, keys and values in 2 bytes, 4096 cells.
        assert memtally.row(place(document, "gpu:0"), "kv_cache")["allocated_bytes"] == 28 * 8 * 128 * 2 * 2 * 4096, name
    # A server has logits of one row for each sequence; the others of a whole batch, 512 rows of 151,936 singles.
    compute = [memtally.row(place(one, "gpu:0"), "activations")["allocated_bytes"] for one in (server, bench, fit)]
    assert compute[1] == compute[2] > compute[0], compute
    assert compute[1] >= 512 * 151936 * 4, compute


def test_a_model_that_is_no_file_of_the_engine_is_made_into_one():
    folder = os.path.join(SCRATCH.name, "hf")
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
              "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
              "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
              "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    flags = ["--device", "8GiB", "--context", "8192", "--gpu-layers", "all", "--sequences", "1"]
    made = rehearse(folder, *flags, "--weight-type", "q8_0")
    assert made["model"]["dtype"] == "q8_0", made["model"]
    file = rehearse(model("qwen3-0.6b"), *flags)
    for category in ("weights", "kv_cache", "activations"):
        ours = memtally.row(place(made, "gpu:0"), category)["allocated_bytes"]
        theirs = memtally.row(place(file, "gpu:0"), category)["allocated_bytes"]
        assert ours == theirs, (category, ours, theirs)


def sweep(*arguments):
    """The lines of a sweep's CSV."""
    done = memtally.must("rehearse", *arguments, "--engine-path", engine.llama_cpp(""), "--format", "csv")
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_corners_of_a_sweep_are_what_single_rehearsals_say():
    path = model("qwen3-0.6b")
    lines = sweep(path, "--device", "8GiB,8GiB", "--gpu-layers", "all", "--sequences", "1", "--sweep",
                  "context=2k..16k,ubatch=128,512,kv-type=f16,q8_0")
    assert len(lines) == 4 * 2 * 2, len(lines)
    corners = [line for line in lines if line["context"] in ("2048", "16384")]
    assert len(corners) == 8
    for line in corners:
        single = rehearse(path, "--device", "8GiB,8GiB", "--gpu-layers", "all", "--sequences", "1", "--context", line["context"],
                          "--ubatch", line["ubatch"], "--kv-type", line["kv-type"])
        for where in ("gpu:0", "gpu:1"):
            assert int(line[f"{where}_bytes"]) == place(single, where)["total_allocated_bytes"], (line, where)
        assert line["verdict"] == single["verdict"]


def interrupted(command, temporary, after_s):
    """What a command prints that is interrupted after some time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=temporary)) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 128 + signal.SIGINT, process.returncode
    return list(csv.DictReader(io.StringIO(text)))


def test_an_interrupted_sweep_gives_what_there_is():
    path = model("qwen3-0.6b")
    command = [memtally.program(), "rehearse", path, "--device", "8GiB", "--gpu-layers", "all", "--engine-path", engine.llama_cpp(""),
               "--sweep", "context=1k..32k,ubatch=64,128,256,512,sequences=1,2,3,4,5,6,7,8", "--format", "csv"]
    with tempfile.TemporaryDirectory() as temporary:
        for after_s in (3, 9, 27):  # a busy machine may not have done the first point
            lines = interrupted(command, temporary, after_s)
            if lines:
                break
        assert 0 < len(lines) < 6 * 4 * 8, len(lines)
        assert {line["verdict"] for line in lines} == {"FITS"}
        assert os.listdir(temporary) == [], os.listdir(temporary)


def test_a_rehearsal_is_one_side_of_a_comparison():
    """What the engine allocated in a real run on the CPU, to the byte."""
    path = os.path.join(SCRATCH.name, "real.gguf")
    memtally.must("sample-model", "smollm-135m", path, "--random", "--type", "q8_0")
    folder = memtally.profile_of_all_buffers(
        os.path.join(SCRATCH.name, "recording"), path, "--engine", "llama-server", "--engine-path", engine.llama_cpp(""),
        "--threads", "1", "--max-tokens", "8", "--repeats", "1", "--context", "1024")
    said = os.path.join(SCRATCH.name, "rehearsal.json")
    memtally.must("rehearse", path, "--context", "1024", "--sequences", "1", "--engine-path", engine.llama_cpp(""), "--json", "-o", said)
    rules = os.path.join(SCRATCH.name, "rules.json")
    memtally.must("estimate", path, "--context", "1024", "--sequences", "1", "--no-rehearse", "--json", "-o", rules)
    for other in (folder, rules):
        document = json.loads(memtally.must("compare", other, said, "--json").stdout)
        parts = {part["component"]: part for part in document["components"]}
        for name in ("kv_cache", "activations"):
            assert parts[name]["difference_bytes"] == 0, (other, parts[name])


def test_an_engine_that_fails_is_reported_with_its_last_words():
    broken = os.path.join(SCRATCH.name, "broken.gguf")
    subprocess.run(["cp", "--sparse=always", model("qwen3-0.6b"), broken], check=True)
    with open(broken, "r+b") as file:
        data = file.read(1 << 24)
        # The engine wants the norm of every layer.
        at = data.find(b"blk.3.attn_norm.weight")
        if at < 0:
            raise tap.Skip("the header has no such name in its first bytes")
        file.seek(at)
        file.write(b"blk.3.attn_nurm.weight")
    done = memtally.run("rehearse", broken, "--device", "8GiB", "--gpu-layers", "all", "--engine-path", engine.llama_cpp(""))
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "llama-server ended with status 1" in done.stderr and "attn_norm" in done.stderr, done.stderr


if __name__ == "__main__":
    tap.main(globals())
