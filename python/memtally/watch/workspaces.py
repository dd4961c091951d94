# SPDX-License-Identifier: MIT
"""Buffers that FlashInfer works in: those that its wrappers hold, whoever made them, and those that it keeps for all."""

from . import hooks

PACKAGE = "flashinfer"
NAME = "FlashInfer"


def is_wanted(name):
    """Whether a module is FlashInfer's own; what it brings of others is none."""
    return (name == PACKAGE or name.startswith(PACKAGE + ".")) and ".data." not in name


class Workspaces:
    def __init__(self, trace, torch, tell):
        self.trace = trace
        self.torch = torch
        self.tell = tell

    def start(self, watch):
        watch.when_any_imported(is_wanted, self._wrap)

    def _wrap(self, module):
        for name, kind in list(vars(module).items()):
            if isinstance(kind, type) and kind.__module__ == module.__name__ and name.endswith("Wrapper"):
                for function in ("__init__", "reset_workspace_buffer"):
                    hooks.replace(module, name + "." + function, self._then(self._held_by), unseen=True)
        if module.__name__ == PACKAGE + ".utils":
            hooks.replace(module, "_get_cache_buf", self._then(self._given), unseen=True)

    def _then(self, tensors_of):
        """Makes a function after which the tensors are told that it left."""

        def make(function):
            def call_and_tell(*args, **kwargs):
                result = function(*args, **kwargs)
                try:
                    for tensor in tensors_of(result, args):
                        if isinstance(tensor, self.torch.Tensor):
                            self.tell(tensor, "workspace", NAME)
                except Exception as error:
                    self.trace.failed("workspaces of FlashInfer", error)
                return result

            return call_and_tell

        return make

    def _held_by(self, result, args):
        return [value for name, value in list(vars(args[0]).items()) if "workspace" in name]

    def _given(self, result, args):
        return [result]
