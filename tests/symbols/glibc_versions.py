#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says which versions of glibc an object asks for, by readelf; fails where one is newer than the second argument."""

import re
import subprocess
import sys


def number(version):
    return tuple(map(int, version.split(".")))


def main(path, most):
    said = subprocess.run(["readelf", "--version-info", "--wide", path], capture_output=True, text=True, check=True).stdout
    needed = said[said.index("Version needs section"):]
    asked = sorted(set(re.findall(r"Name: GLIBC_([0-9.]+)", needed)), key=number)
    print("asks for glibc", ", ".join(asked))
    return 0 if asked and number(asked[-1]) <= number(most) else 1


sys.exit(main(*sys.argv[1:]))
