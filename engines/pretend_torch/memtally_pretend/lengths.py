# SPDX-License-Identifier: MIT
"""Lengths that an engine reads back from the device, in a rehearsal what no kernel computed.

Those to check shapes by are those that the shapes have: FlashInfer keeps the total length of a batch's queries
when it plans and compares it with the queries that it is given. Those that decide a size are computed on the host,
of what the engine itself copied to the device.
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

# Module: its functions of one small tensor of integers whose result is as long as their sum.
OF_LENGTHS = {
    "vllm.v1.attention.backends.flex_attention": ["_offsets_to_doc_ids_tensor"],
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


def on_host(function):
    """What is on the device is read back: the driver has what was copied there."""

    def call(offsets):
        return function(offsets.cpu()).to(offsets.device) if offsets.is_cuda else function(offsets)

    return call


def start(watch):
    hooks.replace_when_imported(watch, OF_LENGTHS, on_host)
    for name, (methods, attribute) in KEEPERS.items():
        hooks.replace_when_imported(watch, {name: methods}, _any_length(attribute))
