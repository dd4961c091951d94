#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The recorder over the pretended devices. What it writes of a program and what the driver's account says of the same
program come from two places that know nothing of each other: they must agree after every event, and at the peak."""

import ast
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import memtally
import observers
import tap

MIB = 1 << 20
GIB = 1 << 30
TAKES = os.environ["CUDA_TAKES"]
BOUND = os.environ["CUDA_BOUND"]


@functools.cache
def both(*words, device="H100-80GB"):
    """The two documents, and what each observer wrote."""
    with tempfile.TemporaryDirectory() as folder:
        rehearsal, recording = os.path.join(folder, "account"), os.path.join(folder, "recording")
        done = memtally.run("rehearse", "--layer", "cuda", "-d", device, "--requests", "0", "--no-suggest", "--quiet", "--json",
                            "--folder", rehearsal, "--", memtally.program(), "run", "-q", "-o", recording, "--", TAKES, *words)
        assert done.stdout, done.stderr[-2000:]
        recorded = json.loads(memtally.must("report", "--json", recording).stdout)
        rehearsed = json.loads(done.stdout)
        with open(os.path.join(rehearsal, "output"), encoding="utf-8") as file:
            assert file.read().endswith("done\n"), rehearsed["reason"]
        return rehearsed, recorded, observers.Account(os.path.join(rehearsal, "account")), observers.Recording(recording)


def device(document, number=0):
    return [place for place in document["places"] if place["place"].startswith("gpu:")][number]


def agree_at_the_peak(*words):
    rehearsed, recorded, _, _ = both(*words)
    one, other = device(rehearsed), device(recorded)
    assert other["total_resident_bytes"] == one["total_allocated_bytes"], (words, one, other)
    assert sum(row["resident_bytes"] for row in other["rows"]) + other["unattributed_bytes"] == other["total_resident_bytes"], other
    return one, other


def agree_after_every_event(*words):
    _, _, account, recorder = both(*words)
    assert account.changes() or account.pools(), words
    wrong = observers.disagreements(account, recorder)
    assert not wrong, (words, wrong)


def test_every_route_to_the_driver_is_seen():
    for route in ("dlsym", "asked", "asked2", "static", "runtime"):
        agree_after_every_event(route, "linear")
        one, other = agree_at_the_peak(route, "linear")
        # 10 MiB and 30, and the context that was measured on such cards: 527 MiB in pages of 2.
        assert one["total_allocated_bytes"] == 568 * MIB, (route, one, other)


def test_managed_and_pitched_memory():
    for word in ("managed", "pitched"):
        agree_after_every_event("dlsym", word)
        agree_at_the_peak("dlsym", word)


def test_physical_memory_is_there_until_its_last_handle_and_mapping_are_gone():
    agree_after_every_event("asked2", "virtual")
    # 4 MiB and 6: the two other mappings of the latter, and a handle, are no memory.
    one, _ = agree_at_the_peak("asked2", "virtual")
    assert one["total_allocated_bytes"] == (528 + 10) * MIB, one


def test_a_pool_has_what_it_reserved():
    _, other = agree_at_the_peak("dlsym", "pooled")
    rows = {row["category"]: row["resident_bytes"] for row in other["rows"]}
    # Three of 20 MiB, in chunks of 32: what is free in them is there as well.
    assert rows["cached"] == 96 * MIB and rows["context"] == 528 * MIB, rows


def test_small_pieces_share_a_page():
    """5 of 1000 bytes out of one page of 2 MiB, and 1 MiB and 123 bytes in one of its own."""
    _, other = agree_at_the_peak("dlsym", "small")
    assert other["total_resident_bytes"] >= 528 * MIB + 5000 + MIB + 123, other


def test_pinned_memory_is_none_of_the_devices():
    one, other = agree_at_the_peak("dlsym", "hosted")
    assert other["total_resident_bytes"] == 528 * MIB == one["total_allocated_bytes"], other


def test_what_is_registered_stays_the_programs_own():
    """8 MiB were its own before, and are given up; 16 are pinned for devices, of the host."""
    _, recorded, _, _ = both("dlsym", "registered")
    (host,) = (place for place in recorded["places"] if place["place"] == "host")
    pinned = [(row["category"], part["resident_bytes"]) for row in host["rows"] for part in row["detail"] if part["name"] == "pinned for devices"]
    assert pinned == [("runtime", 16 * MIB)], host
    one, other = agree_at_the_peak("dlsym", "registered")
    assert other["total_resident_bytes"] == 528 * MIB == one["total_allocated_bytes"], other


def test_memory_goes_with_its_pool_its_context_and_its_last_handle():
    """Beside a context of 528 MiB: a pool has 2 of 20 MiB in chunks of 32; 12 MiB go with a context of the program's own; an imported
    handle holds the same 4 MiB, which are gone before 6 come beside 2; and a graph without nodes takes nothing."""
    for word, peak in (("own_pool", 64), ("own_context", 12), ("imported", 2 + 6), ("graph", 4)):
        agree_after_every_event("dlsym", word)
        one, _ = agree_at_the_peak("dlsym", word)
        assert one["total_allocated_bytes"] == (528 + peak) * MIB, (word, one)


def test_what_lies_in_a_programs_own_context_stays_when_the_primary_one_goes():
    """Beside a context of 528 MiB 12 MiB, and 600 once the primary context, which was empty, is gone."""
    agree_after_every_event("dlsym", "beside_primary")
    one, other = agree_at_the_peak("dlsym", "beside_primary")
    assert one["total_allocated_bytes"] == (528 + 612) * MIB, one
    assert [row["resident_bytes"] for row in other["rows"] if row["category"] == "context"] == [528 * MIB], other


def test_a_reset_gives_back_what_there_was():
    _, _, account, recorder = both("dlsym", "reset")
    said = list(recorder.said("changes").values())
    assert said == list(account.changes().values()) == [[12 * MIB, -12 * MIB, 2 * MIB]], (said, account.changes())


def test_the_last_release_of_a_context_gives_back_what_there_was():
    _, _, account, recorder = both("dlsym", "released")
    # 5 MiB are 6 of the driver's, which gives memory out in pages of 2.
    assert list(account.changes().values()) == [[12 * MIB, 4 * MIB, -12 * MIB, -4 * MIB, 6 * MIB]], account.changes()
    agree_after_every_event("dlsym", "released")


def test_what_two_processes_share_counts_once():
    _, recorded, _, _ = both("dlsym", "shared")
    rows = {row["category"]: row["resident_bytes"] for row in device(recorded)["rows"]}
    # 32 MiB of the one, 4 of the other, and a context each.
    assert rows == {"context": 2 * 528 * MIB, "cached": 36 * MIB}, rows
    agree_at_the_peak("dlsym", "shared")


def test_a_forked_child_has_its_own():
    """Its parent takes memory after it has waited for the child's end: what that had is back by then."""
    agree_after_every_event("dlsym", "forked")
    _, other = agree_at_the_peak("dlsym", "forked")
    assert other["total_resident_bytes"] == (528 + 10) * MIB, other


