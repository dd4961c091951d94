#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mt_measure_call() with a device, on pretended ones. The program knows what it takes: 300 MiB, then 50. The driver's list knows the
context that stands beside them, which was measured on such cards."""

import functools
import os
import tempfile

import memtally
import tap

MIB = 1 << 20
MEASURES = os.environ["CUDA_MEASURES"]
TWO = "A100-40GB,H100-80GB"


def read(text):
    said = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return {name: int(word) if word.lstrip("-").isdecimal() else word for name, word in said.items()}


@functools.cache
def measure(*words, on=TWO, visible=None):
    """What a recorded program measured."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        done = memtally.run("run", "-q", "--on", on, "-o", os.path.join(folder, "r"), "--", MEASURES, *words, env=environment)
        assert done.returncode == 0, done
        return read(done.stdout)


def uuid_of(index):
    """As NVML counts them."""
    return measure("nvml", str(index))["uuid"]


def test_the_peak_is_caught_that_no_sample_met():
    said = measure("nvml", "0", on="H100-80GB")
    assert said["method"] == "caught", said
    assert (said["own_baseline"], said["own_peak"], said["own_after"]) == (528 * MIB, 828 * MIB, 578 * MIB), said
    assert said["own_growth"] == 300 * MIB and said["peak"] == 828 * MIB, said


def test_what_another_process_has_is_not_its_own():
    said = measure("cuda", "0", "beside", on="H100-80GB")
    assert (said["own_baseline"], said["own_peak"], said["own_after"]) == (528 * MIB, 828 * MIB, 578 * MIB), said
    assert (said["baseline"], said["peak"]) == ((2 * 528 + 64) * MIB, (2 * 528 + 64 + 300) * MIB), said


def test_numbers_differ_where_the_program_sees_some_devices_only():
    """The program sees the second device alone, and calls it 0."""
    cuda, nvml, other = (measure(*words, visible="1") for words in (("cuda", "0"), ("nvml", "1"), ("nvml", "0")))
    assert cuda == nvml and cuda["own_peak"] == 828 * MIB, (cuda, nvml)
    assert other["uuid"] != cuda["uuid"] and other["capacity"] < cuda["capacity"], (other, cuda)
    assert (other["own_peak"], other["peak"]) == (-1, 0), other


def test_numbers_differ_where_the_program_reorders_devices():
    cuda, nvml = measure("cuda", "0", visible="1,0"), measure("nvml", "1", visible="1,0")
    assert cuda == nvml and cuda["own_peak"] == 828 * MIB, (cuda, nvml)
    other = measure("cuda", "1", visible="1,0")
    assert other["uuid"] == uuid_of(0) and other["own_peak"] == -1, other


def test_a_uuid_is_the_same_however_devices_are_counted():
    for visible in (None, "1", "1,0"):
        for index in (0, 1):
            said = measure("uuid", uuid_of(index), visible=visible)
            assert said["uuid"] == uuid_of(index), (visible, said)
            is_used = index == (0 if visible is None else 1)
            assert (said["own_peak"] > 300 * MIB) == is_used, (visible, index, said)


def test_devices_that_are_not_there_are_said():
    assert measure("nvml", "2")["error"].startswith("no NVIDIA device 2: this machine has 2"), measure("nvml", "2")
    said = measure("cuda", "1", visible="1")["error"]
    assert said.startswith("no CUDA device 1: this process sees 1"), said
    said = measure("uuid", "GPU-00000000-0000-0000-0000-000000000000")["error"]
    assert said.startswith("no NVIDIA device has the UUID GPU-00000000"), said


def test_without_the_recorder_it_is_sampled():
    done = memtally.run("rehearse", "--layer", "cuda", "-d", "H100-80GB", "--requests", "0", "--no-suggest", "--quiet", "--",
                        "sh", "-c", '"$0" "$@" >"$SAID"', MEASURES, "nvml", "0", env=dict(os.environ, SAID=said_path()))
    with open(said_path(), encoding="utf-8") as file:
        said = read(file.read())
    assert said["method"] == "sampled", (said, done)
    assert (said["own_baseline"], said["own_peak"], said["own_after"]) == (528 * MIB, 578 * MIB, 578 * MIB), said


@functools.cache
def said_path():
    return os.path.join(tempfile.mkdtemp(), "said")


if __name__ == "__main__":
    tap.main(globals())
