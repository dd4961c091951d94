# SPDX-License-Identifier: MIT
"""Engines of containers of the tests' own: images, containers and sockets lie in one folder."""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time

import tap

PATIENCE_S = 120
PODMAN_SETTINGS = """[containers]
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
        above = {str(parent) for path in files for parent in pathlib.PurePosixPath(path.lstrip("/")).parents} - {"."}
        for folder in [".", "proc", "sys", "dev", "tmp", "etc", "run", *sorted(above)]:
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


def same_namespace(pid):
    """The processes that count themselves as this one does: those of its container."""
    wanted = os.readlink(f"/proc/{pid}/ns/pid")
    found = set()
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{other}/ns/pid") == wanted:
                found.add(int(other))
    return found


def files_of(root):
    """All files of a root folder: modes, owners, times and contents."""
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
    return files


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def last_line(output):
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"


class Engine:
    """What Podman and Docker have in common: both take the same words."""

    name = ""
    programs = ()

    def __init__(self):
        missing = [program for program in self.programs if not shutil.which(program)]
        if missing:
            raise tap.Skip(f"{self.name} is not tried: no program {missing[0]} is installed")
        if os.geteuid() != 0:
            raise tap.Skip(f"{self.name} is tried as root only, and this is another user")
        self.folder = tempfile.mkdtemp(prefix="memtally-")
        self.socket = f"{self.folder}/socket"
        self.environment = {**os.environ, "TMPDIR": self.folder}
        self.words = []
        self.containers = []
        self.service = None

    def call(self, *words, check=True, timeout=PATIENCE_S, **settings):
        # Where memory runs out conmon leaves a file in the folder that it stands in.
        done = subprocess.run([*self.words, *words], capture_output=True, env=self.environment, cwd=self.folder, check=False,
                              timeout=timeout, **settings)
        assert not check or done.returncode == 0, done
        return done

    def start_service(self):
        """Starts what answers at the socket."""

    def build(self, name, files):
        done = self.call("import", "-", f"localhost/{name}:1", check=False, input=image_of(files))
        if done.returncode:
            raise tap.Skip(f"{self.name} cannot make an image here: {last_line(done.stderr)}")

    def check(self, image, *command):
        """Raises Skip with the machine's reason where no container can run."""
        done = self.call("run", "--rm", "--network", "host", f"localhost/{image}:1", *command, check=False)
        if done.returncode:
            raise tap.Skip(f"{self.name} cannot run a container here: {last_line(done.stderr)}")

    def run(self, name, image, *command, options=("--network", "host"), says="ready"):
        """Starts a container, and waits until its program says that it is ready."""
        self.call("run", "-d", "--name", name, *options, f"localhost/{image}:1", *command)
        self.containers.append(name)
        patiently(f"{name} does not become ready", lambda: says in self.logs(name))

    def remove(self, *names):
        self.call("rm", "-f", *names, check=False)

    def logs(self, name):
        done = self.call("logs", name)
        return (done.stdout + done.stderr).decode(errors="replace")

    def inspect(self, name):
        return json.loads(self.call("inspect", name).stdout)[0]

    def pid(self, name):
        return self.inspect(name)["State"]["Pid"]

    def processes(self, name):
        return same_namespace(self.pid(name))

    def files(self, name):
        return files_of(f"/proc/{self.pid(name)}/root/.")

    def state(self, name):
        """All that a profile might change: files with their contents and times, processes, the first one's environment."""
        inspected = self.inspect(name)
        return self.files(name), self.processes(name), environment_of(self.pid(name)), inspected["Config"]["Env"], inspected["Mounts"]

    def export(self, name):
        """Podman 4.3 may wait for ever while it cleans up behind a container that has just ended."""
        for _ in range(PATIENCE_S // 10):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.call("export", name, timeout=10).stdout
        raise AssertionError(f"{name} cannot be exported")

    def exported(self, name):
        """The files of a container, which may have ended, by the engine's own word; the engine's own are left out."""
        files = {}
        with tarfile.open(fileobj=io.BytesIO(self.export(name))) as tar:
            for one in tar:
                path = one.name.removeprefix("./").rstrip("/")
                if path.split("/")[0] not in ("proc", "sys", "dev", "etc", "run"):
                    files[path] = (one.mode, one.uid, one.gid, one.size, one.mtime, tar.extractfile(one).read() if one.isreg() else one.linkname)
        return files

    def end_monitors(self):
        """Ends what the engine leaves running beside containers."""

    def close(self):
        if self.containers:
            self.remove(*self.containers)
        if self.service:
            self.service.terminate()
            self.service.wait()
        self.end_monitors()
        shutil.rmtree(self.folder, ignore_errors=True)


class Podman(Engine):
    name = "Podman"
    programs = "podman", "runc"

    def __init__(self):
        super().__init__()
        self.environment["CONTAINERS_CONF"] = f"{self.folder}/conf"
        with open(f"{self.folder}/conf", "w", encoding="ascii") as file:
            file.write(PODMAN_SETTINGS)
        self.words = ["podman", "--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run", "--storage-driver", "vfs",
                      "--cgroup-manager", "cgroupfs", "--runtime", "runc"]

    def start_service(self):
        self.service = subprocess.Popen([*self.words, "system", "service", "--time=0", f"unix://{self.socket}"], env=self.environment, cwd=self.folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        patiently("Podman's socket does not come", lambda: os.path.exists(self.socket))

    def remove(self, *names):
        self.call("rm", "-f", "-t", "0", *names, check=False)

    def end_monitors(self):
        """Podman's monitors of ended programs stay five minutes, and would then make the folder again."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if words[0].endswith(b"/conmon") and any(word.startswith(self.folder.encode()) for word in words):
                    os.kill(int(pid), signal.SIGKILL)


class Docker(Engine):
    """A daemon without networks of its own, which would change the machine's."""

    name = "Docker"
    programs = "dockerd", "docker", "containerd", "runc"

    def __init__(self):
        super().__init__()
        self.words = ["docker", "-H", f"unix://{self.socket}"]
        log = f"{self.folder}/log"
        words = ["dockerd", "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/pid",
                 "--host", f"unix://{self.socket}", "--storage-driver", "vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        with open(log, "wb") as output:
            self.service = subprocess.Popen(words, env=self.environment, cwd=self.folder, stdout=output, stderr=output)
        patiently("Docker's daemon neither answers nor ends",
                  lambda: self.service.poll() is not None or self.call("version", check=False).returncode == 0)
        if self.service.poll() is not None:
            with open(log, "rb") as output:
                reason = last_line(output.read())
            shutil.rmtree(self.folder, ignore_errors=True)
            raise tap.Skip(f"Docker's daemon cannot run here: {reason}")

    def end_monitors(self):
        """What the daemon mounts for the machine's own network stays."""
        with open("/proc/self/mounts", encoding="utf-8") as file:
            below = [line.split()[1] for line in file if line.split()[1].startswith(self.folder + "/")]
        for path in reversed(below):
            subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)


class Containerd:
    """containerd and its own client, which names containers as it is told."""

    def __init__(self):
        for program in "containerd", "ctr", "runc":
            if not shutil.which(program):
                raise tap.Skip(f"containerd is not tried: no program {program} is installed")
        if os.geteuid() != 0:
            raise tap.Skip("containerd is tried as root only, and this is another user")
        self.folder = tempfile.mkdtemp(prefix="memtally-")
        socket = f"{self.folder}/socket"
        log = f"{self.folder}/log"
        with open(f"{self.folder}/conf", "w", encoding="ascii") as file:
            file.write(f'version = 2\nroot = "{self.folder}/root"\nstate = "{self.folder}/state"\n'
                       f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n')
        with open(log, "wb") as output:
            self.service = subprocess.Popen(["containerd", "--config", f"{self.folder}/conf"], stdout=output, stderr=output)
        self.words = ["ctr", "--address", socket]
        patiently("containerd neither answers nor ends",
                  lambda: self.service.poll() is not None or self.call("version", check=False).returncode == 0)
        if self.service.poll() is not None:
            with open(log, "rb") as output:
                reason = last_line(output.read())
            shutil.rmtree(self.folder, ignore_errors=True)
            raise tap.Skip(f"containerd cannot run here: {reason}")

    def call(self, *words, check=True):
        done = subprocess.run([*self.words, *words], capture_output=True, check=False, timeout=PATIENCE_S, cwd=self.folder)
        assert not check or done.returncode == 0, done
        return done

    def run(self, identity, files, *command, options=()):
        """Starts a container of these files; gives its first process."""
        root = f"{self.folder}/{identity}"
        with tarfile.open(fileobj=io.BytesIO(image_of(files))) as tar:
            tar.extractall(root)
        done = self.call("run", "-d", "--null-io", "--rootfs", *options, root, identity, *command, check=False)
        if done.returncode:
            raise tap.Skip(f"containerd cannot run a container here: {last_line(done.stderr)}")
        for line in self.call("tasks", "ls").stdout.decode().splitlines():
            if line.startswith(identity):
                return int(line.split()[1])
        raise AssertionError(identity)

    def remove(self, identity):
        self.call("tasks", "kill", "-s", "SIGKILL", identity, check=False)
        patiently("the task does not end", lambda: b"RUNNING" not in self.call("tasks", "ls").stdout)
        self.call("tasks", "rm", identity, check=False)
        self.call("containers", "rm", identity, check=False)

    def close(self):
        self.service.terminate()
        self.service.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
