#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA graphs on a pretended device: small integers that a graph computes are there after each replay."""

import functools
import json
import os
import re
import tempfile

import engine
import memtally
import tap
import torch_program

MIB = 1 << 20


@functools.cache
def rehearsed():
    """What the program wrote down, and the document of its rehearsal."""
    return torch_program.rehearse("replayed.py")


def said(name):
    return rehearsed()[0][name]


def test_decoding_ends_where_a_graph_computes_whether_it_is_to():
    """The longer of two sequences has nine tokens, so that the ninth step is the last, with a graph and without."""
    for name in ("eager", "replayed", "again"):
        assert said(name)["steps"] == 9, (name, said(name))


def test_state_on_the_device_goes_on_from_replay_to_replay():
    for name in ("eager", "replayed", "again"):
        assert said(name)["lengths"] == [4, 9] and said(name)["before"] == [4, 8], (name, said(name))
        assert said(name)["token"], (name, said(name))


def test_a_copy_to_the_host_within_a_graph_brings_what_the_graph_computed():
    assert said("replayed")["told"] == [4, 9] == said("eager")["told"], rehearsed()[0]


def test_what_a_graph_clears_is_cleared_after_it_was_read():
    """The result of 0, 1, 2 added to what was left: nothing at first, ones from then on."""
    assert said("in place") == [[[0, 1, 2], [1, 1, 1]], [[1, 3, 5], [1, 1, 1]], [[2, 5, 8], [1, 1, 1]]], said("in place")


def test_replays_take_no_memory():
    assert said("held by replays") == 0, said("held by replays")


def test_nothing_read_is_called_unknown():
    notes = [note for note in rehearsed()[1]["notes"] if "came from device values" in note]
    assert not notes, notes


@functools.cache
def captured(program="captured.py", *words):
    """What the program wrote down, what `memtally graphs` says of its run, and the notes of its rehearsal."""
    with tempfile.TemporaryDirectory() as folder:
        path, run = os.path.join(folder, "figures.json"), os.path.join(folder, "run")
        done = memtally.run("rehearse", "--device", "24GiB", "--folder", run, "--requests", "0", "--no-suggest", "--json", "--",
                            engine.torch(), os.path.join(torch_program.PROGRAMS, program), *words, path)
        assert done.returncode == 0 and os.path.exists(path), done.stderr[-3000:]
        listed = memtally.run("graphs", run, "--json")
        assert listed.returncode == 0, listed.stderr
        with open(path, encoding="utf-8") as file:
            return json.load(file), json.loads(listed.stdout)["runs"][0], json.loads(done.stdout)["notes"]


def test_a_graph_has_the_batch_and_the_draft_of_the_engines_own_frames():
    """Eight requests of five tokens each are drafts of four; what no engine's function captures has no name."""
    names = [(graph["kind"], graph["batch"], graph["tokens"], graph["draft"]) for graph in captured()[1]["graphs"]]
    assert names == [("FULL", 8, 40, 4), ("FULL", 8, 8, 0), (None, None, None, None)], names
    assert captured()[1]["graph_breakdown"] == {"draft_len_4": 1, "draft_len_0": 1, "draft_len_unknown": 1}, captured()[1]


def test_a_graph_has_as_many_nodes_as_kernels_were_captured():
    """Three additions, seven, three; an empty tensor is no node."""
    assert [graph["nodes"] for graph in captured()[1]["graphs"]] == [3, 7, 3], captured()[1]


def test_a_graph_has_the_pool_that_its_capture_reserved():
    """Each keeps a tensor of as many MiB as it has tokens, in a pool of its own: 40, 8 and 2. PyTorch takes 20 MiB
    for what is smaller than 10, and with the first graph 2 MiB in which the generator's seed lies for all."""
    assert [graph["pool_bytes"] for graph in captured()[1]["graphs"]] == [42 * MIB, 20 * MIB, 20 * MIB], captured()[1]


def test_a_graph_that_is_gone_at_once_is_counted_apart():
    assert captured()[1]["dropped"] == 1, captured()[1]


def test_allocator_figures_of_graphs_are_pytorchs_own():
    assert captured()[1]["memory_after"]["reserved_bytes"] == captured()[0]["reserved"], captured()


def test_a_capture_that_runs_out_is_said_with_its_batch():
    assert captured()[0]["failed"], captured()[0]
    said = [note for note in captured()[2] if note.startswith("The capture of a CUDA graph failed")]
    assert len(said) == 1 and "batch 1048576, tokens 3145728, draft 2" in said[0], captured()[2]