def test_what_exec_replaces_is_gone():
    """The one image had 14 MiB, the other 40 at most; each had a context of its own."""
    rehearsed, recorded, _, _ = both("dlsym", "replaced")
    rows = {row["category"]: row["resident_bytes"] for row in device(recorded)["rows"]}
    assert rows["cached"] == 40 * MIB, rows
    assert device(rehearsed)["total_allocated_bytes"] == (528 + 40) * MIB, device(rehearsed)
    agree_at_the_peak("dlsym", "replaced")


def test_a_refusal_is_no_memory():
    _, other = agree_at_the_peak("dlsym", "refused")
    assert other["total_resident_bytes"] == 528 * MIB, other


def test_a_refusal_is_told_with_what_there_was():
    _, report, _ = run_on("H100-80GB", TAKES, "dlsym", "linear", "refused")
    notes = [note for note in report["notes"] if "refused" in note]
    assert len(notes) == 1 and notes[0].startswith("NVIDIA H100 80GB HBM3 refused 1.00 TiB to process "), report["notes"]
    assert "; most of it was context (528.00 MiB)" in notes[0] and " free" in notes[0], notes


# Without a driver: what a program finds, in which words it is told that it does not, and which libraries it has then.
WITHOUT = """
import ctypes
for name in ("cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cuMemAlloc", "cuNoSuch"):
    for library in (None, "libc.so.6"):
        try:
            print(name, ctypes.CDLL(library)[name] and "is there")
        except AttributeError as error:
            print(name, error)
with open("/proc/self/maps") as maps:
    print(sorted({line.split()[-1].rsplit("/", 1)[-1] for line in maps if ".so" in line and "memtally" not in line}))
"""


