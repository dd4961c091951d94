#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of transformers on the CPU, recorded: weights, gradients, the optimizer's state and caches are what the program
itself sums up, to the byte. With ALL=1 every kind of model in both types and sizes (make torch-on-host), else some."""

import os
import re
import subprocess
import tempfile

import engine
import memtally
import on_host
import tap

KINDS = ("dense", "experts", "sliding", "state_space", "hybrid", "parallel_hybrid", "encoder_decoder")
SOME = (("dense", "float32", "1", "generate"), ("hybrid", "bfloat16", "4", "generate"), ("state_space", "float32", "4", "generate"),
        ("encoder_decoder", "bfloat16", "1", "generate"), ("experts", "float32", "1", "train"), ("dense", "float32", "1", "load"))
MOST_MISSED = 0.001  # of the highest size; held where all are asked for, on a machine with time for the looks


def all_of_them():
    yield from ((kind, dtype, batch, "generate") for kind in KINDS for dtype in ("float32", "bfloat16") for batch in ("1", "4"))
    yield from ((kind, dtype, "1", "train") for kind in KINDS for dtype in ("float32", "bfloat16"))
    yield from ((kind, "float32", "1", way) for kind in ("dense", "sliding") for way in ("static", "load"))


def test_parts_are_the_programs_own_sums():
    missed = {}
    for words in all_of_them() if os.environ.get("ALL") else SOME:
        with tempfile.TemporaryDirectory() as folder:
            said, peak, held = on_host.record(folder, on_host.stage(os.path.join(folder, "stage")), *words)
        on_host.assert_true_to_the_program(said, peak, held)
        shown = peak["total_resident_bytes"] / max(said["VmHWM"], peak["peak_resident_bytes"])
        print("#", *words, {what: size for what, size in on_host.recorded_parts(held).items() if size},
              f"{peak['total_resident_bytes']} resident, {peak['unattributed_bytes'] / peak['total_resident_bytes']:.3%} unattributed,"
              f" at its mark {held['unattributed_bytes'] / held['total_resident_bytes']:.3%},",
              f"{1 - shown:.3%} of the highest size not shown", flush=True)
        missed[words] = abs(1 - shown)
    far = {words: share for words, share in missed.items() if share > MOST_MISSED}
    assert not os.environ.get("ALL") or not far, far


def test_a_cache_is_known_between_tokens_however_quick_they_are():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("from _memtally_helper.watch import caches\ncaches.QUICK = 1000\n")
        environment = on_host.stage(os.path.join(folder, "stage")) | {"PYTHONPATH": folder}
        for how in ("midway", "beams"):
            os.makedirs(os.path.join(folder, how))
            said, _, midway = on_host.record(os.path.join(folder, how), environment, "dense", "float32", "1", how, marked="midway")
            assert on_host.recorded_parts(midway)["kv_cache"] == said["midway"] > 0, (how, on_host.recorded_parts(midway), said)


def both(name, *options, **more):
    """What a program prints by itself and recorded, less addresses and numbers of processes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = on_host.stage(os.path.join(folder, "stage")) | more
        command = [engine.torch(), on_host.program(name)]
        alone = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
        seen = memtally.must("run", "-q", *options, "-o", os.path.join(folder, "recording"), "--", *command, env=environment, timeout=900)
        traces = ""
        for trace in (one for one in os.listdir(os.path.join(folder, "recording")) if one.endswith(".trace")):
            with open(os.path.join(folder, "recording", trace), encoding="utf-8") as file:
                traces += file.read()
    return *(re.sub(r"0x[0-9a-f]+", "", one.stdout) for one in (alone, seen)), traces


def test_errors_signatures_and_workers_are_as_without_us():
    alone, seen, traces = both("unharmed.py")
    assert alone == seen, (alone, seen)
    assert "Traceback" in alone and "forkserver [" in alone, alone
    assert "gave up" not in traces, traces


def test_an_error_of_ours_is_none_of_the_programs():
    # The user's sitecustomize runs after ours, and breaks it.
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("import os, sys\nif os.environ.get('MEMTALLY_WATCH'):\n"
                       "    from _memtally_helper.watch import cpu\n"
                       "    def broken(*_): raise KeyError('ours')\n"
                       "    cpu.Labels.tell_anew = cpu.Labels.tell = broken\n")
        alone, seen, traces = both("unharmed.py", PYTHONPATH=folder)
    assert alone == seen, (alone, seen)
    assert "KeyError" in traces, traces


def test_python_is_left_alone_where_that_is_asked():
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import torch, sys; print('_memtally_helper' in sys.modules, torch.autograd.backward.__code__.co_name)\n")
        command = ["run", "-q", "--no-python", "-o", os.path.join(folder, "recording"), "--", engine.torch(), script]
        done = memtally.must(*command, env=on_host.stage(os.path.join(folder, "stage")))
        assert done.stdout == "False backward\n", done.stdout
        assert not [name for name in os.listdir(os.path.join(folder, "recording")) if name.endswith(".trace")]


if __name__ == "__main__":
    tap.main(globals())
