# SPDX-License-Identifier: MIT
"""What the layers of a model hold: weights, caches, and the most that a forward and a backward pass takes above what was
there before, for the modules of depth 1 and 2 and for repeated blocks.

Modules are found when the outermost one is called. From then on the classes of those that are told have a
`__call__` that looks before and after; instances stay as they are, so that they can be copied, saved and
compiled as before. The backward pass is seen by hooks on the nodes of the graph where a module's results and
its arguments come from: they add none.

Of a device PyTorch's own count is read, whose peak is started anew at each look; what the program asks of
it is the peak over all of them, as without us. Of the host the recorder counts the heap.
"""

import functools
import os
import time
import weakref

from . import counts, hooks, tsv

MOST_RECORDS = 4096
SHARE = 0.005  # of the time, for writing
COLUMNS = ("root", "module", "class", "kind", "depth", "calls", "weights_host_bytes", "weights_device_bytes",
           "cache_host_bytes", "cache_device_bytes", "forward_peak_host_bytes", "forward_peak_device_bytes",
           "backward_peak_host_bytes", "backward_peak_device_bytes")


class Record:
    """A module of a model."""

    def __init__(self, module, root, path, kind):
        self.module = weakref.ref(module)
        self.name = type(module).__name__
        self.root = root
        self.path = path
        self.kind = kind
        self.weights = {"host": 0, "device": 0}
        self.forget()

    def forget(self):
        self.calls = 0
        self.caches = {}  # which: weak reference, bytes by place
        self.cache = {"host": 0, "device": 0}  # the most of all of them
        self.passes = {"forward": None, "backward": None}  # the most, by place
        self.open = {}  # pass: what it has found

    @property
    def depth(self):
        return self.path.count(".") + 1 if self.path else 0


