#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Families of transformers' models that do something of their own, from the first pass to a step of training."""

import functools

import tap
import torch_program

BATCH, PROMPT, NEW = 2, 24, 6


@functools.cache
def rehearsed():
    """What the program wrote down, and the document of its rehearsal."""
    return torch_program.rehearse("families.py")


def check_family(name):
    """All new tokens are made, since the end was put off to the last; a decoder of its own has no prompt but a start.
    AdamW keeps two numbers in f32 for each parameter that has a gradient, and a step of 4 bytes for each tensor."""
    said = rehearsed()[0][name]
    own = name == "T5"
    assert said["weights"] == said["shapes"], said
    assert said["logits"] == [BATCH, PROMPT, 2048], said
    assert said["generated"] == {way: [BATCH, (1 if own else PROMPT) + NEW] for way in ("best", "sampled", "in beams")}, said
    trained = said["trained"]
    assert trained["norm"] == [] and trained["states"] == sum(2 * 4 * n + 4 for n in trained["parameters"]), trained


def test_experts_get_their_share_of_tokens():
    """4096 tokens, two experts of eight for each, taken in turn."""
    assert rehearsed()[0]["routed"] == [4096 * 2 // 8] * 8, rehearsed()[0]["routed"]


def test_another_thread_generates_to_the_full_length():
    """No token that is assumed ends a sequence."""
    assert rehearsed()[0]["in a thread"] == [[BATCH, PROMPT + NEW]], rehearsed()[0]["in a thread"]


def test_the_helper_gave_up_on_nothing():
    notes = rehearsed()[1]["notes"]
    assert not any("gave up" in note for note in notes), notes


for family in ("Qwen3Moe", "DeepseekV3", "Gemma2", "Mamba", "T5"):
    globals()["test_" + family + "_runs_to_its_end"] = functools.partial(check_family, family)


if __name__ == "__main__":
    tap.main(globals())
