# SPDX-License-Identifier: MIT
"""Running `memtally rehearse` over a command and reading what the command planned."""

import json

import memtally

CACHE = ("kv_cache", "recurrent_state")


class Failed(Exception):
    """The rehearsed program did not plan: with its last words."""


def run(command, devices, size="512GiB", flags=(), timeout=120, **more):
    """The document of a rehearsal of `command` on so many devices of a size; `flags` are
    rehearse's own. A command that is to use the CPU alone is told so by its own flags, and has one device to shun."""
    pretended = ["--device", f"{max(devices, 1)}x{size}"]
    done = memtally.run("rehearse", "--json", "--quiet", *pretended, *flags, "--", *command, timeout=timeout, **more)
    if done.returncode not in (0, 1) or not done.stdout:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-800:]}")
    document = json.loads(done.stdout)
    if document["rehearsal"]["outcome"] != "ran":
        raise Failed(f"{' '.join(command)} {document['rehearsal']['outcome']}: {document['rehearsal']['last_words']}")
    return document


def places(document):
    """{place: {category: bytes, 'output': bytes}} of a document; `activations` are without the output."""
    found = {}
    for place in document["places"]:
        rows = {row["category"]: row["allocated_bytes"] for row in place["rows"]}
        rows["output"] = sum(part["allocated_bytes"] for row in place["rows"] if row["category"] == "activations"
                             for part in row["detail"] if place["place"] == "host" and "compute" not in part["name"])
        rows["activations"] = rows.get("activations", 0) - rows["output"]
        found[place["place"]] = rows
    return found
