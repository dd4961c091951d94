# SPDX-License-Identifier: MIT
"""A test in a process of its own, here or on devices that are not there. The process is pytest again with the same options
and one test; its reports are read from a file, so that fixtures, reruns and failures are as they would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from . import baselines, command, library
from .documents import Estimate
from .errors import Error
from .questions import rehearse
from .testing import baseline_of, complaint_of, limits_of

_LOOK_SECONDS = 0.01
_WORDS_OF_A_CRASH = 4000


def is_wanted(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("memory")
    assert marker is not None
    if item.config.getoption("usepdb", False):
        return False
    return bool(marker.kwargs.get("on")) or bool(item.config.getoption("memory_isolate"))


def _words(config: pytest.Config) -> list[str]:
    """The options that pytest was called with, without names of files."""
    worker = getattr(config, "workerinput", None)
    words = worker["mainargv"][1:] if worker else list(config.invocation_params.args)
    names = set(map(str, config.getoption("file_or_dir", None) or ()))
    return [str(word) for word in words if str(word) not in names]


def _command(item: pytest.Item, folder: str) -> list[str]:
    config = item.config
    test = str(item.path) + "::" + item.nodeid.partition("::")[2]
    # The caller's own files, distribution and cache of failures are none of this process's.
    own = ["-o", "cache_dir=" + os.path.join(folder, "cache"), "--junitxml=", f"--memory-child={folder}"]
    if config.pluginmanager.hasplugin("xdist"):
        own.append("-n0")
    return [sys.executable, "-m", "pytest", *_words(config), *own, f"--rootdir={config.rootpath}", test]


def _resident_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def _baseline(folder: str) -> int | None:
    """What the test's process had before the test was called, once it has said so."""
    try:
        with open(os.path.join(folder, "baseline"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _watch(process: subprocess.Popen[bytes], folder: str, limit: int | None) -> str | None:
    """Waits for the end; a process that passes the limit is ended, and why is returned."""
    baseline = None
    while True:
        try:
            process.wait(_LOOK_SECONDS if limit is not None else None)
            return None
        except subprocess.TimeoutExpired:
            pass
        baseline = _baseline(folder) if baseline is None else baseline
        if limit is None or baseline is None:
            continue
        taken = _resident_of(process.pid) - baseline
        if taken > limit:
            os.killpg(process.pid, signal.SIGKILL)
            text = library.text_of_size
            return f"host: the test was ended when it had taken {text(taken)}, more than its limit of {text(limit)}"


def _run_here(item: pytest.Item, folder: str, limit: int | None) -> str | None:
    """Why it did not end by itself, if it did not."""
    with open(os.path.join(folder, "words"), "wb") as words:
        process = subprocess.Popen(
            _command(item, folder),
            cwd=item.config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=command.environment(),
        )
        try:
            return _watch(process, folder, limit)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _over(made: Estimate, limits: dict[str, int | None]) -> str | None:
    taken = {place.place: place.total_bytes for place in made.places if place.total_bytes is not None}
    return complaint_of(taken, {}, {**limits, "limit": None})


def _beyond_baseline(item: pytest.Item, folder: str, on: str, made: Estimate, found: baselines.Peaks) -> str | None:
    known = baseline_of(item.config).get(item.nodeid)
    if known is None:
        return None
    said = []
    for place, most in baselines.beyond(known, found, item.config.getoption("memory_tolerance")).items():
        said.append(baselines.sentence(place, known, found))
        who = baselines.who_asked(_command(item, folder), on, place, most, made)
        if who:
            said.append(f"{place}: {who}")
    return "\n".join(said) or None


def _run_on(item: pytest.Item, folder: str, on: str, limits: dict[str, int | None]) -> tuple[str | None, baselines.Peaks]:
    """The same on devices that are not there; what a rehearsal says against it, and its peaks. A test that ended before it
    took a device has said itself how it went."""
    try:
        made = rehearse(_command(item, folder), device=on, suggest=False)
    except Error as error:
        return None if _is_whole(_reports(item, folder)) else f"the test cannot be rehearsed on {on}: {error}", {}
    if made.json["rehearsal"]["outcome"] == "ran out":
        return str(made.reason), {}
    found = baselines.peaks_of(made)
    return _over(made, limits) or _beyond_baseline(item, folder, on, made, found), found


def _reports(item: pytest.Item, folder: str) -> list[Any]:
    try:
        with open(os.path.join(folder, "reports"), encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
    except OSError:
        return []
    make = item.config.hook.pytest_report_from_serializable
    return [make(config=item.config, data=json.loads(line)) for line in lines]


def _is_whole(reports: list[Any]) -> bool:
    return bool(reports) and reports[-1].when == "teardown"


def _last_words(folder: str) -> str:
    try:
        with open(os.path.join(folder, "words"), encoding="utf-8", errors="replace") as file:
            return file.read()[-_WORDS_OF_A_CRASH:]
    except OSError:
        return ""


def _failure(item: pytest.Item, sentence: str, before: Any) -> pytest.TestReport:
    """A failed call; of one that failed by itself what it said follows."""
    said = sentence + ("\n\n" + str(before.longrepr) if before is not None and before.longrepr else "")
    properties = list(before.user_properties) if before is not None else []
    return pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        "failed",
        said,
        "call",
        user_properties=properties,
    )


def _settled(item: pytest.Item, reports: list[Any], complaint: str | None, words: str) -> list[Any]:
    """The reports, with a failed call where something stands against the test."""
    if not _is_whole(reports) and not complaint:
        complaint = "the test's process ended before the test did" + (f"\n{words}" if words else "")
    if not complaint:
        return reports
    calls = [report for report in reports if report.when == "call"]
    failed = _failure(item, complaint, calls[-1] if calls else None)
    others = [report for report in reports if not calls or report is not calls[-1]]
    setups = [report for report in others if report.when != "teardown"]
    return [*setups, failed, *(report for report in others if report.when == "teardown")]


def _reruns(item: pytest.Item) -> int:
    """How often pytest-rerunfailures, where it is there, runs a test again."""
    if not item.config.pluginmanager.hasplugin("rerunfailures"):
        return 0
    marker = item.get_closest_marker("flaky")
    if marker is None:
        return int(item.config.getoption("reruns", 0) or 0)
    return int(marker.kwargs.get("reruns", marker.args[0] if marker.args else 1))


def _attempt(item: pytest.Item, on: str | None, limits: dict[str, int | None]) -> tuple[list[Any], bool]:
    """The reports, and whether the test came to its own end."""
    with tempfile.TemporaryDirectory(prefix="memtally-test-") as folder:
        peaks: baselines.Peaks = {}
        if on:
            complaint, peaks = _run_on(item, folder, on, limits)
        else:
            complaint = _run_here(item, folder, limits["limit"])
        reports = _reports(item, folder)
        settled = _settled(item, reports, complaint, _last_words(folder))
        for report in settled:
            if report.when == "call" and peaks:
                report.user_properties.append(("memory_peaks", peaks))
        return settled, _is_whole(reports)


def run(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs the test and hands on its reports."""
    marker = item.get_closest_marker("memory")
    assert marker is not None
    limits, on = limits_of(marker), marker.kwargs.get("on")
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for reruns_left in range(_reruns(item), -1, -1):
        reports, has_ended = _attempt(item, on, limits)
        if not has_ended and reruns_left:
            # What rerunfailures does of a test that failed; one that ended has been run again in its process.
            next(report for report in reports if report.when == "call").outcome = "rerun"
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        if has_ended:
            break
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Nothing was set up for this test here; what is left of others goes as if it had been.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def write_baseline(folder: str, size: int) -> None:
    path = os.path.join(folder, "baseline")
    with open(path + ".part", "w", encoding="ascii") as file:
        file.write(str(size))
    os.replace(path + ".part", path)


class Reports:
    """What is reported in a test's own process, one line for each: a process that dies leaves those that were whole. A
    rehearsal may run the command again with other settings; only the first run reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        path = os.path.join(config.getoption("memory_child"), "reports")
        try:
            self.file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            self.file = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        if self.file is not None:
            data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
            os.write(self.file, (json.dumps(data) + "\n").encode())
