#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally rehearse` on a real llama-server: a run that fits with what it takes late, and runs that run out.

Every figure is held against llama-server's own log of the same run. The model is Qwen3-0.6B in 8 bits: 604.15 MiB of weights
on devices, and 2 (K, V) x 28 layers x 1,024 values x 2 bytes = 114,688 bytes of cache for a token."""

import json
import os
import re
import shlex
import tempfile

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
TOKEN_BYTES = 2 * 28 * 1024 * 2
CONTEXT = 8192
CACHE_BYTES = CONTEXT * TOKEN_BYTES
RESERVED = 100 * memtally.MIB
LINE = re.compile(r"(?P<buffer>\S+)\s+(?P<kind>model|KV|compute|output) buffer size\s*=\s*(?P<mib>[0-9.]+) MiB")
CATEGORY = {"model": "weights", "KV": "kv_cache", "compute": "activations", "output": "activations"}


def in_granules(size):
    """CUDA gives memory out in pieces of 2 MiB."""
    return -(-size // (2 << 20)) * (2 << 20)


def model():
    path = os.path.join(SCRATCH.name, "model.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", "qwen3-0.6b", path, "--sparse", "--type", "q8_0")
    return path


def server(*flags):
    return [engine.llama_cpp("llama-server"), "-m", model(), "-ngl", "99", "-np", "1", "-fit", "off", "-t", "1", "-lv", "4", *flags]


def rehearse(options, command):
    """The document, the server's log, and the exit status."""
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    done = memtally.run("rehearse", "--json", "--folder", folder, "--reserved", "100MiB", *options, "--", *command)
    assert done.returncode in (0, 1), done.stderr
    with open(os.path.join(folder, "errors"), encoding="utf-8", errors="replace") as file:
        return json.loads(done.stdout), file.read(), done.returncode


def logged(log):
    """MiB by place and category, summed, and of how many lines."""
    sums = {}
    for match in LINE.finditer(log):
        device = re.fullmatch(r"CUDA(\d+)", match["buffer"])
        key = (f"gpu:{device[1]}" if device else "host", CATEGORY[match["kind"]])
        mib, lines = sums.get(key, (0, 0))
        sums[key] = (mib + float(match["mib"]), lines + 1)
    assert sums, log[-2000:]
    return sums


def row(document, place, category):
    places = {one["place"]: one for one in document["places"]}
    return memtally.row(places[place], category)


def assert_as_logged(document, log):
    """What was there before the first request; a host's cache is of copies that came later."""
    for (place, category), (mib, lines) in logged(log).items():
        ours = row(document, place, category)["allocated_bytes"] / memtally.MIB
        assert abs(ours - mib) <= 0.005 * lines + 1e-9, (place, category, ours, mib)


def states(document):
    return [late["bytes"] for late in document["rehearsal"]["late"]
            if late["category"] == "kv_cache" and not late["refused"]]


def refused_of(document, log, place, category):
    """The refusal, whose size the engine's log names too."""
    refused = document["rehearsal"]["refused"]
    assert document["rehearsal"]["outcome"] == "ran out", document["rehearsal"]
    assert (refused["place"], refused["category"]) == (place, category), refused
    assert refused["missing_bytes"] == in_granules(refused["asked_bytes"]) - refused["free_bytes"], refused
    assert re.search(rf"failed to allocate CUDA0 buffer of size {refused['asked_bytes']}\b", log), log[-2000:]
    return refused


def test_a_server_that_fits_is_as_its_log_says_and_takes_copies_of_states_late():
    document, log, status = rehearse(["--device", "24GiB,24GiB", "--requests", "8"], server("-c", str(CONTEXT)))
    assert status == 0 and document["rehearsal"]["outcome"] == "ran", document["rehearsal"]
    assert document["rehearsal"]["ready"] and document["rehearsal"]["requests_refused"] == 0
    assert_as_logged(document, log)
    assert row(document, "gpu:0", "kv_cache")["allocated_bytes"] + row(document, "gpu:1", "kv_cache")["allocated_bytes"] == CACHE_BYTES
    saved = [float(mib) for mib in re.findall(r"total state size = ([0-9.]+) MiB", log)]
    for size in states(document):
        assert any(abs(size / memtally.MIB - mib) < 0.001 for mib in saved), (size, saved)
    # A state has the cache of its tokens, and a little for each of them.
    tokens = document["rehearsal"]["longest_prompt_tokens"] + 1
    assert tokens * TOKEN_BYTES <= max(states(document)) <= tokens * (TOKEN_BYTES + 64), (max(states(document)), tokens)


