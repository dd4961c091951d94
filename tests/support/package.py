# SPDX-License-Identifier: MIT
"""The Python package as users have it: packed from BUILD_DIR into a wheel, or the wheel MEMTALLY_WHEEL, installed into an empty
environment."""

import atexit
import functools
import glob
import importlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import types

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def part(name):
    """A module of the package, under a name that the tests' own helper does not have."""
    if "_package" not in sys.modules:
        package = types.ModuleType("_package")
        is_built = "MEMTALLY_WHEEL" not in os.environ
        package.__path__ = [os.path.join(os.environ["BUILD_DIR"], "python", "memtally") if is_built else os.path.join(packages(), "memtally")]
        sys.modules["_package"] = package
    return importlib.import_module("_package." + name)


def ran(command):
    """What a command prints that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean())
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@functools.cache
def environment():
    """The folder of an environment that has nothing but the wheel."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    wheels = os.path.join(folder.name, "wheels")
    wheel = os.environ.get("MEMTALLY_WHEEL") or ran(
        [os.path.join(ROOT, "scripts", "wheel"), "--build", os.environ["BUILD_DIR"], "--output", wheels]).strip()
    made = os.path.join(folder.name, "environment")
    ran([sys.executable, "-m", "venv", made])
    ran([os.path.join(made, "bin", "python"), "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel])
    return made


def program(name="python"):
    return os.path.join(environment(), "bin", name)


def packages():
    """The folder that the package was installed into."""
    (found,) = glob.glob(os.path.join(environment(), "lib", "python3*", "site-packages"))
    return found


def clean(**variables):
    """An environment in which nothing speaks of a build folder or of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BUILD_DIR", "MEMTALLY_"))}
    return {**kept, **variables}


def said(code, *arguments, python=None, before=(), status=0, **variables):
    """What a program prints that imports the installed package; `before` is the command that runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(code))
        if python:
            variables.setdefault("PYTHONPATH", packages())
        command = [*before, python or program(), path, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean(**variables), cwd=folder)
    assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def answered(code, *arguments, **more):
    """The same of a program whose last line is JSON."""
    return json.loads(said(code, *arguments, **more).splitlines()[-1])


def built(*path):
    """A file of the build folder, for tests that need more than the wheel."""
    folder = os.environ.get("BUILD_DIR")
    if not folder or not os.path.exists(os.path.join(folder, *path)):
        raise tap.Skip(f"there is no build folder with {os.path.join(*path)}")
    return os.path.join(folder, *path)


@functools.cache
def needs_exact_peaks():
    """Where the kernel does not count anew, peaks are sampled, and a short one is missed."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError as error:
        raise tap.Skip(f"peaks are sampled here: {error}") from None
