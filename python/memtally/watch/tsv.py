# SPDX-License-Identifier: MIT
"""Tables that a process leaves in a recording, KIND-PID.tsv: a line that says what it is, one of the columns' names,
and the rows. A file is replaced once the next one is complete."""

import os


def write(folders, kind, columns, rows):
    lines = ["memtally-%s 1" % kind, "\t".join(columns)]
    lines += ["\t".join(_clean(value) for value in row) for row in rows]
    if len(lines) == 2:
        return
    data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    for folder in folders:
        path = os.path.join(folder, "%s-%d.tsv" % (kind, os.getpid()))
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)


def _clean(value):
    return "".join(c if c.isprintable() else " " for c in str(value))[:400]
