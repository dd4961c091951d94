#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published runs of vLLM and SGLang, rehearsed with the version of their time: weights, the peak of activations and the cache
as their logs print them.

usage: board.py MEMTALLY [--folder DIR] [--python VERSION=PATH]... [ID...]. The engines come from scripts/engine and are
several GB each. What vLLM says of itself is read from its own words; kernels' code and NCCL's buffers, which it calls
non-torch memory, are taken from the published log, so that the cache is compared as if both had the same.
Of a pipeline the stage is compared that the published figures are of (`stage` in the column `more`, counted from 0).
Prints a line for each row and fails where a row that must hold does not.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAM_OF = {"vllm": "run_vllm.py", "sglang": "run_sglang.py"}
EAGER = {"vllm": {"enforce_eager": True}, "sglang": {"disable_cuda_graph": True}}

# What the versions of vLLM and SGLang say, where of several ranks the first counts; numbers of one line are added.
WORDS = {
    "weights": [r"[Mm]odel loading took ([0-9.]+) (?:GiB|GB)", r"Loading model weights took ([0-9.]+) (?:GiB|GB)",
                r"Load weight end\..*? mem usage=([0-9.]+) GB"],
    "activations": [r"PyTorch activation peak memory takes ([0-9.]+) ?GiB", r"([0-9.]+) GiB for peak activation"],
    "non_torch": [r"non[-_]torch_memory takes ([0-9.]+) ?GiB", r"([0-9.]+) GiB for non-torch memory"],
    "kv": [r"Available KV cache memory: (-?[0-9.]+) GiB", r"reserved for KV Cache is (-?[0-9.]+) ?GiB",
           r"KV Cache is allocated\..*? K size: ([0-9.]+) GB, V size: ([0-9.]+) GB"],
    "tokens": [r"GPU KV cache size: ([0-9,]+) tokens", r"KV Cache is allocated\..*? #tokens: ([0-9]+)"],
    "blocks": [r"# (?:GPU|cuda|CUDA) blocks: ([0-9]+)"],
}
BLOCK_TOKENS = 16  # of versions that count blocks


# How lines of log name the stage of a pipeline that they are of: "(Worker_PP1_TP0 pid=21)", "[2026-01-02 03:04:05 PP1 TP0]".
STAGE = re.compile(r"^\(\w*?_PP(\d+)(?:_\w+)? pid=|^\[[^\]]*\bPP(\d+)\b[^\]]*\]")


def of_stage(text, stage):
    """A log without the lines of other stages of its pipeline."""

    def is_of(line):
        match = STAGE.match(line)
        return not match or int(match.group(1) or match.group(2)) == stage

    return "\n".join(line for line in text.splitlines() if is_of(line))


def words_of(text, stage=0):
    """{name: number} of a log, of one stage where there are several."""
    text = of_stage(text, stage)
    found = {}
    for name, patterns in WORDS.items():
        for pattern in patterns:
            match = re.search(pattern, text)
            if match:
                found[name] = sum(float(number.replace(",", "")) for number in match.groups())
                break
    if "blocks" in found:
        found.setdefault("tokens", BLOCK_TOKENS * found["blocks"])
    return found


def more(row):
    return json.loads(row["more"] or "{}")


def devices_of(row):
    """All that the row's ranks take."""
    return ",".join([row["device"]] * (int(row["tensor_parallel"]) * more(row).get("pipeline_parallel_size", 1)))


def environment(row):
    """With a stand-in for FlashInfer where the row has its sampler."""
    if more(row).get("sampler") != "flashinfer":
        return None
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE / "sampler"), os.environ.get("PYTHONPATH")]))}


def settings(row, model, eager):
    """The engine's arguments; what the row leaves out is the engine's default. `config` is the model's own."""
    columns = {"max_model_len": "context", "max_num_batched_tokens": "batched_tokens", "tensor_parallel_size": "tensor_parallel"}
    chosen = {
        "model": model,
        **{name: int(row[column]) for name, column in columns.items() if row[column]},
        "gpu_memory_utilization": float(row["memory_share"]),
        **{key: value for key, value in more(row).items() if key not in ("sampler", "stage")},
        **(EAGER[row["engine"]] if eager else {}),
    }
    chosen.pop("config", None)
    return chosen


def python_of(row, given):
    name = f"{row['engine']}-{row['version']}"
    if row["version"] in given:
        return given[row["version"]]
    brought = subprocess.run([ROOT / "scripts" / "engine", name], stdout=subprocess.PIPE, text=True, check=False)
    return brought.stdout.strip() if brought.returncode == 0 else None


def write_tokenizer(model, python):
    """A tokenizer of Mistral's format, from the package that the engine brings, for pictures as the model's configuration has them."""
    data = next(pathlib.Path(python).parent.parent.glob("lib/python*/site-packages/mistral_common/data/tekken_240911.json"))
    vision = json.loads((model / "params.json").read_text())["vision_encoder"]
    tokenizer = json.loads(data.read_text())
    tokenizer["multimodal"] = {"image_patch_size": vision["patch_size"], "max_image_size": vision["max_image_size"],
                               "spatial_merge_size": vision["spatial_merge_size"]}
    (model / "tekken.json").write_text(json.dumps(tokenizer))


