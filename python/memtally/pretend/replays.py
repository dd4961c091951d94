# SPDX-License-Identifier: MIT
"""Small results of what a CUDA graph does, computed again each time that it is replayed.

While a graph is captured nothing runs, and a replay asks for no operation of PyTorch's. So the operations on small
tensors are kept with the graph that captured them, in their order, and computed on the host after each replay. What is
kept of a tensor is where its bytes are: memory of a graph's own is used again within it, and stays as long as it does.
The driver has done the copies and the fillings of a graph by then, each with what was there before; what is
computed here begins with the bytes from before that.
"""

import ctypes
import threading

from ..watch import hooks


MOST_SAVED_BYTES = 1 << 20  # of a storage: what is larger is not filled or copied by a driver alone


class Tape:
    """What one graph does, and the memory that it does it in."""

    def __init__(self, torch):
        self.torch = torch
        self.steps = []  # (func, kind, args, kwargs, outs)
        self.storages = {}  # (address, bytes): one of ours there, which owns nothing
        self.written = set()

    def add(self, func, kind, args, kwargs, outs):
        self.steps.append((func, kind, self._kept(args), self._kept(kwargs), [self._kept(one) for one in outs]))
        for one in outs:
            if one.is_cuda:
                self.written.add((one.untyped_storage().data_ptr(), one.untyped_storage().nbytes()))

    def _kept(self, value):
        """The same with tensors of the device that own nothing, so that the program's own go when it lets them go."""
        if isinstance(value, self.torch.Tensor):
            return self._at_the_same_place(value) if value.is_cuda else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._kept(part) for part in value)
        if isinstance(value, dict):
            return {key: self._kept(part) for key, part in value.items()}
        return value

    def _at_the_same_place(self, tensor):
        of = tensor.untyped_storage()
        key = (of.data_ptr(), of.nbytes())
        if key not in self.storages:
            self.storages[key] = self.torch._C._construct_storage_from_data_pointer(key[0], tensor.device, key[1])
        described = {"size": tensor.shape, "stride": tensor.stride(), "storage_offset": tensor.storage_offset(),
                     "dtype": tensor.dtype, "device": tensor.device, "nbytes": key[1]}
        return self.torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata(described, self.storages[key])

    def bytes(self):
        return [(address, ctypes.string_at(address, size)) for address, size in self.written if 0 < size <= MOST_SAVED_BYTES]


class Replays:
    def __init__(self, results, torch):
        self.results = results
        self.torch = torch
        self.capturing = {}  # thread: the tape of the graph that it captures

    def start(self):
        graphs = getattr(self.torch.cuda, "graphs", None)
        if not hasattr(graphs, "CUDAGraph") or not hasattr(self.torch._C, "_construct_storage_from_data_pointer"):
            return
        hooks.replace(graphs, "CUDAGraph.capture_begin", self._around_begin)
        hooks.replace(graphs, "CUDAGraph.capture_end", self._around_end)
        hooks.replace(graphs, "CUDAGraph.reset", self._around_reset)
        hooks.replace(graphs, "CUDAGraph.replay", self._around_replay)

    def add(self, func, kind, args, kwargs, outs):
        """An operation of a graph that is being captured. Whether it is kept."""
        tape = self.capturing.get(threading.get_ident())
        if tape is not None:
            tape.add(func, kind, args, kwargs, outs)
        return tape is not None

    def _around_begin(self, begin):
        def capture_begin(graph, *args, **kwargs):
            begin(graph, *args, **kwargs)
            self._quietly(lambda: self._put_in(graph))

        return capture_begin

    def _put_in(self, graph):
        graph._memtally_tape = self.capturing[threading.get_ident()] = Tape(self.torch)

    def _around_end(self, end):
        def capture_end(graph, *args, **kwargs):
            self.capturing.pop(threading.get_ident(), None)
            return end(graph, *args, **kwargs)

        return capture_end

    def _around_reset(self, reset):
        def forget(graph, *args, **kwargs):
            graph._memtally_tape = None
            return reset(graph, *args, **kwargs)

        return forget

    def _around_replay(self, replay):
        def run(graph, *args, **kwargs):
            tape = getattr(graph, "_memtally_tape", None)
            if tape is None or not tape.steps or not self.results.is_on:
                return replay(graph, *args, **kwargs)
            before = self._quietly(tape.bytes)
            result = replay(graph, *args, **kwargs)
            if before is not None:
                self._quietly(lambda: self._run(tape, before))
            return result

        return run

    def _quietly(self, call):
        try:
            return call()
        except Exception as error:
            self.results.give_up(error)
            return None

    def _run(self, tape, before):
        from torch.utils._python_dispatch import _disable_current_modes

        for address, content in before:
            ctypes.memmove(address, content, len(content))
        with _disable_current_modes():
            self.results.lend(tape.storages)
            try:
                for step in tape.steps:
                    self.results.compute_again(*step)
            finally:
                self.results.take_back(tape.storages)
