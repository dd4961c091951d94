# SPDX-License-Identifier: MIT
"""The blocks of docs/HOW-TO-ADD.md: files to make, changes to files, commands to try."""

import os
import re

PAGE = "docs/HOW-TO-ADD.md"
BLOCK = re.compile(r"^```(\S+) ?(\S*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


class Block:
    """kind is "new", "diff" or "try"; path is empty of what is tried."""

    def __init__(self, kind, path, text, line, recipe):
        self.kind, self.path, self.text, self.line, self.recipe = kind, path, text, line, recipe


def blocks_of(page):
    headings = [(found.start(), found.group(1)) for found in HEADING.finditer(page)]
    blocks = []
    for found in BLOCK.finditer(page):
        language, first, second, text = found.groups()
        line = page.count("\n", 0, found.start()) + 1
        recipe = [name for start, name in headings if start < found.start()][-1]
        if language == "diff":
            blocks.append(Block("diff", first, text, line, recipe))
        elif first in ("new", "try"):
            blocks.append(Block(first, second, text, line, recipe))
        else:
            raise ValueError(f"{PAGE}:{line}: a block that is neither new, diff nor try")
    return blocks


def changed(text, diff):
    """The text with one change made. ValueError if what it replaces is not there exactly once."""
    lines = diff.splitlines()
    before = "".join(line[1:] + "\n" for line in lines if line[:1] != "+")
    after = "".join(line[1:] + "\n" for line in lines if line[:1] != "-")
    # A last line without its end stands for the beginning of a line.
    for old, new in ((before, after), (before[:-1], after[:-1])):
        at = [found.start() for found in re.finditer("^" + re.escape(old), text, re.MULTILINE)]
        if len(at) == 1:
            return text[: at[0]] + new + text[at[0] + len(old) :]
    raise ValueError(f"what is to change stands there {len(at)} times: {before.strip()[:60]}")


def apply(block, root):
    path = f"{root}/{block.path}"
    if block.kind == "new":
        if os.path.exists(path):
            raise ValueError("the file is there already")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        text = block.text
    else:
        with open(path, encoding="utf-8") as file:
            text = changed(file.read(), block.text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