def write_model(model, row, python):
    """The folder of a model without weights."""
    model.mkdir()
    name = row["config"] + ".json"
    if more(row).get("config_format") == "mistral":
        (model / "params.json").write_text((HERE / "params" / name).read_text())
        write_tokenizer(model, python)
    else:
        config = json.loads((HERE.parent / "configs" / name).read_text())
        (model / "config.json").write_text(json.dumps({**config, **more(row).get("config", {})}))


def rehearse(row, options, folder):
    """The log of the engine and the document of the rehearsal."""
    python = python_of(row, dict(one.split("=", 1) for one in options.python))
    if not python:
        return None, "its engine could not be fetched"
    model = folder / "model"
    write_model(model, row, python)
    command = [options.memtally, "rehearse", "--device", devices_of(row), "--json", "--requests", "0", "--no-suggest", "--timeout", "1200",
               "--folder", str(folder / "rehearsal"), "--", python, str(HERE / PROGRAM_OF[row["engine"]]),
               json.dumps(settings(row, str(model), options.eager))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500, env=environment(row))
    text = "\n".join(file.read_text(errors="replace") for file in sorted((folder / "rehearsal").glob("*"))
                     if file.is_file() and file.suffix in (".txt", ".log", "") and file.stat().st_size < 1 << 26
                     and file.name != "account")
    (folder / "log").write_text(text + done.stderr)
    try:
        return text + done.stderr, json.loads(done.stdout)
    except ValueError:
        return text + done.stderr, f"memtally ended with {done.returncode}: {done.stderr[-300:]}"


def same_digits(said, published):
    """Whether both print alike in two digits."""
    return f"{said:.2f}" == f"{float(published):.2f}"


def percent(said, published):
    return f"{100 * (said / float(published) - 1):+.2f} %"


def compare(row, said):
    """(name, published, rehearsed, how it compares) of each figure that both have."""
    for name, column in (("weights", "weights_gib"), ("activations", "activations_gib")):
        if row[column] and name in said:
            exact = same_digits(said[name], row[column])
            yield name, float(row[column]), said[name], "exact" if exact else f"{said[name] - float(row[column]):+.2f}"
    if not row["kv_gib"] or "kv" not in said:
        return
    level = said["kv"] + (said.get("non_torch", 0.0) - float(row["non_torch_gib"]) if row["non_torch_gib"] else 0.0)
    yield "cache", float(row["kv_gib"]), level, percent(level, row["kv_gib"])
    if row["kv_tokens"] and "tokens" in said:
        tokens = said["tokens"] * level / said["kv"]
        yield "tokens", float(row["kv_tokens"]), tokens, percent(tokens, row["kv_tokens"])


def is_good(row, results):
    """Weights and activations to the printed digit, the cache within half a percent; what the log does not say apart."""
    columns = {"weights": "weights_gib", "activations": "activations_gib", "cache": "kv_gib"}
    names = {name for name, *_ in results}
    return {name for name, column in columns.items() if row[column]} <= names and all(
        how == "exact" if name in ("weights", "activations") else abs(float(how.split()[0])) <= 0.5
        for name, _, _, how in results)


def words_why(document):
    """Why there is nothing: a document is of a rehearsal, or of an error."""
    if isinstance(document, str):
        return document
    return document["error"]["sentence"] if "error" in document else document["rehearsal"]["last_words"]


def must_hold(row, eager):
    """`yes`: compiled and with graphs as well; `eager`: it was only ever met without."""
    return row["must_hold"] == "yes" or (eager and row["must_hold"] == "eager")


COLUMNS = ("weights", "activations", "cache", "tokens")
LINE = "{:5} {:18} {:26} {:14} {:>16} {:>16} {:>16} {:>18}  {}"


def cell(results, name):
    """published, rehearsed: `14.99 14.99 =`, or by how much they differ."""
    for one, published, said, how in results:
        if one == name == "tokens":
            return f"{said:.0f} {how.replace(' ', '')}"
        if one == name:
            return f"{published:.2f} {said:.2f} {'=' if how == 'exact' else how.replace(' ', '')}"
    return "-"


def show(row, results, seconds, verdict):
    cards = f"{devices_of(row).count(',') + 1} x {row['device']}"
    print(LINE.format(row["id"], f"{row['engine']} {row['version']}", row["config"], cards,
                      *(cell(results, name) for name in COLUMNS), f"{verdict} ({seconds:.0f} s)"))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("memtally")
    parser.add_argument("--folder", help="where logs are kept; without it, nowhere")
    parser.add_argument("--python", action="append", default=[], help="VERSION=PATH: an engine that is there already")
    parser.add_argument("--eager", action="store_true", help="nothing compiled and no graphs: quicker, and not what the logs did")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_intermixed_args()
    worse = []
    with open(HERE / "rows.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not options.ids or row["id"] in options.ids]
    print(LINE.format("row", "engine", "model", "cards", *COLUMNS, "GiB a card, published and rehearsed"))
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            folder = pathlib.Path(options.folder or scratch) / row["id"]
            folder.mkdir(parents=True)
            start = os.times().elapsed
            log, document = rehearse(row, options, folder)
            results = list(compare(row, words_of(log or "", more(row).get("stage", 0))))
            good = is_good(row, results)
            needed = must_hold(row, options.eager)
            if needed and not good:
                worse.append(row["id"])
            show(row, results, os.times().elapsed - start, "holds" if good else "MUST HOLD" if needed else "differs")
            if not results:
                print("      nothing to compare:", words_why(document))
    print(f"{len(rows)} rows, worse than their floors: {' '.join(worse) or 'none'}")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
