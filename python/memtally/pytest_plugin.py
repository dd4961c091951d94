# SPDX-License-Identifier: MIT
"""The plug-in of pytest: its options, its marker, its fixtures. Nothing of memtally is loaded until one of them is used."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

MARKER = (
    "memory(limit=None, device_limit=None, leak=None, on=None): fail the test if it takes more than `limit` of the host or "
    "`device_limit` of a device, or leaves more than `leak` behind; run it on devices `on` that are not there"
)


def _tolerance(text: str) -> float:
    share = float(text.rstrip().removesuffix("%")) / 100
    if not 0 <= share < 10:
        raise ValueError
    return share


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memory", "memory, by memtally")
    group.addoption(
        "--memory-report",
        nargs="?",
        const="text",
        choices=("text", "json", "html"),
        help="say what each test with the marker took; =json and =html write memory-report.json or .html",
    )
    group.addoption("--memory-isolate", action="store_true", help="run each test with the marker in a process of its own")
    group.addoption(
        "--memory-order",
        action="store_true",
        help="run tests that took little in the last run before those that took much, and these only while there is as much room",
    )
    group.addoption(
        "--memory-min-free",
        metavar="PLACE=SIZE,…",
        help="postpone a test with the marker, then skip it, while less is free: host=4GiB,gpu0=4GiB",
    )
    group.addoption(
        "--memory-baseline",
        metavar="FILE",
        help="fail a test with the marker that takes more of a device than FILE says of it, and add one that is not in FILE",
    )
    group.addoption(
        "--memory-tolerance",
        metavar="PERCENT",
        type=_tolerance,
        default="2%",
        help="how much more than in the baseline a test may take (default: 2%%)",
    )
    parser.addini("memory", "limits of each test without the marker, as the marker has them: limit=2GiB leak=100MiB", default="")
    group.addoption("--memory-child", metavar="FOLDER", help="used by the plug-in itself in a test's own process")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("memory_child"):
        from .isolation import Reports

        config.pluginmanager.register(Reports(config))
    if config.getoption("memory_min_free"):
        from .testing import parse_places

        try:
            parse_places(config.getoption("memory_min_free"))
        except ValueError as error:
            raise pytest.UsageError(f"--memory-min-free: {error}") from None
    if config.getoption("memory_baseline"):
        from .testing import baseline_of

        try:
            baseline_of(config)
        except (ValueError, OSError) as error:
            raise pytest.UsageError(f"--memory-baseline: {error}") from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getini("memory"):
        from .testing import mark_all

        mark_all(config, items)
    if config.getoption("memory_order"):
        from .testing import sort_by_peaks

        sort_by_peaks(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    if not item.get_closest_marker("memory") or item.config.getoption("memory_child"):
        return None
    from .isolation import is_wanted, run
    from .testing import postpone

    if item.config.getoption("memory_min_free") and postpone(item, nextitem):
        return True
    return run(item, nextitem) if is_wanted(item) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not item.get_closest_marker("memory"):
        return
    if item.config.getoption("memory_min_free"):
        from .testing import skip_without_room

        skip_without_room(item)
    if item.config.getoption("memory_order"):
        from .testing import skip_where_not_clean

        skip_where_not_clean(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("memory")
    if not marker:
        yield
        return
    from .testing import Watched

    watched = Watched(item, marker)
    folder = item.config.getoption("memory_child")
    if folder:
        from .isolation import write_baseline

        write_baseline(folder, watched.baseline_bytes)
    outcome: Any = yield
    complaint = watched.end()
    if complaint and not outcome.excinfo:
        try:
            pytest.fail(complaint, pytrace=False)
        except BaseException as failure:
            outcome.force_exception(failure)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: Any) -> None:
    if any(name == "memory" for name, _ in report.user_properties):
        from .testing import note

        note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    import sys

    if "memtally.testing" in sys.modules and not hasattr(session.config, "workerinput"):
        from .testing import add_to_baseline, keep_peaks

        keep_peaks(session.config)
        if not session.config.getoption("memory_child"):
            add_to_baseline(session.config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("memory_report"):
        from .testing import report

        report(terminalreporter, config)


@pytest.fixture
def memory_cleanup(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives memory back before and after the test, and warns where more than 100 MB stayed."""
    from .testing import cleaned

    yield from cleaned(request.node)


@pytest.fixture
def memory_tracker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A memtally.Tracker that runs during the test, with the test's name."""
    from .tracking import Tracker

    with Tracker(request.node.nodeid, interval=0.05) as tracker:
        yield tracker


@pytest.fixture(scope="session")
def memory_budget() -> Iterator[Any]:
    """Makes budgets: memory_budget(min_free="4GiB", reserved="1GiB", isolate=True). What they reserved ends with the session."""
    from .budgets import Budget

    made: list[Budget] = []

    def make(min_free: Any = None, reserved: Any = None, isolate: bool = True, file: str | None = None) -> Budget:
        made.append(Budget(min_free, reserved, isolate, file))
        return made[-1]

    yield make
    for budget in made:
        budget.release()
