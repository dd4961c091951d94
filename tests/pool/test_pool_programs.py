#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs with libmemtally-pool.so preloaded: under limits, and under the recorder."""

import os
import resource
import subprocess
import sys
import tempfile

import memtally
import tap

MIB = 1 << 20
LIBRARY = os.environ["POOL_LIBRARY"]
PROGRAM = os.environ["POOL_PROGRAM"]


def told(preexec=None, **variables):
    done = subprocess.run([PROGRAM, "tell"], capture_output=True, text=True, check=True, preexec_fn=preexec,
                          env=dict(os.environ, LD_PRELOAD=LIBRARY, **variables))
    return done.stdout.strip()


def test_the_pool_is_held_to_its_limit_and_the_program_is_not():
    assert told() == "in the pool"
    assert told(MEMTALLY_POOL_MAX="16MiB") == "outside"
    assert told(MEMTALLY_POOL_FROM="100MiB") == "no pool"
    assert told(MEMTALLY_POOL_FROM="nonsense") == "in the pool"


def test_where_addresses_are_limited_there_is_no_pool():
    assert told(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))) == "no pool"


def recorded(**variables):
    """What the recorder says of a program that holds 160 MiB in 20 blocks."""
    hold = "blocks = [bytearray(b'x') * (8 << 20) for _ in range(20)]\nimport time\ntime.sleep(0.3)"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording")
        memtally.must("run", "-q", *memtally.PICTURES, "-o", path, "--", sys.executable, "-c", hold,
                      env=dict(os.environ, **variables))
        place = memtally.host(memtally.report(path, "heap-peak"))
    return place, memtally.detail(place, "runtime", "heap blocks from 64 KiB")


def test_the_recorder_sees_each_block_through_the_pool():
    (own, own_bytes), (pooled, pooled_bytes) = recorded(), recorded(LD_PRELOAD=LIBRARY)
    for place in (own, pooled):
        memtally.assert_adds_up(place)
    assert 160 * MIB <= own_bytes < 164 * MIB, own
    assert abs(own_bytes - pooled_bytes) < MIB, (own_bytes, pooled_bytes)
    assert memtally.row(pooled, "cached")["resident_bytes"] < 16 * MIB, pooled


if __name__ == "__main__":
    tap.main(globals())