def test_without_a_driver_nothing_is_invented():
    """A bare environment, since the tests' own may have look-alikes of the driver in its search path."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "MEMTALLY_"))}
    with tempfile.TemporaryDirectory() as folder:
        plain = subprocess.run([sys.executable, "-c", WITHOUT], env=bare, capture_output=True, text=True, check=False, timeout=100)
        recorded = memtally.run("run", "-q", "--no-python", "-o", os.path.join(folder, "r"), "--", sys.executable, "-c", WITHOUT,
                                env=bare)
    assert plain.returncode == recorded.returncode == 0, (plain.stderr, recorded.stderr)
    # The loader's sentence ends with a blank more where the recorder has a function of the name.
    said, told = ([line.rstrip() for line in done.stdout.splitlines()] for done in (plain, recorded))
    assert told[:-1] == said[:-1] and all("undefined symbol" in line for line in said[:-1]), (said, told)
    brought = {name.split(".so")[0] for name in ast.literal_eval(told[-1])} - {name.split(".so")[0] for name in ast.literal_eval(said[-1])}
    assert not [name for name in brought if name.startswith(("libcu", "libnv"))], brought


def test_the_recorder_needs_no_library_of_cuda():
    (recorder,) = glob.glob(os.path.join(os.environ["BUILD_DIR"], "src", "recorder", "libmemtally-record.so"))
    needed = subprocess.run(["readelf", "-d", recorder], capture_output=True, text=True, check=True, timeout=60).stdout
    names = re.findall(r"NEEDED.*\[(.*)\]", needed)
    assert names and not [name for name in names if name.startswith(("libcu", "libnv", "libnccl"))], names
    with open(recorder, "rb") as file:
        image = file.read()
    for name in (b"libcuda.so.1\0", b"libnvidia", b"libnccl"):
        assert name not in image, name


def test_a_function_that_the_driver_lacks_is_not_found():
    done, _, _ = run_on("H100-80GB", TAKES, "dlsym", "lacking")
    assert done.returncode == 0 and done.stdout == "done\n", done


def test_calls_after_the_drivers_end_are_the_programs_own():
    done, report, _ = run_on("H100-80GB", TAKES, "asked2", "late", "linear")
    assert done.returncode == 0 and done.stdout == "done\n", done
    assert device(report)["total_resident_bytes"] == 568 * MIB, report["places"]


def test_the_drivers_word_is_seen_whatever_it_comes_by():
    """A pool's chunks, a refusal, a child, and what two processes share: each word of the driver is one that it was at."""
    for word in ("pooled", "refused", "reset", "shared", "forked", "replaced"):
        observed = observers.run_on("H100-80GB", TAKES, "dlsym", word)
        wrong = observers.disagreements(observed.account, observed.recording)
        assert observed.done.returncode == 0 and not wrong, (word, wrong)


def test_code_that_is_loaded_at_a_launch_is_seen():
    for route in ("dlsym", "asked2", "runtime"):
        observed = observers.run_on("H100-80GB", TAKES, route, "launched")
        wrong = observers.disagreements(observed.account, observed.recording)
        assert observed.done.returncode == 0 and not wrong, (observed.done.stderr[-500:], wrong)
        rows = {part["name"]: part["resident_bytes"] for row in device(observed.report)["rows"] for part in row["detail"]}
        # What the driver loads comes in its pages of 2 MiB.
        assert rows["taken by the driver as kernels were loaded"] == 2 * MIB, rows


def parts(report):
    return {part["name"]: (row["category"], part["resident_bytes"]) for row in device(report)["rows"] for part in row["detail"]}


