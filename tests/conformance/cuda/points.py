#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The oracle of vLLM and SGLang: shapes and settings that one version of an engine is rehearsed with, and what it then takes.

usage: points.py MEMTALLY ENGINE VERSION TABLE [--python PATH] [--compare] [ID...]. Each point of points.csv becomes a line of TABLE
(oracle_vllm.csv, oracle_sglang.csv), in place of the line of the same version that was there. With --compare nothing is written:
points that differ from TABLE are printed, and the exit status is 1 where some do. A point that ends in an error is kept, with the
engine's last words.

All that an engine says of itself is in bytes where it keeps bytes; a figure that only its log has is rounded as the log rounds it.
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

import board

HERE = pathlib.Path(__file__).resolve().parent
# What a column of points.csv is called in each engine; `changes` go into the model's config.json.
SETTINGS = {
    "vllm": {"max_model_len": "context", "max_num_batched_tokens": "batched_tokens", "max_num_seqs": "sequences",
             "gpu_memory_utilization": "memory_share", "kv_cache_dtype": "cache_type", "tensor_parallel_size": "tensor_parallel",
             "pipeline_parallel_size": "pipeline_parallel"},
    "sglang": {"context_length": "context", "chunked_prefill_size": "batched_tokens", "max_running_requests": "sequences",
               "mem_fraction_static": "memory_share", "kv_cache_dtype": "cache_type", "tp_size": "tensor_parallel",
               "pp_size": "pipeline_parallel"},
}
# What users have. To log at DEBUG, vLLM 0.33 formats tensors on the device where it skips a kernel for a norm, as with Gemma's: 8 GiB of
# gemma-2-2b's peak.
LOGGING = "INFO"
CACHE_TYPES = {"vllm": {"fp8": "fp8"}, "sglang": {"fp8": "fp8_e5m2"}}
# A figure's column, and what the rehearsal calls it.
FIGURES = {"weights_bytes": "weights", "activations_bytes": "activation peak", "non_torch_bytes": "non-torch memory",
           "cache_bytes": "kv cache", "blocks": "kv cache blocks", "tokens": "kv cache tokens", "graphs_bytes": "graphs"}
COLUMNS = ("version", "id", *FIGURES, "rest_bytes", "graphs", "context_bytes", "ended")


def number(text):
    return float(text) if "." in text else int(text)


def settings(engine, point, model):
    chosen = {"model" if engine == "vllm" else "model_path": model}
    for name, column in SETTINGS[engine].items():
        text = point[column]
        if text:
            chosen[name] = CACHE_TYPES[engine][text] if column == "cache_type" else number(text)
    return {**chosen, **(board.EAGER[engine] if point["eager"] == "yes" else {})}


def write_model(folder, point):
    folder.mkdir()
    config = json.loads((HERE.parent / "configs" / (point["config"] + ".json")).read_text())
    (folder / "config.json").write_text(json.dumps({**config, **json.loads(point["changes"] or "{}")}))


def rehearse(options, point, folder):
    """The log and the document of a rehearsal; the document is None where there is none."""
    write_model(folder / "model", point)
    ranks = int(point["tensor_parallel"]) * int(point["pipeline_parallel"])
    command = [options.memtally, "rehearse", "--device", ",".join([point["device"]] * ranks), "--json", "--requests", "0", "--no-suggest",
               "--timeout", "1200", "--folder", str(folder / "rehearsal"), "--", options.python,
               str(HERE / board.PROGRAM_OF[options.engine]), json.dumps(settings(options.engine, point, str(folder / "model")))]
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": LOGGING}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600, env=environment)
    (folder / "document.json").write_text(done.stdout)
    (folder / "log").write_text(done.stderr)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": {"sentence": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended with {done.returncode}"}}


def figure(document, name):
    """What one rank has of it: bytes before rounded words. Of several ranks, the process that said it first."""
    said = [one for one in document["rehearsal"]["figures"] if one["name"] == name]
    exact = [one for one in said if one["unit"] in ("B", "tokens", "blocks")]
    for one in exact or said:
        return round(one["value"] * (1 << 30)) if one["unit"] == "GiB" else round(one["value"])
    return ""


