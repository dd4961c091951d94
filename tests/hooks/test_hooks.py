#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hooks of the pretended devices' object, before a stand-in for an engine: what they write into
the account, what they keep from being read or filled, and that they leave the rest alone."""

import os
import subprocess
import tempfile

import account
import tap

MIB = 1 << 20
ENGINES = os.environ["HOOKED_ENGINES"].split(":")


def run(deed, engines=1, host=0, rehearsed=True):
    """Runs the program; returns what it printed, the account and its events."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/account"
        model = f"{folder}/model.gguf"
        with open(model, "wb") as file:
            file.write(b"h" * 4096 + b"w" * (16 * MIB))
        account.make(path, [24 << 30], host)
        env = account.environment(os.environ["PRETEND_PATH"], path)
        if not rehearsed:
            del env["MEMTALLY_REHEARSAL"]
        done = subprocess.run([os.environ["HOOKED_PROGRAM"], deed, *ENGINES[:engines], model], env=env,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr)
        said = [line.split("=") for line in done.stdout.splitlines()]
        return {name: int(value) for name, value in said}, *account.read(path)


def buffers(events):
    """Events of buffers and refusals: (kind, category, bytes, name, detail)."""
    return [(account.KINDS[e.kind], account.CATEGORIES[e.category], e.bytes, e.name.decode(), e.detail.decode())
            for e in events if account.KINDS[e.kind] in ("alloc", "free", "usage", "refuse") and e.name != b"heap"
            and not (account.KINDS[e.kind] == "free" and is_heap(events, e))]


def is_heap(events, freed):
    """Whether what was freed was a block on the heap."""
    before = [e for e in events if e.time_ns <= freed.time_ns and e.object == freed.object and account.KINDS[e.kind] == "alloc"]
    return bool(before) and before[-1].name == b"heap"


def test_a_tebibyte_of_cache_on_the_host_takes_no_memory():
    said, book, events = run("tebibyte")
    assert said["is_made"] and said["small_is_kept"] and said["large_reads_as_zero"], said
    assert said["grown_kib"] < 4096, said
    assert buffers(events) == [("alloc", "kv_cache", 1 << 40, "CPU", "cache_k_l0 and 1 more tensors"),
                               ("free", "none", 1 << 40, "", "")], buffers(events)
    assert book.host_peak_bytes >= 1 << 40
    assert book.n_preloaded == 1


def test_two_engines_in_one_process_keep_to_themselves():
    _, _, events = run("tebibyte", engines=2)
    assert [kind for kind, *_ in buffers(events)] == ["alloc", "free"] * 2


def test_usage_names_the_category_later():
    _, _, events = run("usage")
    assert [row[:3] for row in buffers(events)] == [
        ("alloc", "activations", 3 * MIB), ("usage", "weights", 3 * MIB), ("free", "none", 3 * MIB)]


def test_the_hosts_capacity_refuses():
    said, book, events = run("refusal", host=1 << 30)
    assert said == {"fits": 1, "does_not": 1, "fits_again": 1}, said
    refused = [e for e in events if account.KINDS[e.kind] == "refuse"]
    assert [(e.bytes, e.free_bytes) for e in refused] == [(512 * MIB, 256 * MIB)]
    assert book.host_used_bytes == 512 * MIB and book.host_peak_bytes == 768 * MIB


def test_an_exception_passes_and_leaves_no_trace():
    said, book, events = run("exception")
    assert said == {"throws": 1, "is_made_after": 1}, said
    assert [row[:3] for row in buffers(events)] == [("alloc", "activations", 2 * MIB)]
    assert book.host_used_bytes == 2 * MIB


def test_weights_are_not_read():
    said, _, _ = run("reading")
    assert said == {"head": 1, "whole": 1, "untouched": 1, "position": 4096 + 8 * MIB, "read_head": 1,
                    "pread": 1, "read_to_the_end": 4 * MIB, "read_past_it": 0}, said


def test_mappings_of_files_are_not_populated():
    said, _, _ = run("mapping")
    assert said["is_mapped"] == 1 and said["advice"] == 0 and said["grown_kib"] < 2048, said


def test_large_blocks_on_the_heap_are_counted_once_and_by_their_own_process():
    said, book, events = run("heap")
    heap = [(account.KINDS[e.kind], e.bytes) for e in events]
    assert heap == [("alloc", 8 * MIB), ("free", 8 * MIB), ("alloc", 16 * MIB), ("free", 16 * MIB)], heap
    assert len({e.pid for e in events}) == 1
    assert book.host_used_bytes == 0 and book.host_peak_bytes >= 16 * MIB
    assert said["is_zero"] == 1 and said["child"] == 0 and said["fell_kib"] > 12 * 1024, said


def test_a_dry_run_keeps_placements_and_nothing_is_computed():
    said, _, _ = run("calls")
    assert said["resets"] == 1 and said["computed"] == 0, said


def test_a_server_of_another_machine_is_not_asked():
    said, _, events = run("calls")
    assert said["servers"] == 0, said
    (note,) = [e for e in events if account.KINDS[e.kind] == "note"]
    text = (note.name + note.detail).decode()  # one text in the place of both
    assert text.startswith("The RPC server 10.0.0.7:50052 is another machine"), text


def test_without_a_rehearsal_everything_is_as_it_was():
    said, book, events = run("calls", rehearsed=False)
    assert said == {"resets": 12, "computed": 11, "servers": 11}, said
    said, book, events = run("reading", rehearsed=False)
    assert said["untouched"] == 0 and said["pread"] == 0 and said["read_to_the_end"] == 4 * MIB, said
    said, book, events = run("heap", rehearsed=False)
    assert said["is_zero"] == 1 and said["child"] == 0, said
    assert book.n_preloaded == 0 and not events


if __name__ == "__main__":
    tap.main(globals())
