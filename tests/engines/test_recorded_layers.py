#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Layers of a model and PyTorch's operators, recorded on a pretended device and on the host: the weights are the sums that
the program makes over storages, the most of a pass is what torch.cuda.max_memory_allocated() says of the module by itself,
and operators take what torch.profiler counts for them."""

import csv
import functools
import io
import json
import os
import tempfile

import engine
import memtally
import tap
import torch_program


@functools.cache
def run(program, device, *options):
    """What the program said, and the reports of its recording by option."""
    with tempfile.TemporaryDirectory() as folder:
        path, recording = os.path.join(folder, "said"), os.path.join(folder, "recording")
        done = memtally.run("run", "-q", "--on", "H100-80GB", *options, "-o", recording, "--", engine.torch(),
                            os.path.join(torch_program.PROGRAMS, program), path, device)
        assert os.path.exists(path), done.stderr[-3000:]
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        reports = {option: json.loads(memtally.must("report", option, "--json", recording).stdout)[option[2:]]
                   for option in options}
        reports["csv"] = {option: memtally.must("report", option, "--format", "csv", recording).stdout for option in options}
        reports["table"] = {option: memtally.must("report", option, recording).stdout for option in options}
        return said, reports


def layers(device):
    said, reports = run("watched_layers.py", device, "--layers")
    return said, {row["module"]: row for row in reports["--layers"]}


def path_of(row):
    return "" if row["module"] == "(model)" else row["module"]


def test_the_layers_are_those_of_depth_one_and_two_and_the_blocks():
    _, rows = layers("cuda")
    assert set(rows) == {"(model)", "body", "head", "body.words", "body.blocks",
                         "body.blocks.0", "body.blocks.1", "body.blocks.2"}, rows.keys()
    assert [rows[f"body.blocks.{i}"]["kind"] for i in range(3)] == ["block"] * 3
    assert rows["body.words"]["kind"] == "module" and rows["body.words"]["class"] == "Embedding"


def test_weights_are_the_sums_over_storages():
    for device, place, other in (("cuda", "device", "host"), ("cpu", "host", "device")):
        said, rows = layers(device)
        for row in rows.values():
            assert row[f"weights_{place}_bytes"] == said["weights"][path_of(row)], (row, said["weights"])
            assert row[f"weights_{other}_bytes"] == 0, row
        # Tied: the head's and the words' are one storage, which the model has once.
        assert rows["(model)"][f"weights_{place}_bytes"] < sum(
            rows[name][f"weights_{place}_bytes"] for name in ("body", "head"))


def test_a_forward_pass_takes_what_pytorch_counts():
    said, rows = layers("cuda")
    assert rows["(model)"]["forward_peak_device_bytes"] == said["forward"][""], (rows["(model)"], said)
    for name in ("body.blocks.1", "body.blocks.2", "head"):
        assert rows[name]["forward_peak_device_bytes"] == said["forward"][name], (rows[name], said["forward"])
    # The first call has cuBLAS's workspace in it, that stays.
    assert rows["body.blocks.0"]["forward_peak_device_bytes"] > said["forward"]["body.blocks.0"]


def test_a_backward_pass_takes_what_pytorch_counts():
    said, rows = layers("cuda")
    for name, taken in said["backward"].items():
        assert rows[name]["backward_peak_device_bytes"] == taken, (rows[name], said["backward"])
    # What is left of the whole: the gradients of all parameters.
    assert rows["(model)"]["backward_peak_device_bytes"] >= rows["(model)"]["weights_device_bytes"]


def test_the_host_is_counted_by_the_recorder():
    """What a block takes going forward by its results that live at its end: the norm's, twice four times that of its
    linear layer and its activation, the second one's, and the sum."""
    _, rows = layers("cpu")
    tokens, width, size = 256, 512, 4
    kept = tokens * width * size * (1 + 4 + 4 + 1 + 1)
    row = rows["body.blocks.1"]
    assert kept <= row["forward_peak_host_bytes"] <= kept + 64 * 1024, (row, kept)
    assert row["forward_peak_device_bytes"] == 0, row


def test_a_cache_counts_until_it_is_gone():
    for device, place in (("cpu", "host"), ("cuda", "device")):
        said, reports = run("watched_caches.py", device, "--layers")
        rows = {row["module"]: row for row in reports["--layers"]}
        assert rows["(model)"][f"cache_{place}_bytes"] == said["most"] > 0, (rows["(model)"], said)


def test_the_program_is_told_the_same_and_its_graphs_and_copies_are():
    with_layers, _ = layers("cuda")
    without, _ = run("watched_layers.py", "cuda")
    assert with_layers == without, (with_layers, without)


def test_tables_and_csv_have_the_same_rows():
    _, reports = run("watched_layers.py", "cuda", "--layers")
    read = list(csv.DictReader(io.StringIO(reports["csv"]["--layers"])))
    assert [{key: str(value) for key, value in row.items()} for row in reports["--layers"]] == read
    for row in reports["--layers"]:
        assert row["module"] in reports["table"]["--layers"]


def operators(device):
    said, reports = run("watched_operations.py", device, "--operations")
    return said, reports["--operations"]


def compare_with_the_profiler(device, ours, theirs):
    said, rows = operators(device)
    assert said, said
    for one in said:
        if device == "cpu" and one["name"] in ("aten::mm", "aten::addmm"):
            continue  # MKL keeps buffers of its own, which the profiler does not see
        # The profiler has no shapes of lists of tensors: those are one there.
        found = [row for row in rows if row["operation"] == one["name"] and
                 (not any(one["shapes"]) or same_shapes(row["shapes"], one["shapes"]))]
        assert sum(row["count"] for row in found) == one["count"], (one, found)
        slack = 0 if device == "cuda" else 4096 * one["count"]  # blocks that libc maps alone take whole pages
        assert abs(sum(row[ours] for row in found) - one[theirs]) <= slack, (found, one)


def same_shapes(ours, theirs):
    return "".join(ours.split()) == "".join("[%s]" % ",".join(map(str, shape)) for shape in theirs if shape)


def test_operators_take_what_the_profiler_counts():
    compare_with_the_profiler("cuda", "own_device_bytes", "device")
    compare_with_the_profiler("cpu", "own_host_bytes", "host")


def test_operators_are_sorted_by_what_they_keep_on_the_device():
    _, rows = operators("cuda")
    own = [row["own_device_bytes"] for row in rows]
    assert own == sorted(own, reverse=True) and own[0] > 0, own
    assert all(row["total_device_bytes"] >= row["own_device_bytes"] for row in rows)


def test_odd_programs_run_as_without_us():
    for option in ("--layers", "--operations"):
        said, _ = run("odd.py", "cuda", option)
        assert said["unhashable"] == [2, 8] and said["child"] == 0 and said["after"] == [3], said


def test_what_a_process_did_is_not_told_of_its_children():
    for option in ("--layers", "--operations"):
        said, reports = run("odd.py", "cuda", option)
        assert {row["pid"] for row in reports[option]} == {said["pid"]}, (said, reports[option])


if __name__ == "__main__":
    tap.main(globals())
