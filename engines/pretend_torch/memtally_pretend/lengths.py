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


def start(watch):
    for name, (methods, attribute) in KEEPERS.items():

        def make(function, attribute=attribute):
            def plan(self, *args, **kwargs):
                result = function(self, *args, **kwargs)
                if hasattr(self, attribute):
                    setattr(self, attribute, Any(getattr(self, attribute)))
                return result

            return plan

        def wrap(module, methods=methods, make=make):
            for method in methods:
                hooks.replace(module, method, make)

        watch.when_imported(name, wrap)
