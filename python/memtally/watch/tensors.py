# SPDX-License-Identifier: MIT
"""What holds a tensor says what it is for: parameters and buffers of modules, gradients, the
optimizer's state, caches of transformers.

Modules are found as they register their parameters, or as copies of others and out of a pickle, and are held weakly. They say what
is theirs when they register it and when it moves to a device, and are looked through after phases, at backward
passes and optimizer steps and now and then, for no more than a part of the time.
"""

import time
import weakref

from . import caches, cpu, hooks

SHARE = 0.02  # of the time
PARTS_DEPTH = 4  # of tensors within tensors
SHARE_AFTER_PHASES = 0.001  # where nothing was loaded


class Holders:
    def __init__(self, trace, torch, history):
        self.trace = trace
        self.torch = torch
        self.history = history
        self.modules = {}  # id: weak reference
        self.told = {}  # address: (category, name)
        self.is_compiling = hooks.compiling(torch)
        self.labels = cpu.Labels(torch)
        self.caches = caches.Caches(trace, torch, self.labels, self.tell, self.tell_anew)
        self.next_look = 0.0
        self.next_after_phase = 0.0
        history.watchers.append(self._forget)
        history.after_drain = self.look_now_and_then

    def start(self):
        module = self.torch.nn.modules.module
        module.register_module_parameter_registration_hook(self._registration("parameters"))
        module.register_module_buffer_registration_hook(self._registration("buffers"))
        hooks.replace(module.Module, "_apply", self._after(lambda arguments: self._look_at(arguments[0], self.tell_anew)), unseen=True)
        hooks.replace(module.Module, "__setstate__", self._after(lambda arguments: self._look_at_copy(arguments[0])), unseen=True)
        hooks.replace(self.torch.autograd, "backward", self._after(lambda _: self.look_now_and_then()), unseen=True)
        try:
            from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        except ImportError:  # before 2.0
            return
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def _registration(self, kind):
        def registered(module, name, tensor):
            self._keep(module)
            try:
                if not self.is_compiling():
                    self.tell_anew(tensor, "weights", kind)
            except Exception as error:
                self.trace.failed("parameters and buffers", error)

        return registered

    def _keep(self, module):
        key = id(module)
        if key not in self.modules:
            self.modules[key] = weakref.ref(module, lambda _: self.modules.pop(key, None))

    def _look_at_copy(self, module):
        """A module that copy.deepcopy() or pickle made: it registers nothing."""
        self._keep(module)
        self._look_at(module, self.tell_anew)

    def _after(self, call):
        """A function with a call after it, which gets its arguments."""

        def make(function):
            def then_look(*args, **kwargs):
                result = function(*args, **kwargs)
                try:
                    if not self.is_compiling():
                        call(args)
                except Exception as error:
                    self.trace.failed("holders of tensors", error)
                return result

            return then_look

        return make

    def _forget(self, addresses):
        for address in addresses:
            self.told.pop(address, None)

    def tell(self, tensor, category, name):
        """Once for each block, as far as is known here."""
        if self._has_parts(tensor, self.tell, category, name):
            return None
        if self._is_on_host(tensor):
            return self._tell_on_host(self.labels.tell, getattr(tensor, "_local_tensor", tensor), category, name)
        address = self._address_of(tensor)
        if address and self.told.get(address) != (category, name):
            self.told[address] = (category, name)
            self.trace.line("h", time.monotonic_ns(), "%x" % address, category, name)

    def tell_anew(self, tensor, category, name):
        """Tells of blocks that come and go: another one may have the address by now."""
        if type(tensor) is self.torch.Tensor and tensor.is_cpu and self.labels.label_block:  # most are such
            return self._tell_on_host(self.labels.tell_anew, tensor, category, name)
        if self._has_parts(tensor, self.tell_anew, category, name):
            return None
        if self._is_on_host(tensor):
            return self._tell_on_host(self.labels.tell_anew, getattr(tensor, "_local_tensor", tensor), category, name)
        address = self._address_of(tensor)
        if address:
            self.told[address] = (category, name)
            self.trace.line("h", time.monotonic_ns(), "%x" % address, category, name)

    def _has_parts(self, tensor, tell, category, name, depth=0):
        """Tells of the parts of a tensor that is made of others, as a quantised one is. Returns whether it is. One that was swapped may be
        a part of itself."""
        flatten = getattr(type(tensor), "__tensor_flatten__", None)
        if flatten is None or hasattr(tensor, "_local_tensor"):
            return False
        for part in flatten(tensor)[0] if depth < PARTS_DEPTH else ():
            inner = getattr(tensor, part)
            if not self._has_parts(inner, tell, category, name, depth + 1):
                tell(inner, category, name)
        return True

    def _is_on_host(self, tensor):
        return bool(self.labels) and isinstance(tensor, self.torch.Tensor) and tensor.is_cpu

    def _tell_on_host(self, tell, tensor, category, name):
        try:
            tell(tensor, category, name)
        except (RuntimeError, NotImplementedError):  # without a storage
            pass
        except Exception as error:
            self.trace.failed("tensors on the host", error)
            self.labels.stop()

    def _address_of(self, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(tensor, self.torch.Tensor) or tensor.device.type != "cuda":
            return 0
        try:
            return tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor that only has a shape
            return 0

    def look(self):
        """At all modules. Never raises."""
        began = time.monotonic()
        try:
            for reference in list(self.modules.values()):
                module = reference()
                if module is not None:
                    self._look_at(module)
        except Exception as error:
            self.trace.failed("holders of tensors", error)
            self.modules.clear()
        took = time.monotonic() - began
        self.next_look = time.monotonic() + took / SHARE
        self.next_after_phase = time.monotonic() + took / SHARE_AFTER_PHASES

    def look_after_phase(self, categories):
        if "weights" in categories or time.monotonic() >= self.next_after_phase:
            self.look()

    def look_now_and_then(self):
        if time.monotonic() >= self.next_look:
            self.look()

    def _look_at(self, module, tell=None):
        tell = tell or self.tell
        for parameter in list(module._parameters.values()):
            if parameter is None:
                continue
            tell(parameter, "weights", "parameters")
            if parameter.is_leaf and parameter.grad is not None:
                tell(parameter.grad, "training", "gradients")
        for buffer in list(module._buffers.values()):
            if buffer is not None:
                tell(buffer, "weights", "buffers")

    def _before_step(self, optimizer, args, kwargs):
        if self.is_compiling():
            return
        try:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.tell(parameter, "weights", "parameters")
                    if parameter.is_leaf and parameter.grad is not None:
                        self.tell_anew(parameter.grad, "training", "gradients")
        except Exception as error:
            self.trace.failed("gradients", error)

    def _after_step(self, optimizer, args, kwargs):
        if self.is_compiling():
            return
        try:
            for state in list(optimizer.state.values()):
                for value in list(state.values()) if isinstance(state, dict) else ():
                    self.tell(value, "training", "optimizer state")
        except Exception as error:
            self.trace.failed("optimizer state", error)

    def wrap_caches(self, module, called=""):
        """The classes of transformers whose update…() take keys and values, or states, and give them back. A cache that
        has an object for each layer leaves the work to that."""
        has_layers = hasattr(module, "CacheLayerMixin")
        for name, kind in list(vars(module).items()):
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__ and called in name
            if is_own and not (has_layers and name == "Cache"):
                around = self.caches.around_layer if has_layers and issubclass(kind, module.CacheLayerMixin) else self._around_update
                for function in vars(kind).keys() & caches.MOVES if has_layers else ():
                    hooks.replace(module, name + "." + function, self.caches.around_move)
                for update in [one for one in vars(kind) if one == "update" or one.startswith("update_")]:
                    hooks.replace(module, name + "." + update, around)

    def _around_update(self, update):
        look_after = self.caches.look_after_update

        def look(result, *args, **kwargs):
            if args:
                look_after(result, *args, **kwargs)

        return hooks.followed(update, self.is_compiling, look)
