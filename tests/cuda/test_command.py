#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally rehearse with a program on CUDA's driver: what fits, what does not, how it ends."""

import contextlib
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tap

GIB = 1 << 30
MIB = 1 << 20
RTX3090_MIB = 24124  # that a program can have: data/gpus/nvidia.table, from a log of llama.cpp
MEMTALLY = os.environ["MEMTALLY"]
PROGRAM = os.environ["CUDA_PROGRAM"]


def rehearse(options, *words, program=PROGRAM, env=None):
    """The exit status, the document (None where there is none) and what was complained of."""
    done = subprocess.run([MEMTALLY, "rehearse", "--json", "--quiet", *options, "--", program, *words],
                          env=dict(os.environ, **env or {}), capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def cut_off(seconds, has_come_so_far, *words):
    """As above, of a program that goes on without end and is ended. A busy machine may not let it come so far in the first time that it
    is given."""
    for given in (seconds, 4 * seconds, 16 * seconds):
        status, document, said = rehearse(["-d", "24GiB", "--timeout", str(given)], *words)
        if document and document["kind"] != "error" and has_come_so_far(document):
            break
    return status, document, said


def place(document, name):
    return next(p for p in document["places"] if p["place"] == name)


def rows(document, name="gpu:0"):
    return {row["category"]: row["allocated_bytes"] for row in place(document, name)["rows"]}


def test_what_a_program_takes_is_told_with_the_context_of_its_card():
    status, document, said = rehearse(["-d", "H100-80GB"], "must", "2")
    assert status == 0, (status, said)
    taken = rows(document)
    # 527 MiB were measured on such cards; the driver gives memory out in pages of 2.
    assert taken["context"] == 528 * MIB, taken
    assert sum(taken.values()) == 2 * GIB + 528 * MIB, taken


def test_of_what_is_freed_or_never_was_nothing_is_told():
    _, document, _ = rehearse(["-d", "H100-80GB,H100-80GB"], "must", "1")
    assert not place(document, "gpu:1")["rows"], document


def bounds(document):
    return [(one["place"], one["bound"], one["held_bytes"], one["allowed_bytes"]) for one in document["rehearsal"]["beyond"]]


def test_beyond_a_limit_the_exit_status_is_1_though_the_card_has_more():
    def of_limit(document):
        return [note for note in document["notes"] if " holds " in note]

    exact = f"{2 * GIB + 528 * MIB}"  # as above
    status, document, said = rehearse(["-d", "H100-80GB", "--limit", exact], "must", "1", "must", "1")
    assert (status, document["verdict"], of_limit(document)) == (0, "FITS", []), (status, document["notes"], said)
    status, document, said = rehearse(["-d", "H100-80GB,H100-80GB", "--limit", f"{2 * GIB + 527 * MIB}"], "must", "1", "must", "1")
    assert (status, document["verdict"]) == (1, "EXCEEDS"), (status, said)
    assert document["reason"] == "gpu:0 takes 2.52 GiB, 1.00 MiB more than the limit of 2.51 GiB", document["reason"]
    assert bounds(document) == [("gpu:0", "limit", 2 * GIB + 528 * MIB, 2 * GIB + 527 * MIB)], bounds(document)
    assert document["rehearsal"]["limit_bytes"] == 2 * GIB + 527 * MIB and document["rehearsal"]["baseline"] is None
    (note,) = of_limit(document)
    assert "holds cached 2.00 GiB" in note.replace("context 528.00 MiB, ", "") and "It passes 2.51 GiB on gpu:0 where 1.00 GiB are asked for." in note, note
    # A program that is refused and goes on with less, or has less where there is less.
    status, document, said = rehearse(["-d", "H100-80GB", "--limit", "1GiB"], "take", "2")
    assert status == 1 and "It passes 1.00 GiB on gpu:0 where 2.00 GiB are asked for." in of_limit(document)[0], (status, document["notes"])
    for option, value in (("limit", "1GiB"), ("baseline", "memory.txt")):
        for words in (["model.gguf"], ["--", PROGRAM, "must", "1"]):
            done = subprocess.run([MEMTALLY, "rehearse", f"--{option}", value, *words], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (2, "") and f"'--{option}' wants --device" in done.stderr, done


def test_beyond_its_baseline_the_exit_status_is_1_and_what_is_new_is_added():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.txt")

        def again(*words, options=(), devices="H100-80GB"):
            status, document, said = rehearse(["-d", devices, "--baseline", path, *options], *words)
            assert document, said
            with open(path, encoding="utf-8") as file:
                return status, document, file.read()

        status, document, first = again("must", "1", "must", "1")
        assert (status, document["verdict"], document["rehearsal"]["baseline"]["added"]) == (0, "FITS", True), document
        # As above: what was asked for, and the context, in lines of place, category and bytes.
        assert [line.split()[:3] for line in first.splitlines() if line.startswith(" ")] == [
            ["gpu:0", "total", str(2 * GIB + 528 * MIB)], ["gpu:0", "cached", str(2 * GIB)], ["gpu:0", "context", str(528 * MIB)]], first
        status, document, second = again("must", "1", "must", "1")
        assert (status, document["rehearsal"]["baseline"]["added"], second) == (0, False, first), document
        # Names are in order, and what else is in the file stays as it is.
        with open(path, "a", encoding="utf-8") as file:
            file.write("# a remark\n~\n    gpu:0 total 7\n")
        _, _, both = again("must", "3")
        heads = [line for line in both.splitlines() if not line.startswith(" ")][2:]
        assert heads == [f"{PROGRAM} must 1 must 1", "# a remark", f"{PROGRAM} must 3", "~"], both
        assert both.startswith(first) and both.endswith("~\n    gpu:0 total 7\n"), both
        # The same file says that the command took 1 GiB less.
        with open(path, "w", encoding="utf-8") as file:
            file.write(first.replace(str(2 * GIB + 528 * MIB), str(GIB + 528 * MIB)).replace(str(2 * GIB), str(GIB)))
        status, document, third = again("must", "1", "must", "1")
        assert (status, document["verdict"]) == (1, "EXCEEDS") and third != first, document
        assert document["reason"] == ("gpu:0 takes 2.52 GiB, 1.00 GiB (66.0 %) more than its baseline of 1.52 GiB: "
                                      "cached 1.00 GiB more"), document["reason"]
        most = round((GIB + 528 * MIB) * 1.02)
        assert bounds(document) == [("gpu:0", "baseline", 2 * GIB + 528 * MIB, most)], bounds(document)
        assert "where 1.00 GiB are asked for" in document["notes"][-1], document["notes"]
        assert again("must", "1", "must", "1", options=["--tolerance", "70"])[0] == 0
        with open(path, "w", encoding="utf-8") as file:
            file.write("a\n    gpu:0 total many\n")
        status, document, said = rehearse(["-d", "H100-80GB", "--baseline", path], "must", "1")
        assert status == 2 and document["kind"] == "error", (status, document)
        assert "line 2: a peak is a place, a category and a number of bytes" in said, said
        status, _, said = rehearse(["-d", "H100-80GB", "--baseline", path], "must", "1\n")
        assert status == 2 and "as one line of its file" in said, said
        # What ran out is no peak to be kept.
        os.remove(path)
        status, document, said = rehearse(["-d", "24GiB", "--baseline", path], "must", "20", "must", "6")
        assert status == 1 and document["verdict"] == "CANNOT" and not os.path.exists(path), said


def test_an_allocation_that_does_not_fit_is_refused_and_told():
    status, document, _ = rehearse(["-d", "24GiB"], "must", "20", "must", "6")
    assert status == 1, status
    reason = json.dumps(document)
    assert "gpu:0 has no room for 6.00 GiB" in reason, reason[:3000]
    # 26 GiB and the context, which is 264 MiB of an RTX 3090.
    fits = document["rehearsal"]["would_fit"]
    assert len(fits) == 1 and fits[0]["flags"].startswith("a device of 26.26 GiB (RTX5000Ada)"), fits


def test_a_size_is_a_usual_card_and_a_generation_chooses_another():
    for options, card, context in ((["-d", "16GiB"], "taken for RTX4060Ti-16GB", 107),
                                   (["-d", "16GiB", "--generation", "turing"], "T4", 106),
                                   (["-d", "24GiB", "--generation", "ada"], "RTX4090", 412),
                                   (["-d", "24GiB"], "taken for RTX3090", 264)):
        _, document, said = rehearse(options, "must", "1")
        assert f"({card})" in document["reason"], (options, document["reason"], said)
        # In pages of 2 MiB.
        assert context * MIB <= rows(document)["context"] <= (context + 2) * MIB, (options, rows(document))


def test_a_generation_that_the_card_is_not_of_is_refused():
    status, _, said = rehearse(["-d", "A100", "--generation", "ada"], "must", "1")
    assert status == 2 and "A100-80GB is a GPU of generation ampere (8.0), not of 'ada'" in said, (status, said)
    status, _, said = rehearse(["-d", "24GiB", "--generation", "fermi"], "must", "1")
    assert status == 2 and "there are pascal" in said, (status, said)


def test_a_card_of_another_maker_is_refused_for_a_cuda_program():
    status, _, said = rehearse(["-d", "RX7900XTX", "--layer", "cuda"], "must", "1")
    assert status == 2 and "on NVIDIA's GPUs, and these are driven by rocm" in said, (status, said)


def test_a_program_that_copes_with_a_refusal_fits():
    status, document, said = rehearse(["-d", "24GiB"], "take", "30", "must", "4")
    assert status == 0, (status, said)
    assert document["rehearsal"]["outcome"] == "coped", document["rehearsal"]


def test_what_a_crashed_process_held_is_there_for_the_next():
    status, _, said = rehearse(["-d", "24GiB"], "-c", f"{PROGRAM} must 15 crash; sleep 1; {PROGRAM} must 15", program="sh")
    assert status == 0, (status, said)


def test_two_processes_share_one_device():
    status, document, _ = rehearse(["-d", "24GiB"], "child", "12", "must", "12")
    assert status == 1, status
    status, document, said = rehearse(["-d", "24GiB"], "child", "8", "must", "8")
    assert status == 0, (status, said)
    taken = rows(document)
    # Each process has a context of its own.
    assert sum(taken.values()) - taken["context"] == 16 * GIB, taken


def test_a_crash_is_the_programs_own():
    status, document, _ = rehearse(["-d", "24GiB"], "must", "1", "crash")
    assert status == 1 and document["rehearsal"]["outcome"] == "crashed", (status, document["rehearsal"])


TALKS = """
import os, sys, time
print("it has begun")
for _ in range(600):
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
else:
    sys.exit("nobody has seen it")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def test_what_a_program_writes_is_shown_while_it_runs():
    """It goes on once its first line was seen. Its output goes to our errors: the document has our output."""
    with tempfile.TemporaryDirectory() as folder:
        seen = os.path.join(folder, "seen")
        command = [MEMTALLY, "rehearse", "--json", "-d", "24GiB", "--", sys.executable, "-c", TALKS, seen, PROGRAM, "must", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            first = started.stderr.readline()
            pathlib.Path(seen).touch()
            said, _ = started.communicate(timeout=100)
        assert first == "it has begun\n", first
        assert started.returncode == 0 and json.loads(said)["rehearsal"]["outcome"] == "ran", (started.returncode, said[-2000:])


def test_what_a_program_writes_is_not_shown_where_that_is_not_wanted():
    status, _, said = rehearse(["-d", "24GiB"], "-c", f"echo aside >&2; {PROGRAM} must 1", program="sh")
    assert status == 0 and not said, (status, said)


def test_a_hang_is_ended():
    """On a busy machine it may still have started to work shortly before."""
    status, document, _ = cut_off(2, lambda document: "cached" in rows(document), "must", "1", "hang")
    words = {"hung": "computed next to nothing", "busy": "while it computed"}
    assert status == 1 and words[document["rehearsal"]["outcome"]] in document["reason"], (status, document["rehearsal"])


def test_a_program_that_works_on_without_end_has_an_answer_with_a_warning():
    """It takes 1 GiB and computes; what it took fits."""
    status, document, said = cut_off(8, lambda document: document["rehearsal"]["outcome"] == "ran on", "must", "1", "work")
    assert status == 0 and document["verdict"] == "FITS", (status, document["reason"], said)
    assert document["rehearsal"]["outcome"] == "ran on", document["rehearsal"]
    assert any("ended the program while it worked" in note for note in document["notes"]), document["notes"]
    assert rows(document)["cached"] == GIB, document


def compared(folder, seconds):
    """Two runs that are given so long, of which the first one works on without end."""
    graph = "memtally-torch 1\\nx 0 1000 1 2097152 0 3 1048576 4194304 8 8 0 FULL\\n"
    script = f'printf "{graph}" >{folder}/runs/$1/torch-7.trace; "$0" must 1; [ $1 = B ] || exec "$0" must 1 work'
    done = subprocess.run([MEMTALLY, "graphs", "--vary", "run=A,B", "--device", "24GiB", "--folder", f"{folder}/runs", "--timeout", str(seconds),
                           "--save", "m", "--", "sh", "-c", script, PROGRAM, "{run}"],
                          cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return done, [line for line in done.stdout.splitlines() if line.startswith("cut ")]


def test_of_settings_that_are_compared_the_run_that_was_cut_is_named():
    """Both write what a program with one graph would have; the first one works on without end, and may have captured more."""
    for seconds in (8, 32, 128):  # on a busy machine the second one may not come to its end in time
        with tempfile.TemporaryDirectory() as folder:
            done, cut = compared(folder, seconds)
            if done.returncode or len(cut) != 1:
                continue
            assert cut[0].split()[1:4] == ["A", "was", "ended"], done.stdout
            (saved,) = pathlib.Path(folder, "results").iterdir()
            assert [run["was_cut"] for run in json.loads(saved.read_text())["runs"]] == [True, False], saved.read_text()
            return
    raise AssertionError(done)


def test_a_program_sees_as_many_devices_as_were_given_and_its_own_choice_of_them():
    for given, visible, seen in (("64x24GiB", None, "64"), ("4x24GiB", "2,0", "2")):
        with tempfile.TemporaryDirectory() as folder:
            rehearse(["-d", given, "--folder", folder], "devices", env={"CUDA_VISIBLE_DEVICES": visible} if visible else {})
            with open(f"{folder}/output", encoding="utf-8") as file:
                assert file.read().strip() == seen, given


def test_a_library_with_nvidias_own_runtime_is_named():
    """It asks the driver for what only NVIDIA's has. Where the program fails by that, with memory of its own or not,
    nothing can be said of it."""
    for words in (("ask",), ("need",), ("must", "1", "need")):
        status, document, said = rehearse(["-d", "24GiB"], *words)
        assert status == 3 and document["kind"] == "error", (words, status, document)
        assert said.count("\n") <= 3 and "cuda_program brings NVIDIA's own runtime with it" in said, (words, said)


def test_a_library_that_asks_and_goes_on_leaves_the_rest_as_it_is():
    status, document, _ = rehearse(["-d", "24GiB"], "ask", "ask", "must", "1")
    notes = [note for note in document["notes"] if "NVIDIA's own runtime" in note]
    assert status == 0 and notes == ["cuda_program brings NVIDIA's own runtime: it is not rehearsed."], (status, document["notes"])


FILES = """
import os, stat, subprocess, sys
ours = ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidiactl"]
others = ["/dev/nvidia63", "/dev/nvidia01", "/dev/nvidia1x", "/dev/nvidiactl0", "/dev/null", "/dev/none"]
for path in ours:
    about = os.stat(path)
    assert stat.S_ISCHR(about.st_mode) and os.major(about.st_rdev) == 195, (path, about)
    assert os.path.exists(path) and os.access(path, os.R_OK | os.W_OK), path
assert [os.stat(path).st_rdev & 255 for path in ours] == [0, 2, 255]
for path in others:
    assert os.path.exists(path) == (os.path.basename(path) in os.listdir("/dev")), path
subprocess.run(["sh", "-c", "test -e /dev/nvidia1"], check=True)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_the_files_of_the_devices_are_there_for_who_looks():
    """JAX looks for /dev/nvidia0 before it asks the driver. Their major number is the one of the kernel's list of devices."""
    status, _, said = rehearse(["-d", "3x24GiB"], "-c", FILES, PROGRAM, "must", "1", program=sys.executable)
    assert status == 0, said


def test_without_devices_there_are_no_files_of_them():
    """An account without CUDA's devices is that of a program on ggml."""
    if os.path.exists("/dev/nvidia0"):
        raise tap.Skip("this machine has such a device")
    status, _, said = rehearse(["-d", "24GiB", "--layer", "ggml"], "-c", "test -e /dev/nvidia0 && echo there >&2; false", program="sh")
    assert status == 3 and "there\n" not in said, (status, said)


def test_devices_that_are_hidden_by_the_user_are_said_to_be():
    status, _, said = rehearse(["-d", "24GiB"], "take", "1", env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert status == 3 and "CUDA_VISIBLE_DEVICES=-1 is set" in said, (status, said)


def test_more_devices_than_can_be_pretended_and_cards_that_are_none_are_wrong_usage():
    for devices, words in (("100x24GiB", "more than 64 devices"), ("0GiB", "without memory"), ("rtx40", "RTX4090")):
        status, _, said = rehearse(["-d", devices], "take", "1")
        assert status == 2 and words in said, (devices, status, said)


def test_a_library_of_another_cuda_is_named():
    status, _, said = rehearse(["-d", "24GiB"], "-c",
                               "echo 'ImportError: libcudart.so.99: cannot open shared object file: No such file' >&2; exit 1",
                               program="sh")
    assert status == 3 and "needs libcudart.so.99" in said and "CUDA 12 and 13" in said, (status, said)


def test_a_folder_that_libraries_cannot_be_preloaded_from_is_refused():
    with tempfile.TemporaryDirectory(prefix="with space ") as folder:
        status, _, said = rehearse(["-d", "24GiB", "--folder", folder], "take", "1")
        assert status == 2 and "no space and no colon" in said, (status, said)


def smi(folder, *words):
    """What nvidia-smi says in a rehearsal of two cards of which one has a process on it."""
    said = os.path.join(folder, "said")
    command = f'{PROGRAM} must 1; nvidia-smi "$@" > "$0" 2>&1; echo "status $?" >> "$0"'
    status, _, complaint = rehearse(["-d", "H100-80GB,RTX3090"], "-c", command, said, *words, program="sh")
    assert status == 0, (status, complaint)
    with open(said, encoding="utf-8") as file:
        return file.read().splitlines()


def test_nvidia_smi_tells_of_the_pretended_cards():
    """In the form of its manual: fields in the order asked for, sizes in MiB, the user's own program unseen."""
    with tempfile.TemporaryDirectory() as folder:
        assert smi(folder, "--query-gpu=index,name,compute_cap", "--format=csv,noheader") == [
            "0, NVIDIA H100 80GB HBM3, 9.0", "1, NVIDIA GeForce RTX 3090, 8.6", "status 0"]
        assert smi(folder, "--query-gpu=memory.total", "--format=csv", "-i", "1") == [
            "memory.total [MiB]", f"{RTX3090_MIB} MiB", "status 0"]
        assert smi(folder, "--query-gpu=memory.total,fan.speed", "--format=csv,noheader,nounits", "--id=1") == [
            f"{RTX3090_MIB}, [N/A]", "status 0"]
        assert [line.split(" (")[0] for line in smi(folder, "-L")] == [
            "GPU 0: NVIDIA H100 80GB HBM3", "GPU 1: NVIDIA GeForce RTX 3090", "status 0"]
        assert "CUDA Version: 13.0" in smi(folder)[0]
        assert smi(folder, "--gpu-reset")[-1] == "status 2"


def test_a_program_that_only_asks_what_cards_there_are_is_told_apart():
    status, _, said = rehearse(["-d", "H100-80GB"], "-c", "nvidia-smi -L > /dev/null", program="sh")
    assert status == 3 and "asked CUDA or NVML what devices there are and took none" in said, (status, said)
    status, _, said = rehearse(["-d", "H100-80GB"], "-c", "nvidia-smi -L > /dev/null; exit 4", program="sh")
    assert status == 3 and "sh ended with status 4 before it took a device" in said, (status, said)


def test_an_engines_own_word_on_memory_is_told_with_what_would_fit():
    words = ("ValueError: To serve at least one request with the models's max seq len (131072), 16.00 GiB KV cache is "
             "needed, which is larger than the available KV cache memory (5.00 GiB). Based on the available memory, the "
             "estimated maximum model length is 40960.")
    status, document, said = rehearse(["-d", "24GiB"], "-c", f'{PROGRAM} must 1; echo "{words}"; exit 1', program="sh")
    assert status == 1, (status, said)
    assert "--max-model-len 40960" in json.dumps(document), json.dumps(document)[:3000]


def test_a_server_of_openais_interface_is_asked_once_it_is_ready_and_ended():
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
    with tempfile.NamedTemporaryFile() as asked:
        status, document, said = rehearse(["-d", "H100-80GB"], server, asked.name, program=sys.executable)
        assert status == 0, (status, said)
        lines = asked.read().decode().splitlines()
    # A short prompt, the longest that fits beside what is generated, and eight of half that at a time.
    assert lines[0] == "/v1/completions stand-in 512 True", lines
    assert lines[1] == "/v1/completions stand-in 2040 True", lines
    assert lines[2:] == ["/v1/completions stand-in 1021 True"] * 8, lines
    rehearsal = document["rehearsal"]
    assert rehearsal["ready"] and rehearsal["requests"] == 10 and not rehearsal["requests_refused"], rehearsal
    taken = rows(document)
    # The driver gives memory out in 2 MiB: of 1021 MiB it makes 1022.
    assert sum(taken.values()) - taken["context"] == GIB + (512 + 2040 + 8 * 1022) * MIB, taken
    # What the requests made it take is told as late, with the request that did.
    assert [late["bytes"] for late in rehearsal["late"]][:2] == [512 * MIB, 2040 * MIB], rehearsal["late"]
    assert rehearsal["late"][1]["step"] == "request: long prompt", rehearsal["late"]


def test_a_server_that_writes_a_token_for_its_health_is_waited_for():
    """SGLang's answers when it has written one, and has ports that are not for questions."""
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "sglang"))
        os.symlink(server, os.path.join(folder, "sglang", "launch_server.py"))
        asked = os.path.join(folder, "asked")
        status, _, said = rehearse(["-d", "H100-80GB", "--timeout", "30"], "-m", "sglang.launch_server", asked,
                                   program=sys.executable, env={"PYTHONPATH": folder})
        assert status == 0, (status, said)
        with open(asked, encoding="utf-8") as file:
            requests = file.read().split("\n")[:-1]
    assert [line.split()[2] for line in requests[:2]] == ["512", "2040"], requests
    assert not any("stranger" in line for line in requests), requests


def test_a_server_that_has_no_room_for_a_request_does_not_fit():
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
    status, document, _ = rehearse(["-d", "3GiB"], server, "/dev/null", program=sys.executable)
    assert status == 1 and document["rehearsal"]["outcome"] == "ran out", (status, document)
    assert "request" in json.dumps(document["reason"]) or "serve" in json.dumps(document), document


def test_a_folder_called_like_an_engine_is_no_engine():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "vllm", "program")
        os.mkdir(os.path.dirname(program))
        shutil.copy(PROGRAM, program)
        _, document, _ = rehearse(["-d", "24GiB"], "must", "20", "must", "6", program=program)
    # An engine would have said how many requests its cache holds; this one takes 26 GiB, and so would fit.
    fits = document["rehearsal"]["would_fit"]
    assert len(fits) == 1 and fits[0]["flags"].startswith("a device of 26.26 GiB"), fits


