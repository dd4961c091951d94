# SPDX-License-Identifier: MIT
"""What collectives bring: the look-alike of NCCL moves integers between processes, and how far they are to be trusted
goes with them."""

import ctypes

from ..watch import hooks

SPACES = {"c10d", "_c10d_functional", "_c10d_functional_autograd"}
MOST_OBJECT_BYTES = 16 << 20  # pickled; NCCL's look-alike moves no more
# Operations whose first argument is both what is brought and what comes; of others it is what comes, the second what is brought.
IN_PLACE = {"allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_"}
SENDING = {"send"}
MESSAGES = {"send", "recv_", "recv_any_source_"}  # from PyTorch 2.15 on those of a batch are told to NCCL at its end
WAITING = {"wait_tensor", "barrier", "monitored_barrier_"}
NOTHING, LATER = -1, -2  # of what the look-alike answers


class Collectives:
    def __init__(self, results):
        self.results = results
        self.awaited = []  # tensors that the end of a group or of a batch brings
        self.sent = 0  # the most doubt that is to be sent at the end of a batch
        self.bring, self.brought = library_calls()

    def call(self, func, kind, args, kwargs):
        if kind.name in WAITING:
            return func(*args, **kwargs)
        is_message, found = kind.name in MESSAGES, self.results.tensors
        sources = found(args[:1] if kind.name in IN_PLACE | SENDING or not kind.is_c10d else args[1:2])
        self._guarded(lambda: self._bring(sources, is_message))
        out = func(*args, **kwargs)
        comes = [] if kind.name in SENDING else found(args[:1] if kind.is_c10d else [out])
        self._guarded(lambda: self._came(comes, is_message))
        return out

    def settle(self, kind):
        """What the end of a group or of a batch has brought, once it is there; a message may be of the same batch."""
        doubt = self.brought()
        if doubt != LATER and not (doubt == NOTHING and kind.name in MESSAGES):
            tensors, self.awaited = self.awaited, []
            self._set(tensors, doubt)

    def _bring(self, sources, is_message):
        if not is_message or self.brought() != NOTHING:
            self.sent = 0
        self.sent = max(self.sent, self.results.doubt_of(sources))
        self.bring(self.sent)

    def _came(self, tensors, is_message):
        doubt = self.brought()
        if doubt == LATER or (doubt == NOTHING and is_message):
            self.awaited += tensors
        if doubt != LATER:
            self._set(tensors, doubt)

    def _set(self, tensors, doubt):
        for tensor in tensors:
            if self.results.is_integers(tensor):
                self.results.follow(tensor, None if doubt == NOTHING else doubt)

    def _guarded(self, call):
        try:
            call()
        except Exception as error:
            self.results.give_up(error)


def library_calls():
    """Functions of NCCL's look-alike: the doubt that goes with what this thread brings next, and the most that came."""
    library = ctypes.PyDLL(None)
    try:
        bring, brought = library.pretend_nccl_doubt, library.pretend_nccl_doubted
    except AttributeError:
        return lambda doubt: None, lambda: NOTHING
    bring.argtypes = [ctypes.c_uint32]
    return bring, brought


def follow_objects(module, results):
    """Pickled objects are longer than other bytes of the host that are worth following; `module` is distributed_c10d."""

    def made(function):
        def call(*args, **kwargs):
            before, results.most_host_bytes = results.most_host_bytes, MOST_OBJECT_BYTES
            try:
                return function(*args, **kwargs)
            finally:
                results.most_host_bytes = before

        return call

    hooks.replace(module, "_object_to_tensor", made)
