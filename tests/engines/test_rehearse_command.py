#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally rehearse -- llama-server …` with a real one: it fits, it runs out, it copes, it fails by itself."""

import json
import os
import subprocess
import tempfile
import time

import engine
import memtally
import tap

SCRATCH = tempfile.TemporaryDirectory()
MIB = memtally.MIB
GIB = 1024 * MIB


def in_granules(size):
    """CUDA gives memory out in pieces of 2 MiB."""
    return -(-size // (2 << 20)) * (2 << 20)


def model(shape, kind="q4_0"):
    path = os.path.join(SCRATCH.name, f"{shape}-{kind}.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", shape, path, "--sparse", "--type", kind)
    return path


def rehearse(options, *flags, status):
    """What the rehearsal of a server writes as JSON."""
    done = memtally.run("rehearse", *options, "--requests", "0", "--no-suggest", "--json", "--",
                        engine.llama_cpp("llama-server"), "--no-warmup", *flags)
    assert done.returncode == status, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def row(document, place, category):
    (found,) = [one for one in document["places"] if one["place"] == place]
    (found,) = [one for one in found["rows"] if one["category"] == category]
    return found


def test_the_cache_is_what_arithmetic_says():
    """Llama-3.1-8B: 32 layers, 8 heads of keys and of values, each 128 wide, 2 bytes, 8192 tokens: 1 GiB."""
    said = rehearse(["--device", "24GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "99", status=0)
    cache = row(said, "gpu:0", "kv_cache")
    assert cache["allocated_bytes"] == 32 * 2 * 8 * 128 * 2 * 8192 == GIB, cache
    assert cache["provenance"] == "exact", cache
    assert said["verdict"] == "FITS" and said["rehearsal"]["outcome"] == "ran", said["verdict"]
    assert said["rehearsal"]["ready"], said["rehearsal"]


def test_two_devices_share_what_one_would_hold():
    said = rehearse(["--device", "2x24GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "99", status=0)
    shares = [row(said, f"gpu:{i}", "kv_cache")["allocated_bytes"] for i in (0, 1)]
    assert sum(shares) == GIB and min(shares) > 0, shares


def test_a_device_without_room_says_for_what_and_by_how_much():
    """The weights alone, 4.5 bits for each of 8 billion, are more than 3 GiB."""
    said = rehearse(["--device", "3GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "99", status=1)
    refused = said["rehearsal"]["refused"]
    assert said["verdict"] == "CANNOT" and said["rehearsal"]["outcome"] == "ran out", said["rehearsal"]
    assert refused["place"] == "gpu:0" and refused["asked_bytes"] > 3 * GIB, refused
    assert refused["missing_bytes"] == in_granules(refused["asked_bytes"]) - refused["free_bytes"] > 0, refused
    assert refused["free_bytes"] <= 3 * GIB, refused
    assert said["rehearsal"]["exit_status"] == 1, said["rehearsal"]


def test_a_server_that_may_fits_itself_to_the_device():
    """Without -ngl it leaves on the host what has no room: nothing is refused."""
    said = rehearse(["--device", "4GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", status=1)
    assert said["rehearsal"]["outcome"] == "ran" and said["verdict"] == "SPILLS", said["rehearsal"]
    assert "of weights and" in said["reason"] and "of cache would go to devices" in said["reason"], said["reason"]
    assert row(said, "host", "weights")["allocated_bytes"] > GIB // 4, said["places"][0]


def test_what_the_user_leaves_on_the_host_does_not_spill():
    """The same layers, asked for; the embedding alone lies there with all layers on a device."""
    few = rehearse(["--device", "4GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "8", status=0)
    assert few["verdict"] == "FITS" and row(few, "host", "weights")["allocated_bytes"] > GIB, few["places"][0]
    whole = rehearse(["--device", "24GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", status=0)
    assert whole["verdict"] == "FITS" and row(whole, "host", "weights")["allocated_bytes"] < GIB, whole["places"][0]


def test_the_engines_margin_is_named_where_it_is_the_reason():
    """4 GiB of weights, 1 of cache and the context's own 0.10 are less than 6 GiB, but not with 1 GiB kept free."""
    said = rehearse(["--device", "6GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", status=1)
    assert said["verdict"] == "SPILLS" and "the engine keeps 1.00 GiB of each device free (-fitt)" in said["reason"], said["reason"]
    none = rehearse(["--device", "6GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-fitt", "0", status=0)
    assert none["verdict"] in ("FITS", "TIGHT"), none["reason"]


def test_a_failure_for_no_memory_is_the_programs_own():
    path = os.path.join(SCRATCH.name, "no-model.gguf")
    with open(path, "wb") as file:
        file.write(b"this is no model")
    said = rehearse(["--device", "8GiB"], "-m", path, status=1)
    assert said["rehearsal"]["outcome"] == "crashed" and said["rehearsal"]["refused"] is None, said["rehearsal"]
    assert "no-model.gguf" in said["rehearsal"]["last_words"], said["rehearsal"]["last_words"]


def test_the_version_is_the_engines_own():
    said = rehearse(["--device", "24GiB"], "-m", model("qwen3-0.6b", "q8_0"), "-c", "4096", status=0)
    told = subprocess.run([engine.llama_cpp("llama-server"), "--version"], capture_output=True, text=True, check=True)
    assert said["engine"]["version"].removeprefix("b") in told.stdout + told.stderr, (said["engine"], told)


def test_without_devices_all_is_on_the_host():
    """Qwen3-0.6B: 28 layers, 8 heads, 128 wide, 2 bytes, 4096 tokens: 448 MiB of cache, on a machine without a GPU."""
    said = rehearse([], "-m", model("qwen3-0.6b", "q8_0"), "-c", "4096", "-ngl", "99", status=0)
    assert [one["place"] for one in said["places"]] == ["host"], said["places"]
    assert row(said, "host", "kv_cache")["allocated_bytes"] == 28 * 2 * 8 * 128 * 2 * 4096, said["places"]
    assert said["rehearsal"]["device_kind"] is None and said["rehearsal"]["ready"], said["rehearsal"]


def test_what_is_reserved_is_not_there():
    """The same server fits in 6 GiB, and not in what others leave of it."""
    flags = ["-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "99"]
    rehearse(["--device", "6GiB"], *flags, status=0)
    said = rehearse(["--device", "6GiB", "--reserved", "3GiB"], *flags, status=1)
    assert said["rehearsal"]["refused"]["free_bytes"] <= 3 * GIB, said["rehearsal"]["refused"]


def test_the_verdict_is_of_what_is_reserved_not_of_a_rule():
    """604 MiB of weights, 448 of cache, 30 for computing and 50 reserved fit into 1150; with the 98 that a context
    takes as a rule on a small card they would not, and on a device that holds these back the server has to say so itself."""
    flags = ["-m", model("qwen3-0.6b", "q8_0"), "-c", "4096", "-ngl", "99"]
    said = rehearse(["--device", "1150MiB", "--reserved", "50MiB"], *flags, status=0)
    assert said["verdict"] == "FITS" and row(said, "gpu:0", "context")["allocated_bytes"] == 50 * MIB, said["verdict"]
    said = rehearse(["--device", "1150MiB"], *flags, "-fit", "off", status=1)
    assert said["verdict"] == "CANNOT" and said["rehearsal"]["refused"]["place"] == "gpu:0", said["verdict"]


def test_a_program_on_node_llama_cpp_finds_the_devices_by_itself():
    """The package first tries its library in a process of its own, which must find none: the library is the one for
    processors alone. TinyLlama 1.1B, 22 layers, 4 heads of keys and of values, each 64 wide, 2 bytes, 2048 tokens."""
    script = os.path.join(SCRATCH.name, "program.mjs")
    package = os.path.join(engine.node_llama_cpp(), "node_modules", "node-llama-cpp", "dist", "index.js")
    with open(script, "w") as file:
        file.write(f"""import {{getLlama}} from {json.dumps(package)};
const llama = await getLlama({{build: "never"}});
const model = await llama.loadModel({{modelPath: process.argv[2], gpuLayers: "max"}});
await model.createContext({{contextSize: 2048}});
process.exit(0);
""")
    done = memtally.run("rehearse", "--device", "16GiB", "--json", "--", engine.node(), script, model("tinyllama-1.1b"))
    assert done.returncode == 0, (done.stdout, done.stderr)
    cache = row(json.loads(done.stdout), "gpu:0", "kv_cache")
    assert cache["allocated_bytes"] == 22 * 2 * 4 * 64 * 2 * 2048, cache


def test_devices_are_called_what_they_are_said_to_be():
    """llama-bench writes the names that the devices give it."""
    folder = os.path.join(SCRATCH.name, "named")
    done = memtally.run("rehearse", "--device", "24GiB,16GiB", "--device-name", "RTX 3090,RTX 4080", "--folder", folder,
                        "--", engine.llama_cpp("llama-bench"), "-m", model("qwen3-0.6b", "q8_0"), "-p", "16", "-n", "0",
                        "-r", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "output"), encoding="utf-8") as file:
        (said,) = json.load(file)
    assert said["gpu_info"] == "RTX 3090, RTX 4080", said


def test_one_name_is_of_all_devices_and_too_many_are_refused():
    listed = ["--", engine.llama_cpp("llama-server"), "--list-devices"]
    folder = os.path.join(SCRATCH.name, "alike")
    memtally.run("rehearse", "--device", "2x24GiB", "--device-name", "A100", "--folder", folder, *listed)
    with open(os.path.join(folder, "output"), encoding="utf-8") as file:
        assert file.read().count("A100 (24576 MiB") == 2
    assert memtally.run("rehearse", "--device", "24GiB", "--device-name", "a,b", *listed).returncode == 2


def test_a_device_that_refused_shows_the_context_that_was_held_back():
    """What is free and what the table adds come to the device: 2 GiB, without a buffer of the engine's own."""
    said = rehearse(["--device", "2GiB"], "-m", model("llama-3.1-8b"), "-c", "8192", "-ngl", "99", "-fit", "off",
                    status=1)
    context = row(said, "gpu:0", "context")["allocated_bytes"]
    assert context + said["rehearsal"]["refused"]["free_bytes"] == 2 * GIB, (context, said["rehearsal"]["refused"])
    assert "(while it loaded the model)" in said["reason"], said["reason"]


def test_a_cache_without_room_is_refused_while_the_context_is_made():
    said = rehearse(["--device", "6GiB"], "-m", model("llama-3.1-8b"), "-c", "65536", "-ngl", "99", "-fit", "off",
                    status=1)
    assert "(while it made the context)" in said["reason"], said["reason"]


def test_every_program_holds_something_that_no_engine_counts():
    """The driver's libraries and the heap's small blocks: assumed, with a band, whatever the program."""
    for program in (["llama-bench", "-p", "16", "-n", "0", "-r", "1"], ["llama-fit-params"]):
        done = memtally.run("rehearse", "--device", "24GiB", "--json", "--", engine.llama_cpp(program[0]), *program[1:],
                            "-m", model("qwen3-0.6b", "q8_0"))
        assert done.returncode == 0, done.stderr
        runtime = row(json.loads(done.stdout), "host", "runtime")
        assert runtime["provenance"] == "assumed", (program, runtime)
        assert runtime["low_bytes"] < runtime["allocated_bytes"] < runtime["high_bytes"], (program, runtime)


def test_names_of_buffers_are_legible_in_80_columns():
    """What all rows would say is said once: there is room for most of a name of the model."""
    done = memtally.run("rehearse", "--device", "16GiB", "--device-kind", "rocm", "--requests", "0", "--",
                        engine.llama_cpp("llama-server"), "-m", model("qwen3-0.6b", "q8_0"), "-c", "4096", "-ngl", "99",
                        env={**os.environ, "COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80, lines
    (buffer,) = [line for line in lines if line.startswith("  ROCm_Host: comp")]
    name = buffer.split("   ")[0].strip()
    assert len(name) >= 30, buffer
    assert not any("how known  rule" in line for line in lines), lines
    assert "exact figures are its own" in " ".join(done.stdout.split()), lines


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def find_server(word):
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                words = file.read().split("\0")
        except OSError:
            continue
        if word in words and words[0].endswith("llama-server"):
            return int(name)
    return None


def files_of(pid):
    for one in os.scandir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(one.path)
        except FileNotFoundError:
            continue


def until(happens, seconds=300):
    end = time.monotonic() + seconds
    while not (found := happens()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_what_a_shell_started_ends_with_a_memtally_that_is_killed():
    word = f"alias-{os.getpid()}"
    server = f"{engine.llama_cpp('llama-server')} -m {model('qwen3-0.6b', 'q8_0')} --alias {word}; true"
    with tempfile.TemporaryDirectory() as temporary:  # what is killed leaves its folder
        rehearsal = subprocess.Popen([memtally.program(), "rehearse", "--device", "8GiB", "--", "sh", "-c", server],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=temporary))
        pid = until(lambda: find_server(word))
        assert pid, "no server was started"
        until(lambda: "account.alive" in " ".join(files_of(pid)))
        rehearsal.kill()
        rehearsal.wait()
        assert until(lambda: not is_alive(pid)), "the server outlived memtally"


if __name__ == "__main__":
    tap.main(globals())
