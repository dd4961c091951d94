#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published runs against estimates: makes the cases and their models, and runs the program that compares them.

usage: logs.py PROGRAM FLOORS FOLDER. MEMTALLY_FLOORS=rewrite makes the floors what they are now. FOLDER/rows.tsv
gets each comparison.
"""
import pathlib
import shutil
import subprocess
import sys

import log_bands
import log_cases


def main(program, floors, folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    log_cases.main(folder)
    code = subprocess.run([program, folder, floors, folder / 'rows.tsv'], check=False).returncode
    return log_bands.main(folder, folder / 'rows.tsv') or code


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