def test_what_a_dropped_graph_gives_back_is_what_the_device_has_free_then():
    """One is alone in its pool, of 64 MiB; the others share one, which stays while either is in it."""
    figures, run, _ = captured("dropping.py")
    reclaimable = {graph["batch"]: graph["reclaimable_bytes"] for graph in run["graphs"]}
    assert reclaimable == {64: figures["dropped"]["alone"], 40: 0, 24: figures["dropped"]["sharing"]}, (figures, run)
    assert reclaimable[64] == 64 * MIB, reclaimable


def test_marginal_bytes_add_up_to_the_pools():
    """64 MiB, with 2 for the generator's seed, and 40; the third finds room in the second's pool."""
    run = captured("dropping.py")[1]
    assert [graph["pool_bytes"] for graph in run["graphs"]] == [66 * MIB, 40 * MIB, 0], run
    assert run["pool_bytes"] == sum(graph["pool_bytes"] for graph in run["graphs"]), run


def test_a_size_that_was_not_captured_is_missing():
    assert captured("dropping.py")[1]["missing"] == 1 and captured()[1]["missing"] is None, captured("dropping.py")[1]


def test_a_graph_has_what_the_process_grew_by():
    assert all(graph["host_bytes"] is not None for graph in captured()[1]["graphs"]), captured()[1]


def test_captures_that_are_invalidated_are_said_with_batch_draft_and_bytes():
    figures, run, notes = captured("invalidated.py")
    said = [note for note in notes if note.startswith("The capture of a CUDA graph failed")]
    assert figures == {"failed": 2, "kept": 2} and len(said) == 2, (figures, notes)
    assert "batch 8, tokens 40, draft 4" in said[0] and "not permitted when stream is capturing" in said[0], said
    assert "batch 4, tokens 20, draft 4" in said[1] and "previous error during capture" in said[1], said
    assert all(20000 < int(re.search(r"(\d+) MiB were free before it", note)[1]) < 24576 for note in said), said
    assert run["num_cuda_graphs"] == 1 and run["pieces"] == 2, run


def test_a_batch_that_is_captured_again_is_said():
    again = [note for note in captured("invalidated.py")[2] if "captured again" in note]
    assert len(again) == 1 and "batch 2, tokens 10, draft 4): 2 are there" in again[0], captured("invalidated.py")[2]
    assert not [note for note in captured()[2] if "captured again" in note], captured()[2]


def test_a_program_that_captures_none_has_a_list_of_none():
    figures, run, notes = captured("invalidated.py", "none")
    assert figures["kept"] == 0 and run["num_cuda_graphs"] == 0 and run["graphs"] == [] and len(notes) >= 2, (run, notes)


def test_a_graph_that_comes_after_the_warm_up_is_said_with_batch_draft_and_bytes():
    """Two of four; the first of them is told of. Each takes 24 MiB and a page for its nodes at most."""
    figures, run, notes = captured("updating.py")
    assert figures["kept"] == 4 and [graph["late"] for graph in run["graphs"]] == [False, False, True, True], run
    said = [note for note in notes if "had begun to replay" in note]
    assert run["late"] == 2 and len(said) == 1 and "batch 4, tokens 12, draft 2" in said[0], notes
    taken = run["graphs"][2]["pool_bytes"] + run["graphs"][2]["driver_bytes"] + run["graphs"][2]["library_bytes"]
    assert f"took {taken >> 10} KiB" in said[0] and taken >= 24 * MIB, (taken, said)
    assert not [note for note in captured()[2] if "had begun to replay" in note], captured()[2]


def test_an_update_that_fails_is_said_with_batch_draft_and_bytes():
    figures, run, notes = captured("updating.py")
    assert figures["updates"] == [[0, "CU_GRAPH_EXEC_UPDATE_SUCCESS"], [910, "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED"]], figures
    said = [note for note in notes if note.startswith("The update of a CUDA graph failed")]
    assert len(said) == 1 and "batch 8, tokens 24, draft 2" in said[0] and "TOPOLOGY_CHANGED" in said[0], notes
    assert 20000 < int(re.search(r"(\d+) MiB were free", said[0])[1]) < 24576, said
    assert said[0] in run["notes"], run["notes"]


def test_buckets_are_what_the_program_took_for_each():
    """The first keeps 40 MiB in its pool, with 2 for the generator's seed; the second has 24 outside; in the capture of the third 6
    are taken of the driver, and cuBLAS gets a workspace out of the pool."""
    figures, run, _ = captured("buckets.py")
    first, second, third = run["graphs"]
    assert figures["graphs"] == 3 and [first["static_bytes"], second["static_bytes"]] == [None, 24 * MIB], run
    assert third["static_bytes"] == figures["state"], run
    assert [first["pool_bytes"], second["pool_bytes"]] == [42 * MIB, 30 * MIB], run
    assert third["library_bytes"] >= 6 * MIB and first["workspace_bytes"] == second["workspace_bytes"] == 0, run
    assert 0 < third["workspace_bytes"] <= third["pool_bytes"], run