def graphs(options, point, folder):
    """How many CUDA graphs were captured, over all ranks."""
    if point["eager"] == "yes":
        return 0
    done = subprocess.run([options.memtally, "graphs", str(folder / "rehearsal"), "--json"], capture_output=True, text=True, check=False)
    return len(json.loads(done.stdout)["runs"][0]["graphs"]) if done.returncode == 0 else ""


def first_device(document):
    return next(place for place in document["places"] if place["place"] == "gpu:0")


def context(document):
    """What the pretended driver takes of the first device, by our own table: so that it can be taken off again."""
    return sum(row["allocated_bytes"] for row in first_device(document)["rows"] if row["category"] == "context")


def rest(line, point, document):
    """What of the engine's share is neither weights nor activations nor cache."""
    parts = [line[name] for name in ("weights_bytes", "activations_bytes", "cache_bytes")]
    if "" in parts:
        return ""
    return int(first_device(document)["capacity_bytes"] * float(point["memory_share"])) - sum(parts)


def last_words(text, folder):
    """The last error of what was said, or its end; without the names of folders that are gone."""
    text = re.sub(r"\s+", " ", text).replace(f"{folder}/", "")
    errors = [found.start() for found in re.finditer(r"\w+(Error|Exception): ", text)]
    return text[errors[-1] if errors else -300:][:300]


def line_of(options, point, folder):
    document = rehearse(options, point, folder)
    line = {"version": options.version, "id": point["id"], "ended": ""}
    if "error" in document:
        return {**line, "ended": last_words(document["error"]["sentence"], folder)}
    line.update({column: figure(document, name) for column, name in FIGURES.items()}, graphs=graphs(options, point, folder),
                context_bytes=context(document))
    line["rest_bytes"] = rest(line, point, document)
    if line["tokens"] == "" and line["blocks"] == "":
        line["ended"] = last_words(document["rehearsal"]["last_words"] or document["rehearsal"]["outcome"], folder)
    return line


def read_table(path):
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [line for line in csv.DictReader(row for row in file if not row.startswith("#"))]


def table_of(path):
    return {(line["version"], line["id"]): line for line in read_table(path)}


def write_table(path, lines):
    """Sorted by version, then as points.csv has them; the comment at the head stays."""
    head = [row for row in path.read_text().splitlines() if row.startswith("#")] if path.exists() else []
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(row + "\n" for row in head)
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def key(line, order):
    return [int(part) for part in re.findall(r"\d+", line["version"])], order.get(line["id"], len(order))


def differs(line, before):
    """The columns in which a point is not what it was; None where it was not there."""
    return None if before is None else [name for name in COLUMNS if str(line.get(name, "")) != before[name]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("memtally", "engine", "version", "table"):
        parser.add_argument(name)
    parser.add_argument("--python", help="the engine's, where scripts/engine is not to bring it")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--keep", help="a folder for logs and documents")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_intermixed_args()
    options.python = options.python or board.python_of({"engine": options.engine, "version": options.version}, {})
    if not options.python:
        sys.exit(f"{options.engine} {options.version} could not be fetched")
    with open(HERE / "points.csv", encoding="utf-8", newline="") as file:
        points = list(csv.DictReader(file))
    order = {point["id"]: i for i, point in enumerate(points)}
    table = pathlib.Path(options.table)
    lines = table_of(table)
    worse = 0
    for point in points:
        if options.ids and point["id"] not in options.ids:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(options.keep or scratch) / f"{options.version}-{point['id']}"
            if folder.exists():
                sys.exit(f"{folder} is there already, from an earlier run; remove it or choose another folder with --keep")
            folder.mkdir(parents=True)
            line = line_of(options, point, folder)
        before = lines.get((options.version, point["id"]))
        changed = differs(line, before)
        print(point["id"], "new" if changed is None else "as before" if not changed else f"differs in {', '.join(changed)}",
              {name: value for name, value in line.items() if value != ""}, flush=True)
        worse += changed is None or bool(changed)
        if not options.compare:
            # Another run may have written its points meanwhile.
            lines = {**table_of(table), (options.version, point["id"]): line}
            write_table(table, sorted(lines.values(), key=lambda line: key(line, order)))
    sys.exit(1 if options.compare and worse else 0)


if __name__ == "__main__":
    main()
