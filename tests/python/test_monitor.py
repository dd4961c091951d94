# SPDX-License-Identifier: MIT
"""memtally.monitor from the installed wheel, of the host: what it says beside the kernel's own words, cleanups that raise, hang and
call back, and a process that was forked. CuPy is a stand-in that has the functions which its documentation names."""

import package

MONITOR = """
    import json, mmap, os, sys, threading
    import memtally

    def kernel(name):
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(name + ":"))
"""


def test_a_snapshot_of_the_host_is_what_the_kernel_says():
    one, total, keys = package.answered(MONITOR + """
    one = memtally.monitor("host").snapshot()
    print(json.dumps([vars(one), kernel("MemTotal"), str(one)]))
    """)
    # A control group may leave less than the machine has.
    assert 0 < one["total_bytes"] <= total and one["backend"] == "kernel", one
    assert one["allocated_bytes"] + one["available_bytes"] == one["total_bytes"], one
    assert one["utilisation"] == one["allocated_bytes"] / one["total_bytes"], one
    expected = sum(one["utilisation"] >= level for level in (0.6, 0.8, 0.9))
    assert one["pressure"] == ["low", "moderate", "high", "critical"][expected], one
    assert one["pressure"] in keys and "available" in keys, keys


def test_what_can_be_had_ends_between_a_page_and_more_than_there_is():
    told = package.answered(MONITOR + """
    monitor = memtally.monitor("host")
    seen = monitor.snapshot()
    answers = [monitor.can_allocate(4096), monitor.can_allocate("4KiB", margin=0), monitor.can_allocate(seen.total_bytes + 1, 0),
               monitor.can_allocate(1 << 62), monitor.is_low(0.0), monitor.is_low(1.0)]
    print(json.dumps(answers))
    """)
    assert told == [True, True, False, False, True, False], told


def test_recordings_are_kept_to_the_last_and_counted():
    history, stats, seen = package.answered(MONITOR + """
    monitor = memtally.monitor("host", auto_cleanup=False, history=4)
    seen = [vars(monitor.record()) for _ in range(7)]
    print(json.dumps([[vars(one) for one in monitor.history], vars(monitor.stats()), seen]))
    """)
    assert history == seen[3:], (history, seen)
    assert (stats["records"], stats["cleanups"], stats["leak"]) == (7, 0, "none"), stats
    assert stats["peak_bytes"] == max(one["allocated_bytes"] for one in seen), stats
    assert stats["average_bytes"] == sum(one["allocated_bytes"] for one in seen) / 7, stats


def test_pressure_is_told_as_it_begins_and_what_raises_there_is_noted():
    told, stats = package.answered(MONITOR + """
    monitor, told = memtally.monitor("host", auto_cleanup=False, levels=(1e-9, 2e-9, 3e-9)), []
    def tell(seen, before):
        told.append([seen.pressure, before])
        raise SystemExit("mine")
    monitor.on_pressure = tell
    monitor.record(), monitor.record()
    print(json.dumps([told, vars(monitor.stats())]))
    """)
    assert told == [["critical", "low"]], told
    assert stats["events"] == {"low": 0, "moderate": 0, "high": 0, "critical": 1}, stats
    assert stats["callback_errors"] == 1 and stats["seconds_since"]["critical"] >= 0, stats
    assert stats["seconds_since"]["low"] is None, stats


def test_recording_above_the_threshold_cleans_up_by_priority_and_says_so():
    called, stats, is_same = package.answered(MONITOR + """
    called = []
    monitor = memtally.monitor("host", cleanup_threshold=1e-9)
    monitor.register_cleanup(lambda: called.append("late"), priority=-1)
    monitor.register_cleanup(lambda: called.append("soon"), priority=5)
    gone = monitor.register_cleanup(lambda: called.append("gone"), priority=9)
    monitor.unregister_cleanup(gone)
    monitor.record()
    print(json.dumps([called, vars(monitor.stats()), memtally.monitor("host") is monitor]))
    """)
    # The target is all that there is, so that each is called.
    assert called[:1] == ["soon"] and called[-1:] == ["late"] and len(called) == len(set(called)) == 2, called
    assert stats["cleanups"] == 1 and stats["callback_errors"] == 0, stats
    assert is_same, "there is one monitor of a place"


