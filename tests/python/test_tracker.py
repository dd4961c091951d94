# SPDX-License-Identifier: MIT
"""Memory over time: what a tracker from the installed wheel sees of programs whose memory the test decides. It waits for
samples by their number, never by time."""

import json
import os
import tempfile
import xml.etree.ElementTree

import package

MIB = 1 << 20
TRACK = """
    import json, os, sys, time
    import memtally

    def await_samples(tracker, n):
        wanted = len(tracker.analyze().series[0].bytes) + n
        while len(tracker.analyze().series[0].bytes) < wanted:
            time.sleep(0.001)

    def take(mib):
        return bytearray(b"x") * (mib << 20)
"""


def trends(told):
    return {trend["place"]: trend for trend in told["trends"]}


def test_a_program_that_keeps_more_and_more_leaks_and_its_curve_is_what_it_took():
    told = package.answered(TRACK + """
    kept = []
    with memtally.Tracker("serving", interval=0.001) as tracker:
        for _ in range(50):
            kept.append(take(2))
            await_samples(tracker, 2)
    print(json.dumps(tracker.analyze().to_dict()))
    """)
    host = trends(told)["host"]
    assert (told["label"], host["pattern"]) == ("serving", "leak"), host
    assert 80 * MIB <= host["growth_bytes"] <= 120 * MIB, host
    (series,) = told["series"]
    assert series["bytes"][0] == host["baseline_bytes"] and abs(series["bytes"][-1] - series["bytes"][0] - 100 * MIB) <= 8 * MIB
    assert [mark["name"] for mark in told["marks"]] == ["start", "end"]


def test_growth_is_told_once_for_each_step_and_a_callback_that_fails_is_said():
    heard, problem, quiet = package.answered(TRACK + """
    heard, kept = [], []
    def fail(alert):
        heard.append([alert.place, alert.growth_bytes])
        raise KeyError("mine")
    with memtally.Tracker(interval=0.001, alert="32MiB", on_alert=fail) as tracker:
        kept.append(take(40))
        await_samples(tracker, 3)
        kept.append(take(2))
        await_samples(tracker, 3)
        kept.append(take(80))
        await_samples(tracker, 3)
    with memtally.Tracker(interval=0.001) as quiet:
        kept.append(take(40))
        await_samples(quiet, 3)
    print(json.dumps([heard, tracker.problem, len(quiet.alerts)]))
    """)
    # 40 and 122 MiB are past the first and the third step; while 80 MiB are written, a look may see the second.
    assert 2 <= len(heard) <= 3 and all(place == "host" for place, _ in heard), heard
    assert 32 * MIB <= heard[0][1] < 64 * MIB <= 96 * MIB <= heard[-1][1] < 128 * MIB, heard
    assert problem == "on_alert failed: KeyError: 'mine'" and quiet == 0, (problem, quiet)


def test_an_operation_that_keeps_memory_is_not_neutral_and_one_that_gives_it_back_is():
    told = package.answered(TRACK + """
    kept = []
    with memtally.Tracker() as tracker:
        with tracker.neutral("keeps"):
            kept.append(take(24))
        with tracker.neutral("returns"):
            take(24)
        with tracker.neutral("cycle"):
            ring = [take(24)]
            ring.append(ring)
            del ring
        with tracker.neutral("small", tolerance="32MiB"):
            kept.append(take(24))
    print(json.dumps([[check.name, check.is_neutral, check.growth_bytes["host"]] for check in tracker.checks]))
    """)
    assert [(name, neutral) for name, neutral, _ in told] == [
        ("keeps", False), ("returns", True), ("cycle", True), ("small", True)], told
    assert abs(told[0][2] - 24 * MIB) <= MIB, told


def test_a_tracker_that_was_stopped_begins_anew_and_one_that_runs_does_not():
    first, again, error, stopped = package.answered(TRACK + """
    tracker = memtally.Tracker("one").start()
    try:
        tracker.start()
    except memtally.Error as refused:
        error = type(refused).__name__
    tracker.mark("middle")
    first = [mark.name for mark in tracker.stop().marks]
    tracker.stop()
    again = [mark.name for mark in tracker.start("two").marks], tracker.label
    tracker.stop()
    try:
        tracker.mark("late")
    except memtally.Error as refused:
        stopped = str(refused)
    print(json.dumps([first, again, error, stopped]))
    """)
    assert first == ["start", "middle", "end"] and again == [["start"], "two"] and error == "Busy"
    assert stopped == "the tracker does not run; start it first"


def test_pictures_have_a_curve_for_each_place_and_need_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        told = package.said(TRACK + """
        with memtally.Tracker("a <b>", interval=0.001, alert="8MiB") as tracker:
            await_samples(tracker, 3)
            kept = take(16)
            with tracker.neutral("inference"):
                await_samples(tracker, 3)
        for name in ("memory.html", "memory.svg", "memory.json"):
            tracker.save(os.path.join(sys.argv[1], name))
        for name in ("memory.png", "memory.bmp", "memory"):
            try:
                tracker.save(os.path.join(sys.argv[1], name))
            except memtally.Error as error:
                print(error.code)
        assert len(tracker.analyze().line()) <= 60
        """.replace("\n    ", "\n"), folder)
        drawn = xml.etree.ElementTree.parse(os.path.join(folder, "memory.svg")).getroot()
        with open(os.path.join(folder, "memory.html"), encoding="utf-8") as file:
            page = file.read()
        with open(os.path.join(folder, "memory.json"), encoding="utf-8") as file:
            figures = json.load(file)
    assert told.split() == ["MT_EUNSUPPORTED", "MT_EARG", "MT_EARG"], told
    (curve,) = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(curve.attrib["points"].split()) == len(figures["series"][0]["bytes"])
    assert "<h1>a &lt;b&gt;</h1>" in page and "inference: neutral" in page and "src=" not in page and "href=" not in page


def test_it_ends_with_the_program_however_that_ends_and_a_child_goes_on():
    ends = {
        "": 0, "raise KeyError": 1, "sys.exit(3)": 3, "os._exit(4)": 4,
        "tracker.loop = tracker; del tracker": 0,
        "[memtally.Tracker(interval=0.001).start() for _ in range(20)]": 0,
        "import threading; threading.Thread(target=lambda: time.sleep(0.05)).start()": 0,
    }
    for end, status in ends.items():
        package.said(TRACK + f"""
    tracker = memtally.Tracker(interval=0.001, alert=1, on_alert=lambda alert: None).start()
    kept = take(8)
    {end}
        """, status=status)
    child = package.answered(TRACK + """
    tracker = memtally.Tracker(interval=0.001, alert=1, on_alert=lambda alert: None).start()
    read, write = os.pipe()
    if os.fork() == 0:
        tracker.stop()
        with memtally.Tracker(interval=0.001) as own:
            await_samples(own, 3)
        os.write(write, json.dumps(len(own.analyze().series[0].bytes)).encode())
        sys.exit(0)
    os.wait()
    print(os.read(read, 100).decode())
    """)
    assert child >= 4, child
