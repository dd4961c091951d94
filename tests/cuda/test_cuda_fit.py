#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""With which change of settings an engine fits, on a package in vLLM's place (engines/vllm): it takes memory of the driver
as vLLM does and ends with vLLM's words. What should be found follows from the sizes in its config.json and from what the
engine said that it has; each answer is rehearsed once more."""

import json
import os
import subprocess
import sys
import tempfile

import tap

GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
MEMTALLY = os.environ["MEMTALLY"]
MODEL = {"weights_gib": 15, "sequence_mib": 8, "token_kib": 128, "max_position_embeddings": 131072}
SERVER = ("-m", "vllm.entrypoints.openai.api_server", "--model")


def run(*words):
    path = os.pathsep.join([os.path.join(HERE, "engines"), os.environ["PYTHONPATH"]])
    return subprocess.run([MEMTALLY, "rehearse", "--json", "--quiet", *words], capture_output=True, text=True, check=False,
                          timeout=100, env=dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"))


def rehearse(make, **sizes):
    """The document of a rehearsal of the words that `make` makes of the model's folder."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**MODEL, **sizes}, file)
        done = run(*make(folder))
        assert done.stdout, (done.returncode, done.stderr)
        return json.loads(done.stdout)


def served(device, *flags, **sizes):
    return rehearse(lambda folder: ["-d", device, "--requests", "0", "--", sys.executable, *SERVER, folder, *flags], **sizes)


def loaded(device, *options, **sizes):
    """The same of the folder itself. The package says no version, so none is asked for."""
    return rehearse(lambda folder: [folder, "-e", "vllm", "--engine-path", sys.executable, "-d", device, *options], **sizes)


def changes_of(document):
    assert document["verdict"] == "CANNOT", document["reason"]
    return document["rehearsal"]["would_fit"]


def available(document):
    """What the engine said that it had left for its cache, to its two decimals, in GiB."""
    said = document["rehearsal"]["last_words"]
    return float(said.partition("available KV cache memory (")[2].partition(" GiB")[0])


def told_length(document):
    return int(document["rehearsal"]["last_words"].partition("estimated maximum model length is ")[2].partition(".")[0])


def test_a_request_that_is_much_too_long_is_made_as_long_as_the_engine_says():
    document = served("24GiB")
    change, other = changes_of(document)
    assert change["flags"] == f"--max-model-len {told_length(document)}" and change["instead_of"] is None, change
    # A token takes 128 KiB: 8192 of them a GiB.
    assert abs(told_length(document) - available(document) * 8192) < 0.01 * 8192, document["rehearsal"]["last_words"]
    # Weights and a cache, beside a context of less than 1 GiB.
    assert 15 + available(document) < change["held_bytes"] / GIB < 16 + available(document), change
    assert change["capacity_bytes"] == 24 * GIB and document["rehearsal"]["changes_tried"] == 2, document["rehearsal"]
    # A larger share, and eight bits where a token took sixteen, give a request more than twice as long.
    length = int(other["flags"].split()[-1])
    assert other["flags"] == f"--gpu-memory-utilization 0.95 --kv-cache-dtype fp8 --max-model-len {length}", other
    assert 2 * told_length(document) < length < 2.6 * told_length(document), (length, other)


def test_what_is_found_fits_when_it_is_given():
    document = served("24GiB")
    again = served("24GiB", *changes_of(document)[0]["flags"].split())
    assert again["rehearsal"]["ready"] and again["verdict"] in ("FITS", "TIGHT"), again["reason"]
    (place,) = [place for place in again["places"] if place["place"] == "gpu:0"]
    assert place["total_allocated_bytes"] == changes_of(document)[0]["held_bytes"], place


def test_a_little_more_is_found_in_a_larger_share_first():
    """4.5 GiB are wanted where some 4.2 are left; 5 % of the device are 1.2 GiB."""
    document = served("24GiB", max_position_embeddings=36864)
    first, second = changes_of(document)
    assert first["flags"] == "--gpu-memory-utilization 0.95" and "left to others" in first["costs"], first
    assert second["flags"].startswith(("--kv-cache-dtype fp8", "--max-num-seqs")), second


