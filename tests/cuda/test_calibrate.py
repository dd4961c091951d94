#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally doctor --calibrate, on cards that are pretended to it, and what takes its figures then."""

import ctypes
import json
import os
import subprocess
import tempfile

import tap

MIB = 1 << 20
MEMTALLY = os.environ["MEMTALLY"]
STATE = tempfile.TemporaryDirectory()
ENVIRONMENT = {**os.environ, "XDG_STATE_HOME": STATE.name, "MEMTALLY_NO_REHEARSE": "1", "MEMTALLY": MEMTALLY}
MEASURE = '"$MEMTALLY" doctor --calibrate --json > "$XDG_STATE_HOME/said.json"'
CARDS = os.path.join(STATE.name, "memtally", "cards.json")


def run(*words):
    return subprocess.run([MEMTALLY, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=100)


def calibrate(devices):
    """What is measured of pretended cards."""
    done = run("rehearse", "--device", devices, "--layer", "cuda", "--json", "--", "sh", "-c", MEASURE)
    assert done.returncode == 0, done
    with open(os.path.join(STATE.name, "said.json"), encoding="utf-8") as file:
        return json.load(file)["cards"]


def context_of(*options):
    model = os.path.join(STATE.name, "model.gguf")
    if not os.path.exists(model):
        assert run("sample-model", "smollm-135m", model, "--sparse", "--quiet").returncode == 0
    document = json.loads(run("estimate", model, "--context", "2048", "--json", *options).stdout)
    (place,) = [place for place in document["places"] if place["place"] == "gpu:0"]
    (row,) = [row for row in place["rows"] if row["category"] == "context"]
    return row


def test_each_card_is_measured_by_what_its_driver_takes():
    """527 MiB of an H100 and 412 of an RTX 4090 were published, a first kernel is a page; a node of a graph takes 9.2 KiB.
    All come in pages of 2 MiB."""
    h100, rtx4090 = calibrate("H100,RTX4090")
    assert (h100["name"], rtx4090["name"]) == ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"), (h100, rtx4090)
    assert h100["context_bytes"] == 528 * MIB and rtx4090["context_bytes"] == 412 * MIB, (h100, rtx4090)
    assert h100["uuid"] != rtx4090["uuid"] and not h100["disturbed"], (h100, rtx4090)
    for card in (h100, rtx4090):
        assert 0 < card["module_bytes"] <= 2 * MIB, card
        assert 9.1 * 1024 < card["graph_node_bytes"] < 9.7 * 1024, card


def test_an_estimate_of_that_card_takes_it_as_calibrated():
    calibrate("H100")
    row = context_of("--device", "H100")
    assert row["provenance"] == "calibrated" and row["allocated_bytes"] >= 528 * MIB, row
    assert context_of("--device", "L4")["provenance"] == "derived"


def test_of_a_card_of_two_sizes_only_the_one_that_was_measured_takes_it():
    calibrate("RTX4060Ti-16GB")
    assert context_of("--device", "RTX4060Ti-16GB")["provenance"] == "calibrated"
    assert context_of("--device", "RTX4060Ti-8GB")["provenance"] == "derived"


def test_here_a_card_is_known_by_what_was_measured_of_it():
    calibrate("L4")
    context_of("--device", "L4")
    here = '"$MEMTALLY" estimate "$XDG_STATE_HOME/model.gguf" --context 2048 --here --json > "$XDG_STATE_HOME/here.json"'
    done = run("rehearse", "--device", "L4", "--layer", "cuda", "--json", "--", "sh", "-c", here)
    with open(os.path.join(STATE.name, "here.json"), encoding="utf-8") as file:
        document = json.load(file)
    assert document["settings"]["device_gpus"] == [{"gpu": "L4", "by_size": False}], (done, document["settings"])
    (context,) = [row for row in document["places"][1]["rows"] if row["category"] == "context"]
    assert context["provenance"] == "calibrated", context


def test_a_rehearsal_of_that_card_takes_it_too():
    """Another card's context is written into what was kept: the next H100 has that."""
    calibrate("H100")
    with open(CARDS, encoding="utf-8") as file:
        kept = json.load(file)
    for card in kept["cards"]:
        card["context_bytes"] = 600 * MIB
    with open(CARDS, "w", encoding="utf-8") as file:
        json.dump(kept, file)
    (again,) = calibrate("H100")
    assert again["context_bytes"] == 600 * MIB, again


def test_a_card_that_is_measured_again_is_kept_once():
    calibrate("H100")
    calibrate("H100")
    with open(CARDS, encoding="utf-8") as file:
        uuids = [card["uuid"] for card in json.load(file)["cards"]]
    assert len(uuids) == len(set(uuids)), uuids


def test_a_file_that_is_none_of_ours_is_said_to_be_and_measuring_mends_it():
    calibrate("H100")
    with open(CARDS, "w", encoding="utf-8") as file:
        file.write("[]")
    done = run("estimate", os.path.join(STATE.name, "model.gguf"), "--device", "H100")
    assert done.returncode != 0 and "doctor --calibrate" in done.stderr, done
    calibrate("80GiB")  # what such a size is taken for
    assert context_of("--device", "H100")["provenance"] == "calibrated"


def test_without_a_driver_it_says_what_to_do():
    try:
        ctypes.CDLL("libcuda.so.1")
        return  # this machine has one
    except OSError:
        done = run("doctor", "--calibrate")
    assert done.returncode == 3 and not done.stdout, done
    assert "no NVIDIA driver is here" in done.stderr and "run this on the machine with the card" in done.stderr, done


if __name__ == "__main__":
    tap.main(globals())