def test_what_the_loader_binds_is_seen():
    """A reference to the driver, a weak one, and what a library takes for itself through the runtime."""
    done, report, _ = run_on("H100-80GB", BOUND, "direct", "weak", "library")
    assert done.returncode == 0 and done.stdout == "done\n", done
    said = parts(report)
    assert said["taken by NVSHMEM"] == ("communication", 10 * MIB), said
    assert said["allocated, and not told what for"] == ("cached", 10 * MIB), said


def wait_for(what):
    while not what():
        time.sleep(0.05)


# Two programs on one card, of which the second is recorded. Each goes on once its file is there.
TWO = """
"$TAKES" dlsym linear "hold:$FOLDER/first" &
while [ ! -e "$FOLDER/first.there" ]; do sleep 0.05; done
"$MEMTALLY" run -q -o "$FOLDER/recording" -- "$TAKES" dlsym managed "hold:$FOLDER/second"
touch "$FOLDER/first"
wait
"""


def test_other_programs_memory_is_told_apart():
    with tempfile.TemporaryDirectory() as folder:
        recording, watch = os.path.join(folder, "recording"), os.path.join(folder, "recording", "watch.mtr")
        environment = dict(os.environ, TAKES=TAKES, FOLDER=folder, MEMTALLY=memtally.program())
        with subprocess.Popen([memtally.program(), "rehearse", "--layer", "cuda", "-d", "H100-80GB", "--requests", "0", "--no-suggest",
                               "--quiet", "--json", "--", "sh", "-c", TWO], env=environment, stdout=subprocess.PIPE, text=True) as run:
            wait_for(lambda: os.path.exists(os.path.join(folder, "second.there")) or run.poll() is not None)
            # What others use is asked from outside, when its time has come.
            wait_for(lambda: run.poll() is not None or [line for line in observers.lines_of("recording", watch) if line[0] == "DEVICE_OTHERS"])
            with open(os.path.join(folder, "second"), "w", encoding="utf-8"):
                pass
            rehearsed = json.loads(run.communicate()[0])
        recorded = device(json.loads(memtally.must("report", "--json", recording).stdout))
        text = memtally.must("report", recording).stdout
    # 8 MiB and a context of 528; the other program has 6 MiB and as large a context.
    rows = {row["category"]: (row["resident_bytes"], row["provenance"]) for row in recorded["rows"]}
    assert rows == {"context": (528 * MIB, "measured"), "cached": (8 * MIB, "inferred")}, recorded
    assert recorded["others_bytes"] == (528 + 6) * MIB and recorded["total_resident_bytes"] == (528 + 8) * MIB, recorded
    assert recorded["peak_resident_bytes"] == (528 + 8) * MIB, recorded
    assert "534.00 MiB more is used by other programs" in " ".join(text.split()), text
    # The account of the card has both.
    assert device(rehearsed)["total_allocated_bytes"] >= (2 * 528 + 6 + 8) * MIB, rehearsed


# A program on two cards that nobody records, and one on none; the first is attached to from beside it.
BESIDE = """
"$TAKES" dlsym linear "hold:$FOLDER/first" &
while [ ! -e "$FOLDER/first.there" ]; do sleep 0.05; done
"$MEMTALLY" attach --json -o "$FOLDER/seen" $! >"$FOLDER/document"
"$MEMTALLY" attach --json $$ >"$FOLDER/tree"
touch "$FOLDER/first"
wait
"""


def test_attach_has_a_place_for_the_device_by_the_drivers_list():
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TAKES=TAKES, FOLDER=folder, MEMTALLY=memtally.program())
        memtally.must("rehearse", "--layer", "cuda", "-d", "H100-80GB", "--requests", "0", "--no-suggest", "--quiet", "--",
                      "sh", "-c", BESIDE, env=environment)
        reports = [json.loads(memtally.must("report", "--json", os.path.join(folder, "seen")).stdout)]
        for name in "document", "tree":
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                reports.append(json.load(file))
    for report in reports:
        place = device(report)
        # 6 MiB and a context of 528; nobody says from outside which is which.
        assert place["total_resident_bytes"] == (528 + 6) * MIB == place["unattributed_bytes"], place
        assert {row["category"]: row["resident_bytes"] for row in place["rows"]} == {"weights": None, "kv_cache": None, "activations": None}, place
        assert place["peak_resident_bytes"] == (528 + 6) * MIB and place["others_bytes"] == 0, place
        assert place["name"] == "NVIDIA H100 80GB HBM3" and place["capacity_bytes"] > 79 * GIB, place