def test_what_an_engine_says_of_a_changed_setting_is_gone_by():
    """Weights are 21.4 of 21.6 GiB, and a context is more than the rest. Some 1.1 of 22.8 are left, for 9,000 tokens."""
    (change,) = changes_of(served("24GiB", "--max-num-seqs", "4", weights_gib=21.4, max_position_embeddings=40960))
    share, length = change["flags"].split(" --max-model-len ")
    assert share == "--gpu-memory-utilization 0.95" and 7000 < int(length) < 1.2 * 8192, change
    assert change["costs"] == "less of the device is left to others, shorter conversations", change


def test_flags_that_stand_there_are_changed_in_place():
    document = served("24GiB", "--gpu-memory-utilization=0.9", max_position_embeddings=36864)
    assert changes_of(document)[0]["instead_of"] == "--gpu-memory-utilization 0.9", changes_of(document)


def test_weights_that_one_device_cannot_hold_are_divided_over_those_that_were_given():
    """What is told of it is of the device with the least left."""
    (change,) = changes_of(served("24GiB,40GiB", weights_gib=38, max_position_embeddings=4096))
    assert change["flags"] == "--tensor-parallel-size 2", change
    assert 19 * GIB < change["held_bytes"] < 24 * GIB == change["capacity_bytes"], change


def test_what_nothing_makes_room_for_is_said_to():
    document = served("24GiB", weights_gib=30, max_position_embeddings=4096)
    assert changes_of(document) == [] and document["rehearsal"]["changes_tried"] == 0, document["rehearsal"]
    assert any("memtally knows no change of flags" in note for note in document["notes"]), document["notes"]


def test_a_change_with_which_an_engine_fails_by_itself_is_said_to():
    """A larger share would do for a request of 4096 tokens."""
    document = served("24GiB", "--max-num-seqs", "4", weights_gib=21.4, fails_at_share=0.95)
    assert not any("0.95" in change["flags"] for change in changes_of(document)), document["rehearsal"]["would_fit"]
    (note,) = [note for note in document["notes"] if "With --gpu-memory-utilization 0.95 the program itself failed" in note]
    assert "; it said: KeyError: 'share'." in note, note


def test_a_share_that_is_not_free_is_made_what_is_free():
    """The context of the process itself is taken of the device."""
    (change,) = changes_of(served("24GiB", "--gpu-memory-utilization", "0.99", max_position_embeddings=4096))
    assert change["flags"] == "--gpu-memory-utilization 0.98", change
    assert change["instead_of"] == "--gpu-memory-utilization 0.99", change


def test_of_a_folder_the_options_of_memtally_are_told_as_well():
    document = loaded("24GiB", "--context", "100000")
    change = changes_of(document)[0]
    assert change["flags"] == f"--max-model-len {told_length(document)}", change
    assert change["instead_of"] == "--max-model-len 100000", change
    assert change["options"] == f"--context {told_length(document)}", change
    again = loaded("24GiB", *change["options"].split())
    assert again["rehearsal"]["outcome"] == "ran", again["reason"]


def test_nothing_is_looked_for_where_that_is_not_wanted():
    document = rehearse(lambda folder: ["-d", "24GiB", "--no-suggest", "--", sys.executable, *SERVER, folder])
    assert changes_of(document) == [] and document["rehearsal"]["changes_tried"] == 0, document["rehearsal"]


def test_what_was_held_when_an_allocation_was_refused_is_told():
    """Without PyTorch nobody says what the weights are for."""
    refused = served("24GiB", "--enforce-eager", weights_gib=30, max_position_embeddings=4096)["rehearsal"]["refused"]
    assert refused["asked_bytes"] == 30 * GIB and refused["pid"] > 0 and refused["stack"] == [], refused
    held = {row["category"]: row["allocated_bytes"] for row in refused["held"]}
    assert set(held) == {"context"} and held["context"] == 24 * GIB - refused["free_bytes"], refused


if __name__ == "__main__":
    tap.main(globals())
