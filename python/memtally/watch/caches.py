# SPDX-License-Identifier: MIT
"""Caches of models: keys and values of attention, and the state of recurrent layers.

Every class of transformers that is called a cache says when an object of it is made. What such an object holds is
looked at when a layer has changed its part of it, and of those whose layers change it themselves after each token. What
its functions give back need not be what it holds: a window's is longer, a quantised one's is not quantised.

Where generate() writes tokens in quick succession, its layers are looked at together after each of them: what the recorder is told
of a block holds from its beginning. Where the tensors that a layer's update allocates are those that it keeps, as the recorder's
count of one token shows and every sixteenth again, the recorder is told of them before: it labels what the update allocates.
"""

import functools
import re
import threading
import time
import weakref

from . import cpu, hooks

STATE = re.compile("conv|ssm|recurrent|state|rnn|linear|memory")
KEYS_AND_VALUES = re.compile("key|value|kv")
MOVES = {"reorder_cache", "batch_repeat_interleave", "batch_select_indices", "offload", "prefetch"}  # that give a layer other tensors
DEPTH = 6  # of what is within a cache
QUICK = 0.01  # seconds for a token: what was not looked at yet is not told of a program that is killed
COUNTED = b""  # the name of what the recorder counts only
TOGETHER = 16  # tokens in quick succession that are timed together
WORDS = {"kv_cache": "cache", "recurrent_state": "state"}
# What models without a class for it give back, as transformers.generation.utils.ALL_CACHE_NAMES.
OUTPUTS = {"cache": "kv_cache", "past_key_values": "kv_cache", "cache_params": "recurrent_state", "state": "recurrent_state", "mems": "kv_cache"}


def is_model(name):
    """Whether a module of transformers is a model's."""
    return name.startswith("transformers.models.") and ".modeling_" in name


@functools.lru_cache(maxsize=None)
def category_of(name):
    return "recurrent_state" if STATE.search(name) and not KEYS_AND_VALUES.search(name) else "kv_cache"


class Marks(dict):
    """What the recorder is told of an attribute: category and name."""

    def __missing__(self, name):
        category = category_of(name)
        self[name] = mark = (cpu.CATEGORIES[category], cpu.encoded(WORDS[category]))
        return mark


class Pace:
    """How a thread writes its tokens in a generate()."""

    __slots__ = ("last", "together", "left", "mark", "expected", "may_mark", "addresses")

    def __init__(self):
        self.last = 0.0  # when a token was last timed
        self.together = self.left = 0  # tokens until the next is timed, at first and now
        self.mark = None  # what the recorder is told of what updates allocate; at first it counts
        self.expected = None  # what it is to be told of it, if they allocate nothing else
        self.may_mark = True  # nothing says that they allocate other things, too
        self.addresses = ()  # of the storages that layers had then


def held_by(outputs):
    """What a model gives back under these names, asked of the dictionary below its class: from transformers 5.24.0 on the class
    writes into the program's output that the older names are no longer those."""
    return [(name, dict.get(outputs, name)) for name in OUTPUTS if dict.__contains__(outputs, name)] if isinstance(outputs, dict) else []


