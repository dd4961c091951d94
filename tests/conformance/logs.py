#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published runs against estimates: makes the cases and their models, and runs the program that compares them.

usage: logs.py PROGRAM FLOORS FOLDER [ROWS]. MEMTALLY_FLOORS=rewrite makes the floors what they are now.
"""
import pathlib
import shutil
import subprocess
import sys

import log_cases


def main(program, floors, folder, *rows):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    log_cases.main(folder)
    return subprocess.run([program, folder, floors, *rows], check=False).returncode


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
