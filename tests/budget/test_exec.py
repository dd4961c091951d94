#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally exec as a user sees it: room, caps, devices, what is left behind. Devices of this machine
are those of nvml.c, which are not there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]
FAKE_NVML = os.environ["FAKE_NVML"]
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.mkdtemp(prefix="memtally-exec-")
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
LARGE = "bytearray(b'x') * (300 << 20)"


def environment(real_devices=False, **more):
    made = {**os.environ, "XDG_STATE_HOME": FOLDER, **more}
    made.pop("CUDA_VISIBLE_DEVICES", None)
    made.update(more)
    if real_devices:
        made["LD_LIBRARY_PATH"] = FAKE_NVML
    return made


def run(*arguments, real_devices=False, **more):
    return subprocess.run(
        [MEMTALLY, "exec", *arguments],
        env=environment(real_devices, **more),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def python(text):
    return ["--", sys.executable, "-c", text]


def has_groups():
    checks = json.loads(
        subprocess.run([MEMTALLY, "doctor", "--json"], stdout=subprocess.PIPE, check=False).stdout
    )["checks"]
    (cap,) = [check for check in checks if check["name"] == "host_cap"]
    return cap["state"] == "ok"


class Holder:
    """A program that holds what it needs until it is let go. It holds it once it says so."""

    def __init__(self, *arguments, real_devices=False, container=()):
        self.process = subprocess.Popen(
            [*container, MEMTALLY, "exec", *arguments, "--", "sh", "-c", "echo holds; read line"],
            env=environment(real_devices),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "holds\n"

    def let_go(self):
        self.process.communicate("\n")
        assert self.process.returncode == 0


def test_the_program_has_its_streams_and_its_status():
    done = run("--need", "host=1GiB", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n"), done
    assert "err" in done.stderr.splitlines(), done  # what exec says of its hold may come after it
    killed = run("--need", "host=1GiB", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == 128 + signal.SIGKILL


def test_what_one_holds_another_has_not():
    pretended = ["--on", "24GiB", "--need", "gpu0=16GiB"]
    holder = Holder(*pretended)
    refused = run(*pretended, "--", "true")
    assert refused.returncode == 124, refused
    assert f"process {holder.process.pid} holds 16.00 GiB of gpu0" in refused.stderr, refused
    assert run("--on", "24GiB", "--need", "gpu0=8GiB", "--", "true").returncode == 0
    waiting = subprocess.Popen(
        [MEMTALLY, "exec", "--wait", "10m", *pretended, "--", "true"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "waits for room" in waiting.stderr.readline()
    holder.let_go()
    assert waiting.communicate(timeout=120) and waiting.returncode == 0


def test_a_killed_memtally_holds_nothing_any_more():
    pretended = ["--on", "24GiB", "--need", "gpu0=16GiB"]
    holder = Holder(*pretended)
    holder.process.kill()
    holder.process.communicate()
    assert run(*pretended, "--", "true").returncode == 0


def test_another_pid_namespace_sees_the_holder_and_its_death():
    probe = ["unshare", "-pf", "--mount-proc", "true"]
    if not shutil.which("unshare") or subprocess.run(probe, check=False, capture_output=True).returncode != 0:
        raise tap.Skip("pid namespaces cannot be made here")
    pretended = ["--on", "24GiB", "--need", "gpu0=16GiB"]
    within = ["unshare", "-pf", "--mount-proc", MEMTALLY, "exec", *pretended, "--", "true"]
    holder = Holder(*pretended)
    assert subprocess.run(within, env=environment(), capture_output=True, check=False).returncode == 124
    holder.process.kill()
    holder.process.communicate()
    assert subprocess.run(within, env=environment(), capture_output=True, check=False).returncode == 0


def container(name, shared):
    """A budget's file in a container of its own, which sees a file of the machine there, and what starts a program in it."""
    file = os.path.join(FOLDER, name)
    with open(file, "wb"):
        pass
    script = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
    return file, ["unshare", "-mpiuf", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", shared, file]


def test_two_containers_share_a_device_through_a_mounted_file():
    shared = os.path.join(FOLDER, "shared")
    first, in_first = container("first", shared)
    second, in_second = container("second", shared)
    needs = ["--on", "24GiB", "--need", "gpu0=16GiB"]
    assert run("--budget", shared, *needs, "--", "true").returncode == 0  # makes the file
    if subprocess.run([*in_first, "true"], check=False, capture_output=True).returncode != 0:
        raise tap.Skip("namespaces cannot be made here")
    asks = [*in_second, MEMTALLY, "exec", "--budget", second, *needs, "--", "test", "-s", second]
    assert subprocess.run(asks, env=environment(), capture_output=True, check=False).returncode == 0
    holder = Holder("--budget", first, *needs, container=in_first)
    assert os.path.getsize(first) == os.path.getsize(second) == 0  # of the machine: neither container's file is there
    assert subprocess.run(asks, env=environment(), capture_output=True, check=False).returncode == 124
    assert run("--budget", shared, *needs, "--", "true").returncode == 124
    holder.process.kill()
    holder.process.communicate()
    assert subprocess.run(asks, env=environment(), capture_output=True, check=False).returncode == 0


def test_all_processes_together_are_held_by_a_group():
    if not has_groups():
        raise tap.Skip("no control group can be made here")
    done = run("--need", "host=100MiB", "--cap", "group", *python(f"print(len({LARGE}))"))
    assert done.returncode == 128 + signal.SIGKILL, done
    assert "went past what it needs" in done.stderr, done


def test_without_a_group_each_process_is_refused_by_its_limit():
    done = run("--need", "host=200MiB", "--cap", "rlimit", *python(f"print(len({LARGE}))"))
    assert done.returncode == 1 and "MemoryError" in done.stderr, done
    assert run("--need", "host=900MiB", "--cap", "rlimit", *python(f"print(len({LARGE}))")).returncode == 0


def test_who_is_watched_is_killed_past_its_need():
    done = run("--need", "host=100MiB", "--cap", "watch", *python(f"x = {LARGE}\nimport signal; signal.pause()"))
    assert done.returncode == 128 + signal.SIGKILL, done
    assert "went past what it needs" in done.stderr, done


def test_a_pretended_device_refuses_past_the_need():
    takes = ["--", sys.executable, f"{HERE}/takes.py", "3000", "2000"]
    done = run("--on", "2x24GiB", "--need", "gpu=4GiB", *takes)
    assert done.stdout == f"devices 1\n3000 0\n2000 {OUT_OF_MEMORY}\n", done
    assert "a device refused memory past what CMD needs, 1 time" in done.stderr, done
    assert "left behind" not in done.stderr, done
    enough = run("--on", "2x24GiB", "--need", "gpu=6GiB", *takes)
    assert enough.stdout == "devices 1\n3000 0\n2000 0\n", enough


def visible(*arguments, **more):
    done = run("--cap", "none", *arguments, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", real_devices=True, **more)
    return done.stdout.strip() if done.returncode == 0 else done


def test_any_device_with_room_is_chosen_and_made_visible():
    assert visible("--need", "gpu=4GiB") == "0"
    assert visible("--need", "gpu=4GiB", NVML_USED="5000000000,0") == "1"
    assert visible("--need", "gpu=4GiB,gpu=1GiB") == "0,1"
    assert visible("--need", "gpu=4GiB", CUDA_VISIBLE_DEVICES="1") == "1"
    assert visible("--need", "gpu=4GiB", CUDA_VISIBLE_DEVICES="GPU-b") == "1"
    assert visible("--need", "gpu0=4GiB", CUDA_VISIBLE_DEVICES="GPU-b").returncode == 125
    holder = Holder("--cap", "none", "--need", "gpu0=6GiB", real_devices=True)
    assert visible("--need", "gpu=4GiB") == "1"
    assert visible("--need", "gpu=4GiB", "--keep", "gpu1=5GiB").returncode == 124
    # The holder has 6 of 8 GiB and its overhead, and another GiB comes with one too.
    assert visible("--need", "gpu=1GiB", "--overhead", "gpu=512MiB") == "0"
    assert visible("--need", "gpu=1GiB", "--overhead", "gpu=513MiB") == "1"
    holder.let_go()


def within(need, *words):
    """Under memtally exec twice: for the inner one the pretended device is a real one, which NVML tells."""
    inner = ["sh", "-c", 'exec "$0" "$@"', MEMTALLY, "exec", "--need", need, "--", *words]
    return run("--on", "24GiB", "--need", "gpu0=20GiB", "--", *inner)


def test_the_recorder_refuses_past_the_need_of_a_real_device():
    done = within("gpu0=4GiB", sys.executable, f"{HERE}/takes.py", "3000", "2000", "500")
    assert done.stdout == f"devices 1\n3000 0\n2000 {OUT_OF_MEMORY}\n500 0\n", done
    assert "a device refused memory past what CMD needs, 1 time" in done.stderr, done
    enough = within("gpu0=6GiB", sys.executable, f"{HERE}/takes.py", "3000", "2000", "500")
    assert enough.stdout == "devices 1\n3000 0\n2000 0\n500 0\n", enough
    assert "refused" not in enough.stderr, enough


def test_what_is_refused_is_what_the_program_counts_itself():
    done = within("gpu0=4GiB", sys.executable, f"{HERE}/capped.py", "4096")
    assert (done.returncode, done.stdout) == (0, "as it must be\n"), done


def test_a_recorded_program_is_refused_too_and_the_recording_says_so():
    folder = f"{FOLDER}/refused"
    words = [MEMTALLY, "run", "--quiet", "-o", folder, "--", sys.executable, f"{HERE}/takes.py", "3000", "2000"]
    done = within("gpu0=4GiB", *words)
    assert done.stdout == f"devices 1\n3000 0\n2000 {OUT_OF_MEMORY}\n", done
    report = subprocess.run([MEMTALLY, "report", folder], capture_output=True, text=True, check=True)
    assert "refused" in report.stdout, report


def test_a_program_that_the_recorder_cannot_enter_is_refused_with_what_to_do():
    static = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    done = run("--need", "gpu0=4GiB", "--", static or "true", "--version", real_devices=True)
    checks = json.loads(
        subprocess.run(
            [MEMTALLY, "doctor", "--json"], env=environment(True), stdout=subprocess.PIPE, check=False
        ).stdout
    )["checks"]
    (cap,) = [check for check in checks if check["name"] == "device_cap"]
    assert cap["state"] == "limited" and "--cap watch" in cap["advice"], cap
    if not static or b"/ld-linux" in open(static, "rb").read(4096):
        raise tap.Skip("ldconfig is not linked statically here")
    assert done.returncode == 125 and "is linked statically" in done.stderr and "--cap watch" in done.stderr, done


def test_a_real_device_is_watched():
    user = f"{FOLDER}/user"
    tell = "echo $$ 5000000000 > $NVML_USER.new; mv $NVML_USER.new $NVML_USER; exec sleep 600"
    done = run("--need", "gpu0=4GiB", "--cap", "watch", "--", "sh", "-c", tell, real_devices=True, NVML_USER=user)
    assert done.returncode == 128 + signal.SIGKILL, done
    assert "went past what it needs" in done.stderr, done


def test_what_is_left_behind_is_told_by_place():
    ready = f"{FOLDER}/ready"
    os.mkfifo(ready)
    left = f"import signal\nx = bytearray(b'x') * (200 << 20)\nopen({ready!r}, 'w').write('r')\nsignal.pause()"
    script = f'"$0" -c "$1" > /dev/null 2>&1 & read line < {ready}; echo $! 500000000 > $NVML_USER; echo $!'
    done = run(
        "--need", "host=1GiB,gpu0=4GiB", "--cap", "watch", "--", "sh", "-c", script, sys.executable, left,
        real_devices=True, NVML_USER=f"{FOLDER}/left",
    )  # fmt: skip
    pid = int(done.stdout)
    os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0
    assert f"MiB of host left behind in 1 process that lives on: {pid} (" in done.stderr, done
    assert "476.84 MiB of gpu0 left behind" in done.stderr, done  # 500,000,000 / 2^20


def test_shared_memory_that_nobody_maps_is_told():
    if not has_groups():
        raise tap.Skip("no control group can be made here")
    name = f"/dev/shm/memtally-exec-{os.getpid()}"
    try:
        done = run("--need", "host=1GiB", *python(f"open({name!r}, 'wb').write(bytes(150 << 20))"))
    finally:
        os.unlink(name)
    assert "150.00 MiB of host left behind in shared memory" in done.stderr, done


def test_ctests_file_has_a_slot_for_each_256_mib():
    spec = f"{FOLDER}/spec.json"
    run("--on", "24GiB", "--need", "host=1GiB,gpu0=4GiB", "--resource-spec", spec, "--", "true")
    with open(spec, encoding="utf-8") as file:
        document = json.load(file)
    assert document["version"] == {"major": 1, "minor": 0}
    assert document["local"] == [{"host": [{"id": "0", "slots": 4}], "gpus": [{"id": "0", "slots": 16}]}]


def test_ctest_reads_the_file():
    if not shutil.which("ctest"):
        raise tap.Skip("needs ctest")
    folder, spec = f"{FOLDER}/ctest", f"{FOLDER}/ctest.json"
    os.mkdir(folder)
    with open(f"{folder}/CTestTestfile.cmake", "w", encoding="utf-8") as file:
        file.write(
            'add_test(room "sh" "-c" "echo slots $CTEST_RESOURCE_GROUP_0_GPUS $CTEST_RESOURCE_GROUP_0_HOST")\n'
            'set_tests_properties(room PROPERTIES RESOURCE_GROUPS "gpus:16,host:4")\n'
        )
    ctest = ["ctest", "--test-dir", folder, "--resource-spec-file", spec, "-V"]
    done = run("--on", "24GiB", "--need", "host=1GiB,gpu0=4GiB", "--resource-spec", spec, "--", *ctest)
    assert "slots id:0,slots:16 id:0,slots:4" in done.stdout, done


def test_signals_are_passed_on():
    program = "trap 'echo ends; exit 5' TERM; echo holds; while :; do read line; done"
    process = subprocess.Popen(
        [MEMTALLY, "exec", "--need", "host=1GiB", "--", "sh", "-c", program],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "holds\n"
    process.terminate()
    assert process.stdout.readline() == "ends\n"
    process.stdin.close()
    assert process.wait() == 5


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
