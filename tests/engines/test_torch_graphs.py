#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA graphs on a pretended device: small integers that a graph computes are there after each replay."""

import functools

import tap
import torch_program


@functools.cache
def rehearsed():
    """What the program wrote down, and the document of its rehearsal."""
    return torch_program.rehearse("replayed.py")


def said(name):
    return rehearsed()[0][name]


def test_decoding_ends_where_a_graph_computes_whether_it_is_to():
    """The longer of two sequences has nine tokens, so that the ninth step is the last, with a graph and without."""
    for name in ("eager", "replayed", "again"):
        assert said(name)["steps"] == 9, (name, said(name))


def test_state_on_the_device_goes_on_from_replay_to_replay():
    for name in ("eager", "replayed", "again"):
        assert said(name)["lengths"] == [4, 9] and said(name)["before"] == [4, 8], (name, said(name))
        assert said(name)["token"], (name, said(name))


def test_a_copy_to_the_host_within_a_graph_brings_what_the_graph_computed():
    assert said("replayed")["told"] == [4, 9] == said("eager")["told"], rehearsed()[0]


def test_what_a_graph_clears_is_cleared_after_it_was_read():
    """Of 0, 1, 2 that are added to what was left: nothing at first, ones from then on."""
    assert said("in place") == [[[0, 1, 2], [1, 1, 1]], [[1, 3, 5], [1, 1, 1]], [[2, 5, 8], [1, 1, 1]]], said("in place")


def test_replays_take_no_memory():
    assert said("held by replays") == 0, said("held by replays")


def test_nothing_read_is_called_unknown():
    notes = [note for note in rehearsed()[1]["notes"] if "came from device values" in note]
    assert not notes, notes


if __name__ == "__main__":
    tap.main(globals())
