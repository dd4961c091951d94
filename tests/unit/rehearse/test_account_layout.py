#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The account as tests in Python read it lies where src/rehearse/account.h lays it out."""

import ctypes
import os
import subprocess

import account
import tap


def test_every_member_lies_where_the_header_says():
    words = [*os.environ["EMULATOR"].split(), os.environ["ACCOUNT_LAYOUT"]]
    lines = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert len(lines) > 20, lines
    for line in lines:
        name, number = line.split()
        kind, _, member = name.partition(".")
        known = getattr(account, kind)
        ours = known if kind == "FORMAT" else getattr(known, member).offset if member else ctypes.sizeof(known)
        assert ours == int(number), (name, ours, number)


if __name__ == "__main__":
    tap.main(globals())
