# SPDX-License-Identifier: MIT
"""A Podman of the tests' own: its images, its containers and its socket lie in one folder."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time

import tap

PATIENCE_S = 120
CONFIGURATION = """[containers]
default_ulimits=["nofile=1024:1024","nproc=1024:1024"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
"""


def patiently(what, holds):
    """Waits until holds() is true; a machine that is busy may take its time."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def libraries_of(program):
    """The libraries that a program is linked to, and its loader."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for word in said.split() if word.startswith("/")]


def image_of(files):
    """A tar of a root folder: {path: bytes or a path of this machine}."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for folder in "proc", "sys", "dev", "tmp", "etc", "run":
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        for path, source in files.items():
            if isinstance(source, str):
                with open(source, "rb") as file:
                    source = file.read()
            made = tarfile.TarInfo(path.lstrip("/"))
            made.mode, made.size = 0o755, len(source)
            tar.addfile(made, io.BytesIO(source))
    return whole.getvalue()


class Podman:
    def __init__(self):
        if not shutil.which("podman") or not shutil.which("runc"):
            raise tap.Skip("Podman and runc are not installed")
        if os.geteuid() != 0:
            raise tap.Skip("Podman is tried as root only, and this is another user")
        self.folder = tempfile.mkdtemp(prefix="memtally-podman-")
        self.socket = f"{self.folder}/socket"
        self.environment = {**os.environ, "CONTAINERS_CONF": f"{self.folder}/conf", "TMPDIR": self.folder}
        with open(f"{self.folder}/conf", "w", encoding="ascii") as file:
            file.write(CONFIGURATION)
        self.words = ["podman", "--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run", "--storage-driver", "vfs",
                      "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        self.containers = []
        self.service = None

    def call(self, *words, check=True, **settings):
        # Where memory runs out conmon leaves a file in the folder that it stands in.
        done = subprocess.run([*self.words, *words], capture_output=True, env=self.environment, cwd=self.folder, check=False,
                              timeout=PATIENCE_S, **settings)
        assert not check or done.returncode == 0, done
        return done

    def build(self, name, files):
        done = self.call("import", "-", f"localhost/{name}:1", check=False, input=image_of(files))
        if done.returncode:
            raise tap.Skip("Podman cannot make an image here: " + done.stderr.decode(errors="replace").strip().splitlines()[-1])

    def start_service(self):
        self.service = subprocess.Popen([*self.words, "system", "service", "--time=0", f"unix://{self.socket}"], env=self.environment, cwd=self.folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        patiently("Podman's socket does not come", lambda: os.path.exists(self.socket))

    def check(self, image, *command):
        """Raises Skip with the machine's reason where no container can run."""
        done = self.call("run", "--rm", "--network", "host", f"localhost/{image}:1", *command, check=False)
        if done.returncode:
            raise tap.Skip("Podman cannot run a container here: " + done.stderr.decode(errors="replace").strip().splitlines()[-1])

    def run(self, name, image, *command, options=("--network", "host"), says="ready"):
        """Starts a container, and waits until its program says that it is ready."""
        self.call("run", "-d", "--name", name, *options, f"localhost/{image}:1", *command)
        self.containers.append(name)
        patiently(f"{name} does not become ready", lambda: says in self.logs(name))

    def logs(self, name):
        done = self.call("logs", name)
        return (done.stdout + done.stderr).decode(errors="replace")

    def inspect(self, name):
        return json.loads(self.call("inspect", name).stdout)[0]

    def pid(self, name):
        return self.inspect(name)["State"]["Pid"]

    def processes(self, name):
        """The processes that count themselves as the container's first one does."""
        wanted = os.readlink(f"/proc/{self.pid(name)}/ns/pid")
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == wanted:
                    found.add(int(pid))
        return found

    def state(self, name):
        """All that a profile might change: files with their contents and times, processes, the first one's environment."""
        pid = self.pid(name)
        root = f"/proc/{pid}/root/."
        files = {}
        for folder, folders, names in os.walk(root):
            if folder == root:
                folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
            for path in [folder, *(os.path.join(folder, one) for one in names)]:
                status = os.lstat(path)
                digest = ""
                if stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        digest = hashlib.sha256(file.read()).hexdigest()
                files[path[len(root):]] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, digest)
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        inspected = self.inspect(name)
        return files, self.processes(name), environment, inspected["Config"]["Env"], inspected["Mounts"]

    def end_monitors(self):
        """Podman's monitors of ended programs stay five minutes, and would then make the folder again."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if words[0].endswith(b"/conmon") and any(word.startswith(self.folder.encode()) for word in words):
                    os.kill(int(pid), signal.SIGKILL)

    def close(self):
        if self.containers:
            self.call("rm", "-f", "-t", "0", *self.containers, check=False)
        if self.service:
            self.service.terminate()
            self.service.wait()
        self.end_monitors()
        shutil.rmtree(self.folder, ignore_errors=True)
