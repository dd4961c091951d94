# SPDX-License-Identifier: MIT
"""The pool of the installed wheel: sums of what a program takes and gives back."""

import package

MIB = 1 << 20
POOL = """
    import json, os
    import memtally
"""


def test_a_buffer_that_comes_again_is_a_hit_and_sums_are_what_is_held():
    first, second, last, returned = package.answered(POOL + """
    with memtally.pool(device="cpu", max_bytes="1GiB") as pool:
        one = pool.allocate(64 << 20, backend="host")
        one[:] = b"x" * len(one)
        other = pool.allocate(32 << 20, backend="host")
        first = pool.stats().to_dict()
        pool.release(one)
        again = pool.allocate("64MiB", backend="host")
        assert bytes(again[-3:]) == b"xxx" and len(again) == 64 << 20
        second = pool.stats().to_dict()
        pool.release(again), pool.release(other)
        last = [pool.evict(), pool.trim("32MiB"), pool.trim()]
        print(json.dumps([first, second, pool.stats().to_dict(), last]))
    """)
    assert (first["hits"], first["misses"], first["in_use_bytes"], first["held_bytes"]) == (0, 2, 96 * MIB, 96 * MIB), first
    assert (second["hits"], second["misses"], second["allocations"], second["releases"]) == (1, 2, 3, 1), second
    assert second["hit_rate"] == 1 / 3 and second["utilization"] == 1.0, second
    assert (last["in_use_bytes"], last["held_bytes"], last["peak_held_bytes"]) == (0, 0, 96 * MIB), last
    assert returned == [0, 64 * MIB, 32 * MIB], returned


def test_the_limit_is_2_gib_unless_it_is_said():
    told = package.answered(POOL + """
    told = []
    for pool, size in ((memtally.pool("cpu"), (2 << 30) + 1), (memtally.pool("cpu", 32 << 20), 40 << 20)):
        try:
            pool.allocate(size, backend="host")
        except memtally.Error as error:
            told.append([type(error).__name__, str(error), pool.stats().failures])
        pool.release(pool.allocate(pool.max_bytes, backend="host"))
    print(json.dumps(told))
    """)
    assert [(name, failures) for name, _, failures in told] == [("LimitExceeded", 1)] * 2, told
    assert told[1][1] == ("the pool has no room for 40.00 MiB: 0 B are in use, and it holds 32.00 MiB at most; release what is not "
                          "used, or give it more by max_bytes"), told


def test_a_pool_that_sleeps_holds_nothing_and_its_buffers_stay():
    held, told, released, kept = package.answered(POOL + """
    with memtally.pool(device="cpu") as pool:
        weights = pool.allocate("6MiB", backend="host", long_lived=True)
        work = pool.allocate("10MiB", backend="host")
        weights[:], work[:] = b"w" * len(weights), b"x" * len(work)
        held, told, kept = [], [], []
        released = [pool.sleep("long-lived")]
        held.append(pool.stats().held_bytes)
        for wrong in (lambda: pool.allocate(1, backend="host"), pool.sleep, lambda: pool.sleep("some")):
            try:
                wrong()
            except memtally.Error as error:
                told.append(str(error))
        pool.wake()
        held.append(pool.stats().held_bytes)
        kept.append([bytes(weights[-2:]).decode(), sum(work)])
        work[:] = b"x" * len(work)
        released.append(pool.sleep())
        pool.wake()
        kept.append([bytes(weights[-2:]).decode(), bytes(work[-2:]).decode()])
        print(json.dumps([held, told, released, kept]))
    """)
    assert held == [0, 16 * MIB] and released == [16 * MIB, 16 * MIB], (held, released)
    assert kept == [["ww", 0], ["ww", "xx"]], kept
    assert told == ["the pool sleeps; wake() it before you take buffers",
                    "the pool cannot sleep: it sleeps already, or work on it cannot be waited for",
                    "a pool keeps nothing, long-lived, all while it sleeps, not 'some'"], told


def test_what_is_wrong_is_said():
    told = package.answered(POOL + """
    pool, told = memtally.pool("cpu"), []
    buffer = pool.allocate(1000, backend="host")
    pool.release(buffer)
    def forked():
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                pool.allocate(1, backend="host")
            except memtally.Error as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.wait()
        raise memtally.Error(os.read(read, 1000).decode())
    for wrong in (lambda: pool.release(buffer), lambda: pool.release(b"mine"), lambda: pool.allocate(0), forked,
                  lambda: pool.allocate(1, backend="jax"), lambda: memtally.pool("cuda"), lambda: memtally.pool(0, 0),
                  lambda: pool.allocate(1, backend="cupy"), lambda: memtally.pool(0).allocate(1, backend="host"),
                  memtally.use_pool_in_torch):
        try:
            wrong()
            told.append("nothing")
        except memtally.Error as error:
            told.append(str(error))
    print(json.dumps(told))
    """)
    none = "this buffer is none of the pool's, or was released before"
    assert told == [none, none, "a buffer has at least one byte, not 0",
                    "a pool is its process's own; make another one after fork()",
                    "no backend 'jax'; there are torch, cupy, host",
                    "'cuda' is no device of a pool; there are 0, 1 and so on, and 'cpu'",
                    "a pool holds at least one byte; give max_bytes as 2 << 30 or '2GiB'",
                    "cupy takes its buffers from a device; this pool is of 'cpu'", "nothing",
                    "import torch before its allocator is replaced"], told
