#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sizes that come from values on a pretended device: what is known there is what the host computes of the same tensors,
and what is not is zeros, whatever memory held before."""

import functools

import tap
import torch_program


@functools.cache
def rehearsed():
    """What the program wrote down, and the document of its rehearsal."""
    return torch_program.rehearse("sizes.py")


def check_same(size):
    said = rehearsed()[0][size]
    assert len(said) > 20, said
    assert all(one["same"] for one in said.values()), {name: one for name, one in said.items() if not one["same"]}


def test_few_integers_are_those_of_the_host():
    check_same("small")


def test_many_integers_are_those_of_the_host():
    check_same("large")


def device(name):
    return rehearsed()[0]["device"][name]


def test_what_no_kernel_computed_counts_as_nothing():
    """60,000 times 4 floats, of which nobody knows which are positive: no row of two indices, no number, none different."""
    assert device("few are positive") == [[0, 2], []], device("few are positive")
    assert device("positive ones") == [0] == device("different floats"), rehearsed()[0]["device"]
    assert device("a loss") == 0 and device("compiled") == [[8], [0] * 8], rehearsed()[0]["device"]


def test_values_for_an_unknown_mask_find_as_many_places():
    assert device("positive ones are set") == [60000, 4], device("positive ones are set")


def test_solvers_have_no_complaint():
    """Their results have the shapes of their arguments, as LAPACK's have."""
    said = rehearsed()[0]["device"]
    assert said["eigenvalues"] == [[6], [6, 6]] and said["inverse"] == [3, 4, 4], said
    assert said["least squares"] == [4, 4] and said["singular values"] == [4], said


def test_lengths_of_labels_may_lie_on_the_host():
    assert device("labels of known lengths") == [50, 4, 20], device("labels of known lengths")


def test_the_reader_is_told_where_sizes_came_from_values():
    notes = rehearsed()[1]["notes"]
    assert any("sizes here came from device values: " in note and "sizes.py:" in note for note in notes), notes
    assert not any("gave up" in note for note in notes), notes


def test_a_mask_of_any_length_decides_as_its_values_do():
    said = rehearsed()[0]["decisions"]
    assert said == {"whole": True, "padded": False, "of int32": False, "of bool": True, "padded of bool": False,
                    "of tokens": True}, said


def test_the_reader_is_told_which_side_an_unknown_decision_is_on():
    """A mask of int32 that is not followed is taken to hide something, and attention then makes it in full."""
    notes = [note for note in rehearsed()[1]["notes"] if "all of its mask: a run may take less" in note]
    assert len(notes) == 1 and "sizes.py:" in notes[0], rehearsed()[1]["notes"]
    assert any("counts as none there, so that a run may take more" in note for note in rehearsed()[1]["notes"])


if __name__ == "__main__":
    tap.main(globals())
