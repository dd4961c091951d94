# SPDX-License-Identifier: MIT
"""Runs out of memory that it would have: 200 MiB of a segment that 400 MiB lie in are of no use to 1400 MiB.

Of 2 GiB: 600 MiB are given back to PyTorch, which cuts 200 MiB of them, keeps the rest, takes a new segment for 600
MiB, gets these back as well, and cuts 200 MiB of the first rest. The second segment is free as a whole and goes back
to the driver when memory runs out; of the first one 200 MiB cannot."""

import torch

MIB = 1 << 20


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def ask_for_more():
    return block(1400)


def main():
    large = block(600)
    del large
    first = block(200)
    large = block(600)
    del large
    second = block(200)
    assert ask_for_more() is not None and first is not second


if __name__ == "__main__":
    main()