def test_temporary_files_that_a_program_leaves_go_with_the_rehearsal():
    with tempfile.TemporaryDirectory() as folder:
        status, _, said = rehearse(["-d", "24GiB"], "-c", f"mktemp >&2 && {PROGRAM} must 1", program="sh",
                                   env={"TMPDIR": folder})
        assert status == 0 and not os.listdir(folder), (status, said, os.listdir(folder))


def interrupted(number):
    """What is left of a rehearsal that is ended in the middle: status, document, processes, files."""
    with tempfile.TemporaryDirectory() as folder:
        # In a session of its own as workers may be, and one that does not heed to be told to end.
        words = f"trap '' TERM INT; {PROGRAM} must 1; setsid sleep 100 & mktemp; sleep 100"
        running = subprocess.Popen([MEMTALLY, "rehearse", "--quiet", "--json", "-d", "24GiB", "--", "sh", "-c", words],
                                   env=dict(os.environ, TMPDIR=folder), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        while not glob.glob(folder + "/memtally-rehearse-*/tmp/tmp.*"):
            assert running.poll() is None, running.returncode
            time.sleep(0.01)
        running.send_signal(number)
        said, _ = running.communicate(timeout=60)
        status, left = running.returncode, []
        for path in glob.glob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"MEMTALLY_REHEARSAL={folder}/".encode() in pathlib.Path(path).read_bytes():
                    left.append(path)
        return status, json.loads(said), left, os.listdir(folder)


def test_a_rehearsal_that_is_interrupted_tells_what_it_came_to_and_leaves_nothing():
    for number in (signal.SIGINT, signal.SIGTERM):
        status, document, processes, files = interrupted(number)
        assert status == 128 + number and not processes and not files, (number, status, processes, files)
        assert (document["verdict"], document["rehearsal"]["outcome"]) == ("UNKNOWN", "interrupted"), document
        assert "was interrupted after" in document["reason"], document["reason"]
        # 1 GiB and the context of a card of 24 GiB, as of a program that came to its end.
        assert sum(rows(document).values()) > GIB, rows(document)


SHARES = """
import multiprocessing.shared_memory, os, subprocess, sys, time
shared = multiprocessing.shared_memory.SharedMemory(sys.argv[2], create=True, size=4096)
subprocess.run([sys.argv[1], "must", "1"], check=True)
open(os.environ["TMPDIR"] + "/there", "w").close()
time.sleep(100)
"""


def shared_and_ended(number, *options):
    """Whether a program made shared memory before its rehearsal was ended, by a signal or by its time."""
    name = f"memtally-test-{os.getpid()}-{number or 0}"
    with tempfile.TemporaryDirectory() as folder:
        running = subprocess.Popen([MEMTALLY, "rehearse", "--quiet", "-d", "24GiB", *options, "--", sys.executable, "-c",
                                    SHARES, PROGRAM, name], env=dict(os.environ, TMPDIR=folder), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        while not glob.glob(folder + "/memtally-rehearse-*/tmp/there"):
            if running.poll() is not None:
                assert options, (number, running.returncode)
                return False
            time.sleep(0.01)
        assert options or os.path.exists("/dev/shm/" + name)
        if number:
            running.send_signal(number)
        status = running.wait(timeout=120)
        # Its tracker removes it, a process that heeds no signal and ends when the others have. One that is out of time may
        # have settled, which is an answer.
        assert (status or not number) and not os.path.exists("/dev/shm/" + name), (number, status)
    return True


def test_shared_memory_of_python_is_cleaned_up_whether_interrupted_or_timed_out():
    for number in (signal.SIGINT, signal.SIGTERM):
        shared_and_ended(number)
    # A busy machine may not let it come so far in the first time that it is given.
    assert any(shared_and_ended(None, "--timeout", seconds) for seconds in ("2", "8", "32", "128"))


if __name__ == "__main__":
    tap.main(globals())