class Layers:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.counts = counts.Counts(torch)
        self.records = {}  # id of the module: Record
        self.roots = 0
        self.active = []  # records with a pass that is not over
        self.states = []  # of these passes: what a pass has found, see _begin()
        self.calls = []  # innermost last
        self.unclaimed = weakref.WeakValueDictionary()  # by id: a module may forbid to be hashed
        self.classes = set()
        self.handle = None
        self.next_write = 0.0
        self.is_compiling = hooks.compiling(torch)
        self.is_grad_enabled = torch.is_grad_enabled

    def start(self, watch):
        self.counts.start()
        os.register_at_fork(after_in_child=self._in_child)
        self.torch.nn.modules.module.register_module_parameter_registration_hook(self._registered)
        hooks.replace(self.torch.autograd, "backward", self._around_backward)
        watch.when_imported("transformers.cache_utils", self._wrap_caches)

    def _in_child(self):
        """What the parent saw is the parent's to tell."""
        self.active.clear()
        self.states.clear()
        self.calls.clear()
        for record in self.records.values():
            record.forget()

    def _registered(self, module, name, parameter):
        if not self.is_compiling():
            self._quietly(self._look_out_for, module)

    def _look_out_for(self, module):
        self.unclaimed[id(module)] = module
        if self.handle is None:
            self.handle = self.torch.nn.modules.module.register_module_forward_pre_hook(self._called)

    # Finding modules.

    def _called(self, module, args):
        """Any module is called, and some are not known yet."""
        if self.calls or self.is_compiling():
            return
        try:
            if id(module) not in self.records:
                self._claim(module)
                self._first_call(module, args)
        except Exception as error:
            self.trace.failed("layers", error)
            self.unclaimed.clear()
        if not self.unclaimed and self.handle is not None:
            self.handle.remove()
            self.handle = None

    def _claim(self, root):
        modules = dict(root.named_modules())
        for module in modules.values():
            self.unclaimed.pop(id(module), None)
        if len(modules) < 2:  # alone it has no layers
            return
        self._forget_parts(modules)
        self.roots += 1
        name = "%d" % self.roots
        blocks = {id(child) for module in modules.values() for child in _repeated(module)}
        for path, module in modules.items():
            kind = "block" if id(module) in blocks else "module"
            if (kind == "block" or path.count(".") < 2) and len(self.records) < MOST_RECORDS:
                self.records[id(module)] = Record(module, name, path, kind)
                self._wrap(type(module))

    def _forget_parts(self, modules):
        """What was called by itself before and is a part of a model is told with that."""
        parts = {self.records[id(module)].root for module in modules.values()
                 if id(module) in self.records and not self.records[id(module)].path}
        self.records = {key: record for key, record in self.records.items() if record.root not in parts}

    def _first_call(self, root, args):
        """The call that a model was found by is over when its results come by."""
        record = self._record_of(root)
        if record is None:
            return

        def over(module, args, result):
            if module is root:
                handle.remove()
                self._quietly(self._leave, record, result)

        handle = self.torch.nn.modules.module.register_module_forward_hook(over)
        self._enter(record, args, {})

    def _wrap(self, kind):
        if kind in self.classes:
            return
        self.classes.add(kind)
        layers = self
        own = vars(kind).get("__call__")
        outer = own or kind.__call__

        @functools.wraps(outer)
        def __call__(self, *args, **kwargs):
            record = None if layers.is_compiling() else layers.records.get(id(self))
            if record is None or record.module() is not self:
                return own(self, *args, **kwargs) if own else super(kind, self).__call__(*args, **kwargs)
            try:
                layers._enter(record, args, kwargs)
            except Exception as error:
                layers._failed(error)
            result = None
            try:
                result = own(self, *args, **kwargs) if own else super(kind, self).__call__(*args, **kwargs)
                return result
            finally:
                try:
                    layers._leave(record, result)
                except Exception as error:
                    layers._failed(error)

        kind.__call__ = __call__

    def _record_of(self, module):
        record = self.records.get(id(module))
        return record if record is not None and record.module() is module else None

    def _quietly(self, call, *args):
        try:
            call(*args)
        except Exception as error:
            self._failed(error)

    def _failed(self, error):
        self.trace.failed("layers", error)
        self.records.clear()
        self.active.clear()
        self.states.clear()
        self.calls.clear()

    # Passes.

    def _look(self):
        """What is there now. The pass that was begun last learns what was the most since the last look, and tells those around it
        when it is over."""
        host, most, devices, most_of_devices = self.counts.read()
        if self.states:
            _learn(self.states[-1], most, most_of_devices)
        return host, devices

    def _begin(self, record, which):
        if which in record.open:  # of checkpoints the forward pass comes again
            return
        host, devices = self._look()
        record.open[which] = state = [host, host, devices, dict(devices)]  # what was there before and the most since, twice
        self.active.append(record)
        self.states.append(state)

    def _end(self, record, which):
        if which not in record.open:
            return
        self._look()
        state = record.open.pop(which)
        self._close(state)
        before, most, before_on_devices, most_on_devices = state
        host = most - before
        device = sum(most_on_devices[one] - before_on_devices.get(one, 0) for one in most_on_devices) if most_on_devices else 0
        known = record.passes[which]
        if known is None:
            record.passes[which] = {"host": host, "device": device}
            return
        if host > known["host"]:
            known["host"] = host
        if device > known["device"]:
            known["device"] = device

    def _close(self, state):
        """Most often what was begun last."""
        states = self.states
        if states and states[-1] is state:
            states.pop()
            self.active.pop()
            if states:
                _learn(states[-1], state[1], state[3])
            return
        at = next((i for i, one in enumerate(states) if one is state), None)
        if at is None:
            return
        for inner in states[at + 1:]:
            _learn(state, inner[1], inner[3])
        if at:
            _learn(states[at - 1], state[1], state[3])
        del states[at], self.active[at]

    def _enter(self, record, args, kwargs):
        record.calls += 1
        self.calls.append(record)
        if self.is_grad_enabled():
            for tensor in _tensors((args, kwargs)):
                self._when_reached(tensor, self._end, record)
        self._begin(record, "forward")

    def _leave(self, record, result):
        self._end(record, "forward")
        calls = self.calls
        if calls and calls[-1] is record:
            calls.pop()
        elif record in calls:
            del calls[calls.index(record):]
        for tensor in (result,) if type(result) is self.torch.Tensor else _tensors(result):
            self._when_reached(tensor, self._begin, record)
        if not calls and time.monotonic() > self.next_write:
            self.write()

    def _when_reached(self, tensor, call, record):
        """`call` is made when the backward pass gets to where the tensor comes from."""
        node = getattr(tensor, "grad_fn", None)
        if node is not None and hasattr(node, "register_prehook"):
            node.register_prehook(lambda gradients: self._quietly(call, record, "backward"))

    def _around_backward(self, backward):
        def backward_and_end(*args, **kwargs):
            try:
                return backward(*args, **kwargs)
            finally:
                for record in [record for record in self.active if "backward" in record.open]:
                    self._quietly(self._end, record, "backward")

        return backward_and_end

    # Caches.

    def _wrap_caches(self, module):
        """Hooks the parts for each layer of transformers' caches; older versions have one object for all."""
        kinds = {name: kind for name, kind in vars(module).items()
                 if isinstance(kind, type) and kind.__module__ == module.__name__ and "update" in vars(kind)}
        of_layers = {name: kind for name, kind in kinds.items() if name.endswith("Layer") or name.endswith("LayerMixin")}
        for name in of_layers or kinds:
            hooks.replace(module, name + ".update", functools.partial(self._around_update, bool(of_layers)))

    def _around_update(self, is_of_layer, update):
        def count(result, cache, *args, **kwargs):
            if self.calls:
                layer = "" if is_of_layer else args[2] if len(args) > 2 else kwargs.get("layer_idx", "")
                self._quietly(self._count_cache, cache, layer, result)

        return hooks.followed(update, self.is_compiling, count)

    def _count_cache(self, cache, layer, result):
        """What a cache held counts until it is gone."""
        record, key = self.calls[-1], (id(cache), layer)
        known = record.caches.get(key)
        held = _bytes_of(result if isinstance(result, tuple) else ())
        if known is None or known[0]() is not cache:
            known = record.caches[key] = [weakref.ref(cache, _forgetting(record.caches, key)), held]
        known[1] = held
        for place, most in record.cache.items():
            now = held[place] if len(record.caches) == 1 else sum(one[place] for _, one in record.caches.values())
            if now > most:
                record.cache[place] = now

    # Writing.

    def write(self):
        began = time.monotonic()
        try:
            tsv.write(self.trace.folders, "layers", COLUMNS, self._rows())
        except Exception as error:
            self.trace.failed("layers", error)
        self.next_write = time.monotonic() + (time.monotonic() - began) / SHARE

    def _rows(self):
        by_root = {}
        for record in self.records.values():
            by_root.setdefault(record.root, []).append(record)
        for root, records in by_root.items():
            for record in records if any(one.calls for one in records) else ():
                module = record.module()
                if module is not None:
                    record.weights = _bytes_of([*module.parameters(), *module.buffers()])
                yield self._row(record, [one for one in records if _is_within(one, record)])

    def _row(self, record, within):
        """A container that is never called takes what the most of its parts takes."""
        cache = {place: sum(one.cache[place] for one in within) for place in record.cache}
        values = [record.root, record.path or "(model)", record.name, record.kind, record.depth,
                  record.calls or max(one.calls for one in within),
                  record.weights["host"], record.weights["device"], cache["host"], cache["device"]]
        for which in ("forward", "backward"):
            known = [one.passes[which] for one in (within if record.passes[which] is None else [record]) if one.passes[which]]
            for place in ("host", "device"):
                values.append(max(one[place] for one in known) if known else "-")
        if not self.counts.sees_host:
            values[10] = values[12] = "-"
        return values