def test_a_lie_of_either_is_found():
    """One is planted in the first event of each kind, in the account and in the recording."""
    found = set()
    for word in ("linear", "virtual", "pooled", "reset", "refused"):
        observed = observers.run_on("H100-80GB", TAKES, "dlsym", word)
        for kind, account, recording in observers.with_lies(observed.account, observed.recording):
            assert observers.disagreements(account, recording), (word, kind)
            found.add(kind)
    assert found == {"alloc", "free", "refuse", *observers.LIES}, found


def run_on(named, *words, options=()):
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        done = memtally.run("run", "--on", named, *options, "-o", recording, "--", *words, env=dict(os.environ, TMPDIR=folder))
        left = [name for name in os.listdir(folder) if name != "recording"]
        report = json.loads(memtally.must("report", "--json", recording).stdout) if os.path.isdir(recording) else None
        return done, report, left


def test_run_on_is_a_run_with_the_programs_status_and_output():
    done, report, left = run_on("H100-80GB", TAKES, "dlsym", "linear")
    assert done.returncode == 0 and done.stdout == "done\n", done
    assert "NVIDIA H100 80GB HBM3 GPU-" in done.stderr and not left, (done.stderr, left)
    place = device(report)
    assert place["name"] == "NVIDIA H100 80GB HBM3" and place["place"] == "gpu:" + place["uuid"], place
    assert place["total_resident_bytes"] == 568 * MIB and place["capacity_bytes"] > 79 * GIB, place
    done, report, _ = run_on("24GiB", "sh", "-c", "exit 7")
    assert done.returncode == 7, done


def test_run_on_says_why_nvidias_own_runtime_uses_no_device():
    done, report, _ = run_on("24GiB", os.environ["CUDA_PROGRAM"], "ask")
    assert [place["place"] for place in report["places"]] == ["host"], report["places"]
    assert "run: cuda_program brings NVIDIA's own runtime with it" in done.stderr, done.stderr


def test_run_on_two_devices_of_which_one_is_used():
    _, report, _ = run_on("2x24GiB", TAKES, "dlsym", "linear")
    assert len([place for place in report["places"] if place["place"] != "host"]) == 1, report["places"]


ON_BOTH = '"$0" dlsym linear && CUDA_VISIBLE_DEVICES=1 "$0" dlsym "$1"'


def test_every_format_and_compare_tell_two_devices_apart():
    with tempfile.TemporaryDirectory() as folder:
        a, b = os.path.join(folder, "a"), os.path.join(folder, "b")
        for path, word in ((a, "linear"), (b, "managed")):
            done = memtally.run("run", "-q", "--on", "2xH100-80GB", "-o", path, "--", "sh", "-c", ON_BOTH, TAKES, word)
            assert done.stdout == "done\n" * 2, done
        report = json.loads(memtally.must("report", "--json", a).stdout)
        uuids = [place["uuid"] for place in report["places"] if place["place"] != "host"]
        assert len(set(uuids)) == 2, report["places"]
        for form in ("csv", "folded", "speedscope", "json"):
            text = memtally.must("report", "--format", form, a).stdout
            assert all(uuid in text for uuid in uuids), (form, text[:2000])
        for form in ("csv", "json"):
            text = memtally.must("compare", "--format", form, a, b).stdout
            assert all(uuid in text for uuid in uuids), (form, text[:2000])
        trace = subprocess.run([memtally.program(), "report", "--format", "perfetto", a], capture_output=True, check=True, timeout=100).stdout
        assert all(uuid.encode() in trace for uuid in uuids), len(trace)
        # The table has as much of a name as tells one from the other: these begin alike.
        text = memtally.run("compare", a, b).stdout
        assert all(f"gpu:…{uuid[-8:]} cached" in text for uuid in uuids[1:]) and f"gpu:…{uuids[0][-8:]}  " in text, text


