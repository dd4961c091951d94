#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Collectives of two processes on two pretended devices: integers, bytes and objects are what the definition of each
collective makes of them, on both sides, and nobody is told to doubt them."""

import functools

import tap
import torch_program

N = 70_001


@functools.cache
def rehearsed():
    """What each rank wrote down, and the document of the rehearsal."""
    return torch_program.rehearse_ranks("collected.py", "2GiB,2GiB")


def both(of):
    return [said[of] for said in rehearsed()[0]]


def test_integers_are_reduced_to_all_to_one_and_in_parts():
    """7 and 250 with 9 and -3. Of 200 and 100 a byte keeps 300 - 256."""
    expected = {"SUM": [16, 247], "PRODUCT": [63, -750], "MAX": [9, 250], "MIN": [7, -3], "bytes": [44, 8],
                "greatest byte": [200], "any": [True]}
    for rank, said in enumerate(both("reduced")):
        assert {key: said[key] for key in expected} == expected, said
        assert said["scattered"] == [[0 + 10, 1 + 11], [2 + 12, 3 + 13]][rank], said
    assert both("reduced")[1]["to the second"] == [16, 247], both("reduced")


def test_integers_are_gathered_scattered_and_broadcast():
    for said in both("gathered"):
        assert said["in a row"] == [0, 5, 1, 6] and said["in a list"] == [[0, 0], [1, -1]], said
        assert said["broadcast"] == [1, 4], said
    first, second = both("gathered")
    assert second["by the second"] == [[0, 8], [1, 8]], second
    assert first["of the second"] == [4, 5] and second["of the second"] == [6, 7], (first, second)


def test_what_experts_get_is_as_long_as_the_counts_that_were_swapped():
    """The first sends one to itself and two to the other, which sends three and four."""
    first, second = both("swapped")
    assert first["counts"] == [1, 3] and second["counts"] == [2, 4], (first, second)
    assert first["tokens"] == [0, 100, 101, 102] and second["tokens"] == [1, 2, 103, 104, 105, 106], (first, second)
    assert first["wide"] == [1 + 3, 1024] and second["wide"] == [2 + 4, 1024], (first, second)
    assert first["parts"] == [[0], [1]] and second["parts"] == [[10], [11]], (first, second)


def test_messages_come_in_turn_and_in_both_directions_at_once():
    first, second = both("sent")
    assert second["in turn"] == [[5, 6], [7]], second
    assert first["at once"] == [1, 21] and second["at once"] == [0, 20], (first, second)


def test_objects_come_whole():
    for said in both("objects"):
        assert said == {"all": [[0, 1000], [1, 1001]], "broadcast": 0, "large": 3_000_000, "sent": 0}, said


def test_many_integers_come_whole():
    """0 … N - 1 of the first, 1 … N of the second; the last of the first and the first of the second change places."""
    for said in both("pieces"):
        assert said["sum"] == [1, 2 * N - 1] and said["both"] == [N - 1, 1, N], said
    assert [said["swapped"] for said in both("pieces")] == [[0, 1], [N - 1, N]], both("pieces")


def test_values_that_all_ranks_know_are_not_doubted():
    notes = rehearsed()[1]["notes"]
    assert not any("device values" in note or "did not come" in note or "gave up" in note for note in notes), notes


if __name__ == "__main__":
    tap.main(globals())
