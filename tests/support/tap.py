# SPDX-License-Identifier: MIT
"""Tests in Python that speak TAP: functions called test_*, run in the order of the file.

A test fails by an exception; `Skip` says why it cannot run here. Use:

    import tap
    def test_the_total_is_the_sum_of_its_rows(): ...
    if __name__ == "__main__":
        tap.main(globals())
"""

import re
import sys
import traceback


class Skip(Exception):
    """Raised by a test that cannot run on this machine; its text says why."""


def comment(text):
    """Prints lines that explain the result after them."""
    for line in str(text).splitlines():
        print("#", line, flush=True)


def sentence(name):
    return re.sub(r"^test_", "", name).replace("_", " ")


def run(number, name, function):
    """Runs one test, prints its line, and returns whether it held."""
    try:
        function()
    except Skip as reason:
        print(f"ok {number} - {sentence(name)} # SKIP {reason}", flush=True)
    except Exception:  # pylint: disable=broad-except
        comment(traceback.format_exc())
        print(f"not ok {number} - {sentence(name)}", flush=True)
        return False
    else:
        print(f"ok {number} - {sentence(name)}", flush=True)
    return True


def main(namespace, only=None):
    """Runs the tests of a module and exits: 0 if all held. Arguments choose tests by name."""
    chosen = only or sys.argv[1:]
    tests = [
        (name, value)
        for name, value in namespace.items()
        if name.startswith("test_") and callable(value) and (not chosen or name in chosen)
    ]
    print(f"1..{len(tests)}", flush=True)
    results = [run(number, *test) for number, test in enumerate(tests, 1)]
    sys.exit(0 if results and all(results) else 1)