def stacks_of_devices(*words, named="H100-80GB", at="peak"):
    """The bytes of each device by call stack, whose functions are innermost last; and what the formats say."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        done = memtally.run("run", "-q", "--on", named, "--stacks", "unwind", "-o", recording, "--", *words)
        assert done.returncode == 0, done.stderr[-2000:]
        asked = ("report", "--at", at, recording)
        entries = json.loads(memtally.must(*asked, "--json", "--top", "100000").stdout)["stacks"]["entries"]
        return ([(entry["place"], entry["bytes"], entry["frames"][::-1]) for entry in entries if entry["place"] != "host"],
                memtally.must(*asked, "--top", "100000").stdout, memtally.must(*asked, "--format", "folded").stdout,
                json.loads(memtally.must(*asked, "--format", "speedscope").stdout))


def test_call_stacks_say_who_took_memory_of_a_device():
    """What the program held at the device's peak, by the functions of takes.c that took it. What was imported, what another image of
    the process had, and what was given back before, are none of it."""
    for word, by in (("linear", {("linear", "take"): 40 * MIB}), ("virtual", {("virtual",): 10 * MIB}), ("pooled", {("pooled",): 60 * MIB}),
                     ("shared", {("shared", "take"): 36 * MIB}), ("replaced", {("linear", "take"): 40 * MIB})):
        entries, _, _, _ = stacks_of_devices(TAKES, "dlsym", word)
        sums = {}
        for _, size, frames in entries:
            assert "main" in frames, frames
            way = tuple(frame for frame in frames if frame in ("linear", "virtual", "pooled", "shared", "replaced", "take"))
            sums[way] = sums.get(way, 0) + size
        assert sums == by, (word, entries)
    entries, _, _, _ = stacks_of_devices(TAKES, "dlsym", "linear", at="exit")
    assert [size for _, size, _ in entries] == [6 * MIB], entries


# Two devices, of which each is fullest at another time, and memory of the host that stays.
TWO_DEVICES = """
import ctypes

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")


def made(result):
    assert result == 0, result


def use(device):
    context = ctypes.c_void_p()
    made(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    made(cuda.cuCtxSetCurrent(context))


def take(size):
    pointer = ctypes.c_uint64()
    made(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer


def early():
    use(0)
    made(cuda.cuMemFree_v2(take(200 * MIB)))


def late():
    made(cuda.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(70 * MIB), 0))
    for device, size in ((1, 300 * MIB), (0, 50 * MIB)):
        use(device)
        take(size)


made(cuda.cuInit(0))
early()
late()
"""


def test_call_stacks_of_two_devices_have_pythons_functions():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "two.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(TWO_DEVICES)
        peak, table, folded, speedscope = stacks_of_devices(sys.executable, path, named="2x24GiB")
        end, _, _, _ = stacks_of_devices(sys.executable, path, named="2x24GiB", at="exit")

    def by_function(entries):
        return sorted((size // MIB, [name for name in ("early", "late", "take") if any(frame.startswith(name + " (") for frame in frames)])
                      for _, size, frames in entries)

    assert by_function(peak) == [(200, ["early", "take"]), (300, ["late", "take"])], peak
    assert by_function(end) == [(50, ["late", "take"]), (300, ["late", "take"])], end
    places = {size: place for place, size, _ in peak}
    assert len(set(places.values())) == 2 and all(place.startswith("gpu:GPU-") for place in places.values()), places
    (profile,) = speedscope["profiles"]
    weights = {speedscope["shared"]["frames"][sample[0]]["name"]: weight for sample, weight in zip(profile["samples"], profile["weights"])}
    for size, place in places.items():
        assert f"{size // MIB}.00 MiB in 1 block of {place}\n" in table, table
        assert [line.rpartition(" ")[2] for line in folded.splitlines() if line.startswith(place + ";")] == [str(size)], folded
        assert weights[place] == size, weights


def test_run_on_what_is_no_device_is_refused():
    done, report, left = run_on("nonsense", TAKES, "dlsym", "linear")
    assert done.returncode == 2 and "run: no GPU is called 'nonsense'" in done.stderr, done
    assert report is None and not left, left


if __name__ == "__main__":
    tap.main(globals())