class Caches:
    def __init__(self, trace, torch, labels, tell, tell_anew):
        self.trace = trace
        self.labels = labels
        self.torch = torch
        self.tell = tell
        self.tell_anew = tell_anew
        self.caches = {}  # id: weak reference
        self.whole = {}  # the same, of those that have no layers
        self.known = {}  # id of a storage of a device: weak reference
        self.is_cuda_there = torch.cuda.is_initialized
        self.is_compiling = hooks.compiling(torch)
        self.paces = {}  # thread in a generate(): Pace
        self.quick = {}  # the same of those whose tokens come so quickly that layers are looked at after each of them
        kinds = (getattr(torch, name, None) for name in ("dtype", "device", "Size"))
        self.marks = Marks()
        self.plain = {int, float, str, bool, type(None), *kinds}  # what holds no tensor

    def wrap(self, module):
        for name, kind in list(vars(module).items()):
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__ and "__init__" in vars(kind)
            if is_own and "Cache" in name and "Layer" not in name:  # a layer is looked at as it changes
                hooks.replace(module, name + ".__init__", self._around_init)

    def _around_init(self, make):
        keep = hooks.plain(self._keep)

        def keep_it(_, cache, *args, **kwargs):
            keep(cache)

        return hooks.followed(make, self.is_compiling, keep_it)

    def _keep(self, cache):
        key = id(cache)
        try:
            self.caches[key] = weakref.ref(cache, lambda _: self._forget(key))
            if hasattr(cache, "layers"):
                self.whole.pop(key, None)
            else:
                self.whole[key] = self.caches[key]
        except TypeError:  # a class with slots
            pass

    def _forget(self, key):
        self.caches.pop(key, None)
        self.whole.pop(key, None)

    def look(self):
        """At all of them. Never raises."""
        for reference in list(self.caches.values()):
            self.look_at(reference(), self.tell)

    def look_after_token(self, outputs):
        """At layers that were left to this, and at what no layer of a cache has told. Never raises. Returns whether tokens come quickly."""
        thread = threading.get_ident()
        pace = self.quick.get(thread)
        if pace and pace.left and (pace.mark or self._look_quickly(outputs)):
            pace.left -= 1
            if self.whole:
                self._look_at_whole()
            return True
        found = []
        try:
            for name, value in held_by(outputs):
                layers = getattr(value, "layers", None)
                if layers:
                    found.append(layers)
                    self._look_at_layers(layers, pace)
                elif isinstance(value, (list, tuple)):
                    self._look_into(value, OUTPUTS[name], self.tell, 0)
            if found:
                self._time(thread, found)
        except Exception as error:
            self.quick.pop(thread, None)
            self.trace.failed("caches", error)
        self._look_at_whole()
        return False

    def _look_at_whole(self):
        for reference in list(self.whole.values()):
            cache = reference()
            if cache is not None and not hasattr(cache, "layers"):
                self.look_at(cache, self.tell)

    def _look_at_layers(self, layers, pace):
        """Looks at the cache of a token that was just written."""
        for layer in list(layers) if pace else ():
            self.look_at_layer(layer)

    def _time(self, thread, found):
        """Whether tokens come quickly, by those since the last time: one, or one more than were looked at quickly."""
        now, pace = time.monotonic(), self.paces.get(thread)
        if pace is None:  # outside of generate(): a loop of the program's own may end at any token
            return
        tokens = pace.together - pace.left if thread in self.quick else 1
        is_quick = now - pace.last < QUICK * tokens and not self.is_cuda_there()  # devices are told the time as well
        pace.last = now
        if not is_quick:
            self.quick.pop(thread, None)
            pace.mark = pace.expected = None
            return
        self._mark(pace, found, tokens)
        pace.left = pace.together - 1
        self.quick[thread] = pace

    def _mark(self, pace, found, tokens):
        """Whether what updates allocate is what layers keep: at first by one token, then by all since the last time."""
        mark, addresses = self._kept_in(found[0]) if pace.may_mark and len(found) == 1 and self.labels.label_aligned else (None, ())
        n_allocated = self.labels.aligned(None) if mark else 0
        is_first = pace.expected is None
        if not is_first and mark:
            is_same = n_allocated == 0 and addresses == pace.addresses
            pace.may_mark = mark == pace.expected and (is_same or n_allocated == tokens * len(addresses))
        pace.expected = mark if pace.may_mark else None
        is_counted = pace.expected and is_first
        pace.mark = (mark[0], COUNTED) if is_counted else pace.expected
        pace.together = 1 if is_counted else TOGETHER
        pace.addresses = addresses

    def _kept_in(self, layers):
        """The mark of all tensors of these layers and the addresses of their storages; no mark where there is anything else."""
        marks, addresses = set(), []
        try:
            for layer in layers:
                for name, value in vars(layer).items():
                    if type(value) is self.torch.Tensor:
                        storage = value.untyped_storage()
                        if not value.is_cpu or not storage.resizable() or storage.is_shared():
                            return None, ()
                        marks.add(self.marks[name])
                        addresses.append(storage.data_ptr())
                    elif type(value) not in self.plain:
                        return None, ()
        except Exception:  # tensors without a storage, layers that are no objects of Python's or change meanwhile
            return None, ()
        return (marks.pop(), addresses) if len(marks) == 1 else (None, ())

    def _look_quickly(self, outputs):
        """At the layers of a token in quick succession, as look_at_layer() does. It runs between the program's tokens, when the processor
        has forgotten all of ours: the fewest steps. Whether that was all."""
        label, marks, plain, plain_tensor = self.labels.label_block, self.marks, self.plain, self.torch.Tensor
        try:
            for layer in (dict.get(outputs, "cache") or dict.get(outputs, "past_key_values")).layers:
                for name, value in layer.__dict__.items():
                    kind = type(value)
                    if kind is plain_tensor:
                        storage = value.untyped_storage()
                        address = storage.data_ptr()
                        if value.is_cpu and storage.resizable() and not storage.is_shared() and address:
                            label(address, storage.nbytes(), *marks[name])
                        elif address:
                            self.look_at_layer(layer)
                    elif kind not in plain:
                        self.look_at_layer(layer)
        except Exception:  # new names, tensors without a storage, outputs without layers
            return False
        return True

    def during_generate(self, generate):
        """Makes the function of that name: how quick its tokens are is not known yet."""

        def generate_anew(*args, **kwargs):
            thread = threading.get_ident()
            self.quick.pop(thread, None)
            self.paces[thread] = Pace()
            try:
                return generate(*args, **kwargs)
            finally:
                self.quick.pop(thread, None)
                self.paces.pop(thread, None)

        return generate_anew

    def around_layer(self, update):
        """Makes the function that changes a layer. It runs for each layer and token: the shortest way. torch.compile() is shown
        the function itself."""
        quick, this_thread, look_at_layer, label = self.quick.get, threading.get_ident, self.look_at_layer, self.labels.label_aligned

        def update_and_look(layer, *args, **kwargs):
            pace = quick(this_thread())
            mark = pace and pace.mark
            try:
                if mark:
                    label(*mark)
                result = update(layer, *args, **kwargs)
            except BaseException as error:
                if mark:
                    label()
                hooks.leave_out_own_frames(error)
                raise
            if mark:
                label()
            elif pace is None:
                look_at_layer(layer)
            return result

        update_and_look._torchdynamo_inline = update
        return update_and_look

    def around_move(self, move):
        """Makes a function that puts what a layer holds elsewhere: a search in beams does so for each token."""
        look = hooks.plain(self.look_at_layer)

        def look_at_it(_, layer, *args, **kwargs):
            look(layer)

        return hooks.followed(move, self.is_compiling, look_at_it)

    def look_at(self, cache, tell=None):
        """At a cache, or at one layer of it, whose tensors come and go. Never raises."""
        try:
            for name, value in list(vars(cache).items()) if hasattr(cache, "__dict__") else ():
                kind = type(value)
                if kind is self.torch.Tensor and value.is_cpu:
                    category = category_of(name)
                    (tell or self.tell_anew)(value, category, WORDS[category])
                elif kind not in self.plain:
                    self._look_into(value, category_of(name), tell or self.tell_anew, 0)
        except Exception as error:
            self.trace.failed("caches", error)
            self.caches.clear()
            self.whole.clear()

    def look_at_layer(self, layer):
        """After it has changed, as look_at() does and never raising: the short way for plain tensors of the host's heap."""
        labels, plain, plain_tensor = self.labels, self.plain, self.torch.Tensor
        label = labels.label_block
        if self.is_compiling():
            return
        if label is None or self.is_cuda_there():
            self.look_at(layer)
            return
        try:
            for name, value in layer.__dict__.items():
                kind = type(value)
                if kind is plain_tensor:
                    storage = value.untyped_storage()
                    address = storage.data_ptr()
                    if address and value.is_cpu and storage.resizable() and not storage.is_shared():
                        label(address, storage.nbytes(), *self.marks[name])
                    elif address:
                        self.tell_anew(value, category_of(name), WORDS[category_of(name)])
                elif kind not in plain:
                    self._look_into(value, category_of(name), self.tell_anew, 0)
        except Exception:  # a tensor without a storage, a layer that changes meanwhile, or worse
            self.look_at(layer)

    def look_after_update(self, result, cache, *args, layer_idx=None, **kwargs):
        """A cache, or a layer of one, has just taken what is new. Never raises."""
        if hasattr(cache, "layers"):
            return
        if not hasattr(cache, "key_cache"):
            self.look_at(cache)
            return
        layer = next((one for one in args if isinstance(one, int)), layer_idx)
        if layer in (None, *(getattr(cache, "transformer_layers", None) or [0])[:1]):
            self.look_at(cache, self.tell)
        try:
            self._look_into(result, "kv_cache", self.tell_anew, 0)  # of this layer
        except Exception as error:
            self.trace.failed("caches", error)

    def _is_known(self, tensor):
        """Whether a storage of a device was here before. Its address says less: another one's may be the same. The tensor itself
        gets no weak reference, see cpu.Labels.tell()."""
        if tensor.is_cpu:
            return False
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # none
            return False
        key = id(storage)
        known = self.known.get(key)
        if known is None or known() is not storage:
            self.known[key] = weakref.ref(storage, lambda _: self.known.pop(key, None))
            return False
        return True

    def _look_into(self, value, category, tell, depth):
        if isinstance(value, self.torch.Tensor):
            if not self._is_known(value):
                how = tell if value.is_cpu else self.tell_anew
                how(value, category, WORDS[category])
        elif isinstance(value, (list, tuple, dict)) and depth < DEPTH:
            for part in value.values() if isinstance(value, dict) else value:
                if type(part) not in self.plain:
                    self._look_into(part, category, tell, depth + 1)
        elif "Layer" in type(value).__name__ or "Cache" in type(value).__name__:
            self.look_at(value, tell)
