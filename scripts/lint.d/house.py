# SPDX-License-Identifier: MIT
"""What the checks share: the files of the tree, and one way to say what was found."""

import fnmatch
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))


def every_file():
    """Paths of the tree below its root: what git would track, or what lies there where git is not."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    ) if os.path.exists(f"{ROOT}/.git") else None
    if listed and listed.returncode == 0:
        return sorted(path for path in listed.stdout.split("\0") if path and os.path.isfile(f"{ROOT}/{path}"))
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith("build") and name not in (".git", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(found)


def files(*patterns):
    """The tree's files that match one of the patterns; a * also matches slashes."""
    return [path for path in every_file() if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)]


def read(path):
    """The file's text, or None if it is not text."""
    with open(f"{ROOT}/{path}", "rb") as file:
        data = file.read()
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def room_of(path):
    """The room under src/ that a path is in, or None."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def rooms():
    return sorted({room_of(path) for path in files("src/*")} - {None})


class Report:
    """Collects findings."""

    def __init__(self):
        self.found = []

    def add(self, path, line, text):
        self.found.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def finish(self, looked_at):
        """Prints the findings, then what was looked at, and ends the program."""
        for line in self.found:
            print(line)
        print(looked_at + (f", {len(self.found)} found" if self.found else ""))
        sys.exit(1 if self.found else 0)
