# SPDX-License-Identifier: MIT
"""What the programs beside this file share, each of which loads a model in one engine: their arguments, the
package that they need, and how much an engine takes at a time."""

import json
import os
import sys
import tempfile

SPARE_TOKENS = 8  # of a context, for what is written


def read_arguments():
    """The model's folder and the settings, of which the engine's version is not one."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    settings = json.loads(sys.argv[2])
    return sys.argv[1], settings, settings.pop("version", None)


def version_of(package):
    """The version of a package of this Python, or None."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_version(package, wanted):
    """This Python has the package, in the version that was asked for."""
    version = version_of(package)
    if not version:
        sys.exit(f"this Python has no {package}; name one that has it with --engine-path")
    if wanted and version != wanted:
        sys.exit(f"this Python has {package} {version}, not {wanted}; name another with --engine-path")


def largest_batch(longest, at_a_time, most):
    """How many prompts of which length make one batch as large as it may be: of `at_a_time` tokens, in at most
    `most` prompts, each of which leaves some of `longest` for what is written."""
    length = max(1, min(longest - SPARE_TOKENS, at_a_time))
    return max(1, min(most, at_a_time // length)), length


def tell(sentence):
    """Has the reader of a rehearsal told a sentence."""
    say = getattr(sys.modules.get("_memtally_helper.watch"), "say", None)
    if say:
        say(sentence)


def rehearsal_folder():
    """Where files of this rehearsal may be made; it is removed after it."""
    account = os.environ.get("MEMTALLY_REHEARSAL")
    return os.path.dirname(account) if account else tempfile.mkdtemp()
