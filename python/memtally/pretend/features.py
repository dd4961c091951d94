# SPDX-License-Identifier: MIT
"""What switches itself off in a rehearsal and would not on a true device: the reader is told which, and the device's
band holds what it would take, where that is known.

Pretended cards say that they cannot multicast; cards behind an NVSwitch can. FlashInfer's workspace for all-reduces is
made by its own code; where that fails, what it would have taken follows from its arguments as FlashInfer's
documentation has it.
"""

import ctypes
import functools
import re

from ..watch import hooks, tables

OFF = "%s switched itself off: it wants what these pretended devices lack, so that a true run may take a little more or less"
FAILED = "FlashInfer's all-reduce workspace was not made here: a true device may hold it"
MOST_COMMUNICATED_BYTES = 2147483647 & ~((1 << 21) - 1)  # of the part that is there three times

# Module: its functions that make a workspace for all-reduces, whose arguments have names.
WORKSPACES = {
    "flashinfer.comm.allreduce": ["create_allreduce_fusion_workspace"],
    "flashinfer.comm.trtllm_ar": ["trtllm_create_ipc_workspace_for_all_reduce_fusion"],
}


def workspace_bytes(ranks, tokens, width, element=2):
    """The bytes of FlashInfer's fused all-reduce: what all ranks exchange, and three times what they pass on without waiting."""
    exchanged = ranks * tokens * width * element
    return exchanged + 3 * min(exchanged, MOST_COMMUNICATED_BYTES)


def _size_of(arguments):
    ranks = arguments.get("world_size") or arguments.get("tp_size") or 1
    is_wide = arguments.get("use_fp32_lamport") or "float32" in str(arguments.get("dtype"))
    return workspace_bytes(int(ranks), int(arguments["max_token_num"]), int(arguments["hidden_dim"]), 4 if is_wide else 2)


def absent(n_bytes, text):
    """Tells the account once, by text and bytes, what the current device lacks."""
    library = ctypes.PyDLL(None)
    library.pretend_cuda_absent.argtypes = [ctypes.c_uint64, ctypes.c_char_p]
    library.pretend_cuda_absent.restype = None
    library.pretend_cuda_absent(n_bytes, text.encode())


class Workspaces:
    """An engine tries one way and then another: what counts is whether any of them came to be."""

    def __init__(self, trace):
        self.trace = trace
        self.depth = 0
        self.told = False

    def around(self, function):
        import inspect

        def create(*args, **kwargs):
            self.depth += 1
            try:
                return function(*args, **kwargs)
            except Exception:
                self._failed(inspect.signature(function).bind(*args, **kwargs).arguments)
                raise
            finally:
                self.depth -= 1

        return create

    def _failed(self, arguments):
        if self.told or self.depth > 1 or arguments.get("backend") == "mnnvl":
            return
        self.told = True
        try:
            absent(_size_of(arguments), FAILED)
        except Exception as error:
            self.trace.failed("FlashInfer's workspace", error)


@functools.cache
def _patterns():
    return [(row.package, re.compile(row.pattern), row.name) for row in tables.features()]


def look(trace, package, text):
    """At a line of an engine's log."""
    for of, pattern, name in _patterns():
        if of == package and pattern.search(text):
            trace.say(OFF % name)


def start(watch):
    hooks.replace_when_imported(watch, WORKSPACES, Workspaces(watch.trace).around)
