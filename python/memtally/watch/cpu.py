# SPDX-License-Identifier: MIT
"""Tensors in the host's memory: what they are for is told to the recorder, by the address of their storage.

A storage that PyTorch allocated is a heap block, and what is said of a block holds from its beginning until it is
freed. One over memory of others (a mapped file, an array of numpy), shared between processes or pinned is a range, and no
more is known of it. Where there is
no recorder nothing is done.
"""

import ctypes
import functools
import sys
import threading
import weakref

from . import frames, hooks

STEP = "optimizer step"
# As in include/memtally/category.h.
CATEGORIES = {"weights": 1, "kv_cache": 2, "recurrent_state": 3, "activations": 4, "workspace": 6, "runtime": 10, "training": 11}
PINNED = "pinned for devices"  # as the recorder calls it (src/recorder/hooks_cuda.c)


def hook(name, *arguments):
    """A function of the recorder, called without letting other threads in; None where it is not there."""
    try:
        function = getattr(ctypes.PyDLL(None), "memtally_hook_" + name)
    except (AttributeError, OSError):
        return None
    function.restype = None
    function.argtypes = arguments
    return function


@functools.lru_cache(maxsize=None)
def encoded(text):
    return text.encode("utf-8", "replace")


class Labels:
    def __init__(self, torch):
        self.torch = torch
        arguments = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p)
        # The recorder as a module of Python's is called in a quarter of the time.
        self.label_block = getattr(frames.recorder, "label_block", None) or hook("label_block", *arguments)
        self.label_range = getattr(frames.recorder, "label", None) or hook("label", *arguments)
        self.label_aligned = getattr(frames.recorder, "label_aligned", None)
        self.aligned = getattr(frames.recorder, "aligned", None)
        self.told = {}  # id of a storage that is a range: weak reference, address, category, name
        self.pinned = set()  # addresses of storages that go back to PyTorch

    def __bool__(self):
        return self.label_block is not None

    def stop(self):
        self.label_block = None

    def tell(self, tensor, category, name):
        """Tells of a tensor that is looked at again and again only if something of it is new. Of a block the recorder knows that, since
        a storage that was emptied may be given the same block again. A range's storage is known by a weak reference, since
        torch.utils.swap_tensors() refuses tensors that have one."""
        storage = tensor.untyped_storage()
        key, address = id(storage), storage.data_ptr()
        known = self.told.get(key)
        if known and known[0]() is storage and known[1:] == (address, category, name):
            return
        if self.tell_anew(tensor, category, name) is self.label_range:
            self.told[key] = (weakref.ref(storage, lambda _: self.told.pop(key, None)), address, category, name)

    def tell_anew(self, tensor, category, name):
        """Raises where a tensor has no storage (RuntimeError, NotImplementedError). Returns how it was told."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if not address or not tensor.is_cpu:
            return None
        is_pinned = self.torch.cuda.is_initialized() and tensor.is_pinned()
        # What PyTorch maps to share it between processes is resizable and no block.
        label = self.label_block if storage.resizable() and not storage.is_shared() and not is_pinned else self.label_range
        label(address, storage.nbytes(), CATEGORIES[category], encoded(name))
        if is_pinned and address not in self.pinned:
            self.pinned.add(address)
            weakref.finalize(storage, self._unpinned, address, storage.nbytes()).atexit = False
        return label

    def _unpinned(self, address, length):
        """PyTorch keeps what was pinned, for whoever asks next."""
        self.pinned.discard(address)
        self.label_range(address, length, CATEGORIES["runtime"], encoded(PINNED))


class Scopes(threading.local):
    """Names for what happens in a thread: the report shows under them what it allocates without a known use."""

    begin_scope = hook("scope_begin", ctypes.c_int, ctypes.c_char_p)
    end_scope = hook("scope_end")

    def __init__(self):
        self.names = []

    def begin(self, name):
        self.names.append(name)
        self.begin_scope(0, encoded(name))

    def end(self):
        self.names.pop()
        self.end_scope()

    def become(self, name):
        """The innermost one has another name from now on."""
        if self.names and self.names[-1] != name:
            self.end()
            self.begin(name)

    def during(self, name):
        """Makes a function that has a name for what it does."""

        def make(function):
            def named(*args, **kwargs):
                depth = len(self.names)
                self.begin(name)
                try:
                    return function(*args, **kwargs)
                finally:
                    while len(self.names) > depth:
                        self.end()

            return named

        return make


class Steps:
    """What a program on PyTorch does by turns: it loads, reads a prompt, writes tokens, trains."""

    def __init__(self, torch, caches):
        self.torch = torch
        self.caches = caches
        self.scopes = Scopes()
        self.is_compiling = hooks.compiling(torch)

    def start(self, watch):
        hooks.replace(self.torch.autograd, "backward", self.scopes.during("backward"), unseen=True)
        hooks.replace(self.torch.autograd, "grad", self.scopes.during("backward"), unseen=True)
        optimizer = sys.modules.get("torch.optim.optimizer")
        if hasattr(optimizer, "register_optimizer_step_pre_hook"):
            optimizer.register_optimizer_step_pre_hook(self._before_step)
            optimizer.register_optimizer_step_post_hook(self._after_step)
        watch.when_imported("transformers.modeling_utils", self._wrap_loading)
        watch.when_imported("transformers.generation.utils", self._wrap_generation)

    def _before_step(self, optimizer, args, kwargs):
        if STEP not in self.scopes.names and not self.is_compiling():
            self.scopes.begin(STEP)

    def _after_step(self, optimizer, args, kwargs):
        if self.scopes.names[-1:] == [STEP]:
            self.scopes.end()

    def _wrap_loading(self, module):
        hooks.replace(module, "PreTrainedModel.from_pretrained", self.scopes.during("loading"), unseen=True)

    def _wrap_generation(self, module):
        hooks.replace(module, "GenerationMixin.generate", self.caches.during_generate, unseen=True)
        hooks.replace(module, "GenerationMixin.generate", self.scopes.during("prefill"), unseen=True)
        hooks.replace(module, "GenerationMixin._update_model_kwargs_for_generation", self._after_token)

    def _after_token(self, function):
        look, scopes = self.caches.look_after_token, self.scopes

        def token_and_look(generator, outputs, *args, **kwargs):
            is_quick = look(outputs)
            try:
                result = function(generator, outputs, *args, **kwargs)
            except BaseException as error:
                hooks.leave_out_own_frames(error)
                raise
            if not is_quick and scopes.names[-1:] == ["prefill"]:
                scopes.become("decode")
            return result

        return token_and_look
