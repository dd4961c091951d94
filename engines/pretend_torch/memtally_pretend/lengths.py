# SPDX-License-Identifier: MIT
"""Lengths that an engine reads back from the device to check shapes by are those that the shapes have.

In a rehearsal they are what no kernel computed. FlashInfer keeps the total length of a batch's queries
when it plans and compares it with the queries that it is given.
"""

from . import hooks

# Module: its methods that read a length, and the attribute that they keep it in.
KEEPERS = {
    "flashinfer.prefill": (
        [
            f"{wrapper}.{method}"
            for wrapper in ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper")
            for method in ("plan", "begin_forward")
        ],
        "_qo_indptr_last",
    ),
}


class Any(int):
    """A number that is as large as the one that it is compared with."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = int.__hash__


def _any_length(attribute):
    def make(function):
        def plan(self, *args, **kwargs):
            result = function(self, *args, **kwargs)
            if hasattr(self, attribute):
                setattr(self, attribute, Any(getattr(self, attribute)))
            return result

        return plan

    return make


def start(watch):
    for name, (methods, attribute) in KEEPERS.items():
        hooks.replace_when_imported(watch, {name: methods}, _any_length(attribute))