def test_memory_that_a_cleanup_gives_back_is_what_it_says_it_gave():
    calls, freed, said = package.answered(MONITOR + """
    block = mmap.mmap(-1, 256 << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    monitor = memtally.monitor("host")
    def drop():
        size = len(block)
        block.close()
        return size
    monitor.register_cleanup(drop, priority=1)
    done = monitor.cleanup()
    print(json.dumps([[vars(call) for call in done.calls], done.freed_bytes, done.after_bytes - done.before_bytes]))
    """)
    assert calls[0]["name"] == "drop" and calls[0]["freed_bytes"] == 256 << 20 and calls[0]["error"] is None, calls
    assert {call["name"] for call in calls} == {"drop", "cycles", "malloc_trim"}, calls
    assert freed == said, (freed, said)


def test_a_cleanup_that_raises_hangs_or_calls_back_harms_nothing():
    calls, busy, again, stats = package.answered(MONITOR + """
    monitor, never, ran, told = memtally.monitor("host", callback_seconds=2), threading.Event(), threading.Event(), []
    def raises():
        raise SystemExit("mine")
    def hangs():
        never.wait()
    def calls_back():
        try:
            monitor.cleanup()
        except memtally.Error as error:
            told.append(error.code)
    monitor.register_cleanup(raises, 3)
    stuck = monitor.register_cleanup(hangs, 2)
    monitor.register_cleanup(calls_back, 1)
    monitor.register_cleanup(ran.set, 0)
    done = monitor.cleanup()
    ran.wait()
    try:
        monitor.unregister_cleanup(stuck)
    except memtally.Error as error:
        told.append(error.code)
    again = [call.name for call in monitor.cleanup().calls]
    print(json.dumps([{call.name: vars(call) for call in done.calls}, told, again, vars(monitor.stats())]))
    """)  # and the program ends, though one callback never does
    assert calls["raises"]["error"] == "SystemExit: mine" and not calls["raises"]["hangs"], calls
    assert calls["hangs"]["hangs"] and calls["hangs"]["error"] is None, calls
    assert busy[0] == busy[-1] == "MT_EBUSY", busy
    assert "set" in calls and "set" in again and "hangs" not in again, (calls, again)
    assert stats["callback_errors"] == 2 and stats["cleanups"] == 2, stats


def test_threads_record_one_monitor_and_lose_nothing():
    records, kept, n_monitors = package.answered(MONITOR + """
    monitor = memtally.monitor("host", auto_cleanup=False, history=8000)
    def work():
        for _ in range(500):
            monitor.record()
    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(json.dumps([monitor.stats().records, len(monitor.history), len({id(memtally.monitor("host")) for _ in range(9)})]))
    """)
    assert (records, kept, n_monitors) == (4000, 4000, 1)


def test_a_forked_process_begins_anew_while_its_parents_threads_hold_locks():
    parent, child = package.answered(MONITOR + """
    monitor, never, begun, called = memtally.monitor("host", auto_cleanup=False), threading.Event(), threading.Event(), []
    monitor.register_cleanup(lambda: called.append(os.getpid()) if os.getpid() != parent else (begun.set(), never.wait()), 9)
    parent = os.getpid()
    monitor.record()
    threading.Thread(target=monitor.cleanup, daemon=True).start()
    begun.wait()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        monitor.record()
        monitor.cleanup()
        answer = [monitor.stats().records, called == [os.getpid()], memtally.monitor("host") is monitor]
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        child = json.loads(file.read())
    os.waitpid(pid, 0)
    print(json.dumps([monitor.stats().records, child]))
    sys.stdout.flush()
    """)
    assert (parent, child) == (1, [1, True, True])


def test_what_cannot_be_watched_says_what_can():
    told = package.answered(MONITOR + """
    told = []
    for what in (lambda: memtally.monitor(-1), lambda: memtally.monitor("gpu99"), lambda: memtally.monitor("tape"),
                 lambda: memtally.monitor("host", history=0), lambda: memtally.monitor("host", levels=(0.9, 0.8, 0.7)),
                 lambda: memtally.monitor("host") and memtally.monitor("host", history=5),
                 lambda: memtally.monitor("host").unregister_cleanup(99), lambda: memtally.monitor("host").register_cleanup(1),
                 lambda: memtally.monitor(1)):
        try:
            told.append(what())
        except memtally.Error as error:
            told.append(error.code)
    print(json.dumps(told))
    """, CUDA_VISIBLE_DEVICES="3")
    assert told == ["MT_EARG", "MT_ENOTFOUND", "MT_EARG", "MT_EARG", "MT_EARG", "MT_EBUSY", "MT_ENOTFOUND", "MT_EARG",
                    "MT_ENOTFOUND"], told