def _learn(state, most, most_of_devices):
    if most > state[1]:
        state[1] = most
    if most_of_devices:
        known = state[3]
        for device, value in most_of_devices.items():
            if value > known.get(device, 0):
                known[device] = value


def _repeated(module):
    """The children of a list of modules that are all of one class."""
    children = list(module.children())
    kinds = {type(child) for child in children}
    is_list = type(module).__name__ in ("ModuleList", "Sequential")
    return children if is_list and len(children) > 1 and len(kinds) == 1 else ()


def _forgetting(caches, key):
    """Takes no hold of what it is called for."""
    return lambda reference: caches.pop(key, None) if caches.get(key, (None,))[0] is reference else None


def _is_within(one, record):
    return one is record or not record.path or one.path.startswith(record.path + ".")


def _tensors(value, depth=0):
    """Those in the arguments or results of a call."""
    if hasattr(value, "grad_fn"):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for item in list(value.values()):
            yield from _tensors(item, depth + 1)
    elif depth < 4 and isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item, depth + 1)


def _bytes_of(tensors):
    """The bytes of the tensors' storages, each once: {"host": …, "device": …}."""
    storages = {}
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            storage = tensor.untyped_storage()
            if tensor.is_cpu:
                storages[storage.data_ptr()] = ("host", storage.nbytes())
            elif not tensor.is_meta:
                storages[(str(tensor.device), storage.data_ptr())] = ("device", storage.nbytes())
        except (AttributeError, RuntimeError, NotImplementedError):
            continue
    held = {"host": 0, "device": 0}
    for place, size in storages.values():
        held[place] += size
    return held


def start(watch, trace, torch):
    layers = Layers(trace, torch)
    layers.start(watch)
    return layers
