#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package beside PyTorch on GPUs that are not there. Sizes are multiples of 2 MiB from 20 MiB up, which PyTorch's
allocator asks of the driver as they are, so each sum is arithmetic; the recording of the same run is the second witness."""

import json
import os
import tempfile

import engine
import package
import tap

MIB = 1 << 20
TAKE = """
    import json, sys
    import torch
    import memtally

    def take(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
"""


def on(device, code, *arguments, report=False):
    """The last line that a program prints on such a device, read as JSON, and its recording's report."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        before = [package.program("memtally"), "run", "-q", "--on", device, "-o", recording, "--"]
        told = package.answered(code, *arguments, python=engine.torch(), before=before)
        return (told, json.loads(package.ran([before[0], "report", "--json", recording]))) if report else told


def of_place(report, kind="gpu:"):
    (place,) = [place for place in report["places"] if place["place"].startswith(kind)]
    return place


def test_the_peak_of_a_call_that_begins_with_cuda_is_the_recordings_to_the_byte():
    record, report = on("H100-80GB", TAKE + """
    def load():
        kept, passing = take(32), take(64)
        del passing
        return kept
    kept, record = memtally.measure(load)
    print(json.dumps(record.to_dict()))
    """, report=True)
    assert (record["device"], record["method"]) == ("cuda:0", "allocator"), record
    assert record["peak_memory_bytes"] == record["growth_bytes"] == 96 * MIB, record
    place = of_place(report)
    taken = {row["category"]: row["resident_bytes"] for row in place["rows"]}
    assert record["peak_memory_bytes"] == place["total_resident_bytes"] - taken["context"], (record, taken)


def test_peaks_of_a_device_are_those_of_each_call_nested_or_not():
    inner, outer, again = on("H100-80GB", TAKE + """
    first = take(32)
    def around():
        passing = take(256)
        del passing
        torch.cuda.empty_cache()
        return memtally.measure(take, 128)[1]
    inner, outer = memtally.measure(around)
    again = memtally.Measure(device=outer.devices[0].uuid)(take, 64)[1]
    print(json.dumps([inner.to_dict(), outer.to_dict(), again.to_dict()]))
    """)
    assert [inner["growth_bytes"], outer["growth_bytes"]] == [128 * MIB, 256 * MIB], (inner, outer)
    assert [inner["peak_memory_bytes"], outer["peak_memory_bytes"]] == [160 * MIB, 288 * MIB], (inner, outer)
    # The 128 MiB that were returned are free within the allocator: it reserves no more.
    (device,) = again["devices"]
    assert (again["growth_bytes"], device["allocated_growth_bytes"]) == (0, 64 * MIB), again


def test_a_call_that_used_no_device_is_one_of_the_host():
    idle, asked, told = on("2xH100-80GB", TAKE + """
    first = take(32)
    idle = memtally.measure(lambda: bytearray(64 << 20))[1]
    asked = memtally.Measure(device="cuda:1")(lambda: torch.empty(32 << 20, dtype=torch.uint8, device="cuda:1"))[1]
    try:
        memtally.Measure(device=2)(print, "ran")
    except memtally.Error as error:
        told = [type(error).__name__, str(error)]
    print(json.dumps([idle.to_dict(), asked.to_dict(), told]))
    """)
    assert idle["device"] == "host" and [device["was_used"] for device in idle["devices"]] == [False, False], idle
    assert (asked["device"], asked["peak_memory_bytes"]) == ("cuda:1", 32 * MIB), asked
    assert [device["was_used"] for device in asked["devices"]] == [False, True], asked
    assert told == ["NotFound", "there is no device 2; PyTorch has 2"], told


def test_a_process_that_a_program_forks_after_cuda_measures_its_host():
    record = on("H100-80GB", TAKE + """
    import os
    first = take(32)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(memtally.measure(bytearray, 1 << 20)[1].to_dict()).encode())
        os._exit(0)
    os.close(write)
    print(os.fdopen(read).read())
    """)
    assert record["device"] == "host" and record["peak_memory_bytes"] > 0 and not record["devices"], record


def test_what_a_program_says_of_its_tensors_stands_in_its_recording():
    with tempfile.TemporaryDirectory() as folder:
        program, recording = os.path.join(folder, "program.py"), os.path.join(folder, "recording")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import torch, memtally\n"
                       "on_device = torch.empty(64 << 20, dtype=torch.uint8, device='cuda')\n"
                       "memtally.label(on_device, 'recurrent_state', 'mine')\n"
                       "on_host = torch.ones(48 << 20, dtype=torch.uint8)\n"
                       "memtally.label(on_host, 'training', 'mine')\n"
                       "assert memtally.record().folder\n")
        told = package.answered("""
            import json, memtally, os, sys
            recording = memtally.record(sys.argv[1:3], output=sys.argv[3], on="H100-80GB")
            tally = recording.tally("training-peak")
            device = tally.places[1]
            print(json.dumps([recording.status, tally.place("host").row("training").allocated_bytes,
                              device.row("recurrent_state").allocated_bytes, "training" in str(tally),
                              os.fspath(recording) == sys.argv[3]]))
        """, engine.torch(), program, recording, PYTHONPATH=package.packages())
    assert told == [0, 48 * MIB, 64 * MIB, True, True], told


if __name__ == "__main__":
    tap.main(globals())