def test_past_prompts_are_kept_up_to_the_caches_limit():
    document, log, _ = rehearse(["--device", "24GiB"], server("-c", str(CONTEXT), "-cram", "2000"))
    held = row(document, "host", "kv_cache")["allocated_bytes"]
    full = [float(mib) for mib in re.findall(r"cache state: \d+ prompts, ([0-9.]+) MiB", log)]
    assert abs(held / memtally.MIB - max(full)) < 0.01, (held, max(full))
    assert 1000 * memtally.MIB < held <= 2000 * memtally.MIB, held


def test_no_requests_no_late_allocations():
    document, _, _ = rehearse(["--device", "24GiB", "--requests", "0"], server("-c", str(CONTEXT)))
    assert document["rehearsal"]["ready"] and document["rehearsal"]["requests"] == 0
    assert states(document) == []


def in_pages(size):
    """A device gives out pages of 2 MiB."""
    return -(-size // (2 * memtally.MIB)) * 2 * memtally.MIB


def test_it_runs_out_at_the_weights():
    document, log, status = rehearse(["--device", "400MiB", "--no-suggest"], server("-c", str(CONTEXT)))
    refused = refused_of(document, log, "gpu:0", "weights")
    assert status == 1 and refused["free_bytes"] == 400 * memtally.MIB - RESERVED, refused


def test_it_runs_out_at_the_cache():
    document, log, status = rehearse(["--device", "1200MiB", "--no-suggest"], server("-c", str(CONTEXT)))
    refused = refused_of(document, log, "gpu:0", "kv_cache")
    weights = row(document, "gpu:0", "weights")["allocated_bytes"]
    assert status == 1 and refused["asked_bytes"] == CACHE_BYTES, refused
    assert refused["free_bytes"] == 1200 * memtally.MIB - RESERVED - in_pages(weights), refused


def test_it_runs_out_at_the_compute_buffer():
    """606 + 896 MiB fit in 1,520, and 18 MiB are left, where the engine wants 34."""
    document, log, status = rehearse(["--device", "1620MiB", "--no-suggest"], server("-c", str(CONTEXT)))
    refused = refused_of(document, log, "gpu:0", "activations")
    weights = row(document, "gpu:0", "weights")["allocated_bytes"]
    assert status == 1 and refused["free_bytes"] == 1520 * memtally.MIB - in_pages(weights) - CACHE_BYTES, refused


def test_a_host_that_is_too_small_for_past_prompts_is_coped_with():
    document, log, _ = rehearse(["--device", "24GiB", "--host", "900MiB", "--no-suggest"], server("-c", str(CONTEXT)))
    refused = document["rehearsal"]["refused"]
    assert document["rehearsal"]["outcome"] == "coped", document["rehearsal"]
    assert (refused["place"], refused["category"]) == ("host", "kv_cache"), refused
    assert "failed to allocate memory for prompt cache state" in log
    assert any(late["refused"] and late["step"] == "request: past prompts are kept" for late in document["rehearsal"]["late"])


def changed(command, change):
    """The user's command line with the flags of a change in it."""
    words = shlex.split(change["flags"])
    command = list(command)
    for flag, value in zip(words[::2], words[1::2]):
        if flag in command:
            command[command.index(flag) + 1] = value
        else:
            command += [flag, value]
    return command


def test_what_is_suggested_fits_and_a_step_more_does_not():
    device = ["--device", "1200MiB", "--requests", "0", "--no-suggest"]
    command = server("-c", str(CONTEXT))
    document, _, _ = rehearse(["--device", "1200MiB", "--requests", "0"], command)
    changes = {change["flags"].split()[0]: change for change in document["rehearsal"]["would_fit"]}
    assert "-c" in changes, document["rehearsal"]["would_fit"]
    assert changes["-c"]["instead_of"] == f"-c {CONTEXT}"
    for change in changes.values():
        after, _, _ = rehearse(device, changed(command, change))
        assert after["rehearsal"]["outcome"] == "ran", (change, after["rehearsal"])
    more = int(changes["-c"]["flags"].split()[1]) + 256
    after, _, _ = rehearse(device, changed(command, {"flags": f"-c {more}"}))
    assert after["rehearsal"]["outcome"] == "ran out", (more, after["rehearsal"])


def test_flags_of_an_unknown_program_are_not_guessed():
    command = ["env", "-S", shlex.join(server("-c", str(CONTEXT)))]
    document, _, _ = rehearse(["--device", "400MiB"], command)
    assert document["rehearsal"]["would_fit"] == []
    assert any("does not know the flags" in note for note in document["notes"]), document["notes"]


if __name__ == "__main__":
    tap.main(globals())
