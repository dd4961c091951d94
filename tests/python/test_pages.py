#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pages on Python say what happens: their blocks run in order, in an environment that has the wheel alone, and print what
stands below them. Where that differs from machine to machine ("text varies"), numbers, units and the width of columns do not count.

MEMTALLY_GOLDEN=rewrite writes what is printed into the pages.
"""

import glob
import json
import os
import re

import package
import tap

PAGES = os.path.join(package.ROOT, "docs", "python")
BLOCK = re.compile(r"^```python test\n(.*?)^```\n\n```text( varies)?\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?[\d.]+(?: (?:B|[KMGT]iB)\b)?")
RUN = """
    import contextlib, io, json, os, sys
    names, printed = {}, []
    for block in json.load(open(sys.argv[1])):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(compile(block, "page", "exec"), names)
        printed.append(text.getvalue().rstrip() + "\\n")
    print(json.dumps(printed))
"""


def check(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{path} has no example that runs"
    if any("exact" in block.group(3) for block in blocks):
        package.needs_exact_peaks()
    listed = os.path.join(os.path.dirname(package.environment()), os.path.basename(path) + ".json")
    with open(listed, "w", encoding="utf-8") as file:
        json.dump([block.group(1) for block in blocks], file)
    search = os.pathsep.join([os.path.dirname(package.program()), os.environ["PATH"]])
    printed = package.answered(RUN, listed, PATH=search)
    if os.environ.get("MEMTALLY_GOLDEN") == "rewrite":
        return rewrite(path, text, blocks, printed)
    for block, now in zip(blocks, printed, strict=True):
        before, varies = block.group(3), block.group(2)
        same = shape(now) == shape(before) if varies else now == before
        assert same, f"{path}: after\n{block.group(1)}\nstands\n{before}\nand it prints\n{now}"




def shape(text):
    """Without numbers, their units, and the blanks that columns of such width have."""
    return re.sub(" +", " ", NUMBER.sub("#", text))


def rewrite(path, text, blocks, printed):
    for block, now in reversed(list(zip(blocks, printed, strict=True))):
        text = text[: block.start(3)] + now + text[block.end(3) :]
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def page(name):
    return lambda: check(os.path.join(PAGES, name))


if __name__ == "__main__":
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(PAGES, "*.md")))
    tap.main({f"test_the_page_{name.removesuffix('.md')}_says_what_happens": page(name) for name in names})