def test_buckets_and_the_rest_are_what_the_device_has_in_use():
    """By the account on one side, by the program's own question on the other."""
    for program in ("buckets.py",):
        figures, run, _ = captured(program)
        buckets = [run[name] for name in ("pool_bytes", "driver_bytes", "library_bytes", "static_bytes", "rest_bytes")]
        assert run["total_bytes"] == figures["used"] == sum(buckets) and all(part >= 0 for part in buckets), (figures, run)
        for name in ("pool_bytes", "driver_bytes", "library_bytes", "static_bytes"):
            assert run[name] == sum(graph[name] or 0 for graph in run["graphs"]), (name, run)


@functools.cache
def observed():
    """What the program wrote down, and its graphs by a recorder and by the account of the driver under it."""
    with tempfile.TemporaryDirectory() as folder:
        path, rehearsal, recording = (os.path.join(folder, name) for name in ("figures.json", "rehearsal", "recording"))
        done = memtally.run("rehearse", "--layer", "cuda", "--device", "24GiB", "--folder", rehearsal, "--requests", "0", "--no-suggest", "--",
                            memtally.program(), "run", "-q", "-o", recording, "--",
                            engine.torch(), os.path.join(torch_program.PROGRAMS, "buckets.py"), path)
        assert done.returncode == 0 and os.path.exists(path), done.stderr[-3000:]
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        return said, *(json.loads(memtally.must("graphs", run, "--json").stdout)["runs"][0] for run in (recording, rehearsal))


def test_a_recorder_and_the_account_say_the_same_of_buckets():
    """They know nothing of each other: the recorder has calls and the driver's word, the account what the driver gave."""
    figures, recorded, rehearsed = observed()
    for name in ("pool_bytes", "workspace_bytes", "library_bytes", "static_bytes", "driver_bytes"):
        assert [graph[name] for graph in recorded["graphs"]] == [graph[name] for graph in rehearsed["graphs"]], (name, recorded, rehearsed)
        assert recorded["graphs"][0][name] is None or recorded[name] == rehearsed[name], (name, recorded, rehearsed)
    assert recorded["total_bytes"] == rehearsed["total_bytes"] == figures["used"], (figures, recorded, rehearsed)


@functools.cache
def varied():
    """The document of a comparison of two rehearsals, and the file that it was saved as."""
    with tempfile.TemporaryDirectory() as folder:
        done = memtally.run("graphs", "--vary", "max_concurrency=none,16", "--device", "24GiB", "--json", "--save", "org/Model", "--",
                            engine.torch(), os.path.join(torch_program.PROGRAMS, "drafting.py"), cwd=folder)
        assert done.returncode == 0, done.stderr[-3000:]
        (name,) = os.listdir(os.path.join(folder, "results"))
        assert re.fullmatch(r"results_org_Model_\d{8}_\d{6}\.json", name), name
        with open(os.path.join(folder, "results", name), encoding="utf-8") as file:
            return json.loads(done.stdout), json.load(file)


def test_a_setting_that_varies_is_rehearsed_with_both_values_and_compared():
    """Eight batches: with drafts of four, and without drafts, too, where the program bounds its concurrency."""
    document, saved = varied()
    assert document == saved, saved
    assert [run["setting"] for run in document["runs"]] == ["max_concurrency=none", "max_concurrency=16"], document
    assert [run["graph_breakdown"] for run in document["runs"]] == [{"draft_len_4": 8}, {"draft_len_4": 8, "draft_len_0": 8}], document
    difference = document["difference"]
    assert difference["graphs"] == 8 and difference["bytes_of_each_graph"] == difference["overhead_bytes"] // 8, difference
    assert difference["case_for_optimising"] == "none", difference


def test_graphs_without_drafts_find_room_in_the_pool_of_those_with():
    """The largest graph keeps 40 MiB, beside 2 in which the generator's seed lies; small tensors have at most 2 more."""
    pools = [run["pool_bytes"] for run in varied()[0]["runs"]]
    assert pools[0] == 42 * MIB and pools[0] <= pools[1] <= pools[0] + 2 * MIB, pools


def test_memory_is_there_before_and_after_the_graphs_were_made():
    for run in varied()[0]["runs"]:
        assert run["memory_before"] == {"allocated_bytes": 0, "reserved_bytes": 0, "max_allocated_bytes": 0}, run
        after = run["memory_after"]
        assert after["reserved_bytes"] >= run["pool_bytes"] and after["max_allocated_bytes"] >= 40 * MIB, run


if __name__ == "__main__":
    tap.main(globals())
