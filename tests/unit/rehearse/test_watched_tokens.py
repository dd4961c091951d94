#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at the caches of a model in the watched program, with a clock in time's place and without PyTorch: which tokens count as quick."""

import os
import sys
import time
import types

import tap

sys.path.insert(0, os.environ["PYTHON_PACKAGES"])
sys.dont_write_bytecode = True

from memtally.watch import caches  # noqa: E402


def looked_at(seconds, outputs):
    """After each of so many tokens, each so many seconds after the one before, whether it was looked at quickly, and how often layers were."""
    torch = types.SimpleNamespace(Tensor=type("Tensor", (), {}), cuda=types.SimpleNamespace(is_initialized=lambda: False))
    labels = types.SimpleNamespace(label_block=lambda *_: None)
    one = caches.Caches(types.SimpleNamespace(failed=lambda *error: sys.exit(error)), torch, labels, None, None)
    clock, layers, found = [100.0], [], []
    one.look_at_layer = layers.append

    def generate():
        for pause in seconds:
            clock[0] += pause
            layers.clear()
            found.append((one.look_after_token(outputs), len(layers)))

    caches.time = types.SimpleNamespace(monotonic=lambda: clock[0])
    try:
        one.during_generate(generate)()
    finally:
        caches.time = time
    return found


def test_tokens_that_come_slowly_are_not_taken_for_quick_ones():
    layered = types.SimpleNamespace(layers=[types.SimpleNamespace(is_there=True)])
    slow, at_once, later = (False, 0), (True, 0), (False, 1)
    # The first is not timed. Where tokens can be looked at quickly, every sixteenth is timed with those before it.
    assert looked_at([0.005] * 19, {"past_key_values": layered}) == [slow, slow] + [at_once] * 15 + [later, at_once]
    assert looked_at([0.005] * 17 + [0.2] + [0.005], {"past_key_values": layered}) == [slow, slow] + [at_once] * 15 + [later, slow]
    # Each is timed by itself under a name that is looked at with all others.
    assert looked_at([0.005] * 4 + [0.05] * 3, {"cache_params": layered}) == [slow, slow, later, later, later, slow, slow]
    # A cache that is there twice is timed once.
    assert looked_at([0.05] * 4, {"past_key_values": layered, "cache_params": layered}) == [slow] * 4


if __name__ == "__main__":
    tap.main(globals())
