#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at the caches of a model in the watched program, with a clock in time's place and without PyTorch: which tokens count as quick; and what
is told of pools of graphs."""

import os
import re
import sys
import time
import types

import tap

sys.path.insert(0, os.environ["PYTHON_PACKAGES"])
sys.dont_write_bytecode = True

from memtally.watch import allocator, caches, graphs  # noqa: E402


def looked_at(seconds, outputs):
    """After each of so many tokens, each so many seconds after the one before, whether it was looked at quickly, and how often layers were."""
    torch = types.SimpleNamespace(Tensor=type("Tensor", (), {}), cuda=types.SimpleNamespace(is_initialized=lambda: False))
    labels = types.SimpleNamespace(label_block=lambda *_: None, label_aligned=None)
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


class Tensor:
    is_cpu = True

    def __init__(self, address):
        self.address = address

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return 64

    def resizable(self):
        return True

    def is_shared(self):
        return False


class Recorder:
    """What labels what is allocated between two calls of label_aligned(), and counts it where the name is empty."""

    def __init__(self):
        self.address, self.mark, self.n_told, self.told = 4096, (), 0, set()

    def allocate(self):
        self.address += 64
        if self.mark:
            self.n_told += 1
        if self.mark and self.mark[1]:
            self.told.add(self.address)
        return Tensor(self.address)

    def label_aligned(self, *mark):
        self.mark = mark

    def aligned(self, _):
        n, self.n_told = self.n_told, 0
        return n

    def label_block(self, address, *_):
        self.told.add(address)


class Layer:
    def __init__(self, recorder, update):
        self.recorder, self.how = recorder, update
        self.keys, self.values = recorder.allocate(), recorder.allocate()


def grow(layer):
    layer.keys, layer.values = layer.recorder.allocate(), layer.recorder.allocate()


others = set()


def grow_with_another(layer):
    others.add(layer.recorder.allocate().address)
    grow(layer)


def written(update, tokens=40):
    """How many tokens the layers were not known after, how often updates were told of before, and the recorder at the end."""
    torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(is_initialized=lambda: False))
    recorder = written.recorder = Recorder()
    one = caches.Caches(types.SimpleNamespace(failed=lambda *error: sys.exit(error)), torch, recorder, None, None)
    one.plain |= {Recorder, type(grow)}
    layers, clock, unknown, marked = [Layer(recorder, update) for _ in range(3)], [100.0], [], []
    around = one.around_layer(lambda layer: (marked.append(bool(recorder.mark)), layer.how(layer)))

    def generate():
        for _ in range(tokens):
            clock[0] += 0.005
            for layer in layers:
                around(layer)
            one.look_after_token({"past_key_values": types.SimpleNamespace(layers=layers)})
            unknown.append(any(one.address not in recorder.told for layer in layers for one in (layer.keys, layer.values)))

    caches.time = types.SimpleNamespace(monotonic=lambda: clock[0])
    try:
        one.during_generate(generate)()
    finally:
        caches.time = time
    assert not recorder.mark and not any(unknown), unknown
    return sum(marked)


def test_what_updates_allocate_is_told_before_where_layers_keep_just_that():
    assert written(grow) > 100, written(grow)
    assert written(lambda layer: None) > 100  # of a static cache nothing is allocated
    assert written(grow_with_another) == 3  # three layers of the one token that showed it
    assert not written.recorder.told & others  # which was counted only


def test_an_error_of_an_update_leaves_nothing_told():
    def fails_late(layer):
        if layer.recorder.mark:
            raise KeyError("the program's own")
        grow(layer)

    try:
        written(fails_late)
        raise AssertionError("the error is gone")
    except KeyError:
        assert not written.recorder.mark


class Slotted:
    __slots__ = ("keys",)


def test_layers_whose_tensors_nobody_can_look_at_do_not_harm_the_program():
    def no_storage():
        raise NotImplementedError("Cannot access storage of SparseTensorImpl")

    sparse = Tensor(4096)
    sparse.untyped_storage = no_storage
    for layer in types.SimpleNamespace(keys=sparse), Slotted():
        torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(is_initialized=lambda: False))
        one = caches.Caches(types.SimpleNamespace(failed=lambda *error: sys.exit(error)), torch, Recorder(), lambda *_: None, lambda *_: None)
        clock, found = [100.0], []

        def generate():
            for _ in range(4):
                clock[0] += 0.005  # pylint: disable=cell-var-from-loop
                found.append(one.look_after_token({"past_key_values": types.SimpleNamespace(layers=[layer])}))  # pylint: disable=cell-var-from-loop

        caches.time = types.SimpleNamespace(monotonic=lambda: clock[0])  # pylint: disable=cell-var-from-loop
        try:
            one.during_generate(generate)()
        finally:
            caches.time = time
        assert len(found) == 4, (layer, found)


def test_a_pool_that_another_thread_captures_in_meanwhile_has_graphs():
    class Left(dict):
        def __contains__(self, name):
            return super().__contains__(name) and bool(self.pop(name))

    own = graphs.Graphs(types.SimpleNamespace(line=lambda *_: None), types.SimpleNamespace())
    own.left = Left({(5, 0): 7})
    assert own.end_of((5, 0)) in (None, 7)


def test_layers_that_are_a_number_do_not_end_the_program():
    """As a cache of a model's own may have it, which is none of transformers'."""
    torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(is_initialized=lambda: False))
    errors, clock = [], [100.0]
    one = caches.Caches(types.SimpleNamespace(failed=lambda *error: errors.append(error)), torch, Recorder(), None, None)

    def generate():
        for _ in range(3):
            clock[0] += 0.005
            assert not one.look_after_token({"past_key_values": types.SimpleNamespace(layers=24)})

    caches.time = types.SimpleNamespace(monotonic=lambda: clock[0])
    try:
        one.during_generate(generate)()
    finally:
        caches.time = time
    assert errors and not one.quick, (errors, one.quick)


def test_a_private_pool_is_told_of_as_long_as_graphs_are_in_it():
    trace = types.SimpleNamespace(line=lambda *_: None, say=lambda *_: None)
    reader, own = allocator.History(trace, types.SimpleNamespace()), graphs.Graphs(trace, types.SimpleNamespace())
    reader.end_of_pool = own.end_of
    segments = [{"address": at, "device": 0, "total_size": 2097152, "segment_pool_id": pool, "blocks": []}
                for at, pool in ((0x1000, (0, 1)), (0x2000, (0, 2)), (0x3000, (5, 0)))]

    def told():
        lines = []
        for segment in segments:
            reader._take_segment(segment, lines)
        return [re.sub("q [0-9]+", "q TIME", line) for line in lines]

    assert told() == ["p 3000"]  # PyTorch's own name: of a capture that goes on
    for number, pool in ((1, (0, 2)), (2, (0, 2)), (3, (5, 0))):
        own.living[number], own.pool_of[number] = object(), pool
        own._expect(pool).add(number)
    assert told() == ["p 2000"]
    own._gone(1)
    own._gone(3)
    assert told() == ["q TIME 3000"]
    own._gone(2)
    assert told() == ["q TIME 2000"] and told() == []
    own._expect((0, 2))  # captured in again
    assert told() == ["p 2000"]
    own._failed((graphs.NOTHING, 0, 0, 0, None, 0, 0, (0, 2)), MemoryError())
    assert told() == ["q TIME 2000"]


if __name__ == "__main__":
    tap.main(globals())
