#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that calls libmemtally-pool.so as CuPy and RMM do, on a pretended device: it looks at the pool's own counts, and what
is asked here is whether the device has all of it back."""

import json
import os
import sys
import tempfile

import memtally
import tap

MIB = 1 << 20


def rehearse(size, folder, *words):
    done = memtally.run("rehearse", "--layer", "cuda", "-d", size, "--requests", "0", "--no-suggest", "--quiet", "--json",
                        "--folder", folder, "--", *words)  # fmt: skip
    with open(os.path.join(folder, "output"), encoding="utf-8") as file:
        assert file.read().endswith("done\n"), (done.stdout[-2000:], done.stderr[-2000:])
    return done


def test_a_page_has_functions_for_cupys_allocator_in_python():
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, os.path.join(here, "as_cupy.py"), os.path.join(here, "..", "..", "docs", "POOL.md")]
        rehearse("2GiB", folder, *words, os.environ["POOL_LIBRARY"])


def test_blocks_come_and_go_as_cupy_and_rmm_ask_for_them():
    with tempfile.TemporaryDirectory() as folder:
        done = rehearse("24GiB", folder, os.environ["POOL_CALLERS"], os.environ["POOL_LIBRARY"])
    (place,) = [place for place in json.loads(done.stdout)["places"] if place["place"] == "gpu:0"]
    context = sum(row["allocated_bytes"] for row in place["rows"] if row["category"] == "context")
    # 10 MiB and a page at most of each stream; 3 MiB fit into them.
    assert 12 * MIB <= place["total_allocated_bytes"] - context <= 24 * MIB, place


if __name__ == "__main__":
    tap.main(globals())
