# SPDX-License-Identifier: MIT
"""How much is allocated and what was the most since the last look: on the host by the recorder's count of the heap, on
devices by PyTorch's own. PyTorch counts one peak, which is started anew at each look; the program is told the
most of all looks since it started the count itself."""

import functools
import os
import threading

from . import frames

# (what is asked, what starts its peaks anew)
PAIRS = (("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"),
         ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats"))
NO_DEVICES = {}


class Counts:
    def __init__(self, torch):
        self.torch = torch
        self.recorder = frames.recorder
        self.is_cuda_there = torch.cuda.is_initialized
        self.sees_host = hasattr(self.recorder, "heap")
        self._unlock()
        os.register_at_fork(after_in_child=self._unlock)
        self.kept = {}  # device: {(name, pool): the most before the last look}
        self.ask = getattr(torch._C, PAIRS[0][0], None)
        self.reset = getattr(torch._C, PAIRS[0][1], None)

    def _unlock(self):
        """A child has no thread that would give back what another one held."""
        self.lock = threading.RLock()

    def start(self):
        if self.sees_host:
            self.recorder.count(1)
        for asked, reset in PAIRS:
            if hasattr(self.torch._C, asked) and hasattr(self.torch._C, reset):
                setattr(self.torch._C, asked, self._with_what_was_kept(getattr(self.torch._C, asked)))
                setattr(self.torch._C, reset, self._forgetting(getattr(self.torch._C, reset)))

    def _with_what_was_kept(self, ask):
        @functools.wraps(ask)
        def answer(device):
            with self.lock:
                stats = ask(device)
                for (name, pool), most in self.kept.get(device, {}).items():
                    values = stats.get(name, {}).get(pool)
                    if values is not None and most > values["peak"]:
                        values["peak"] = most
            return stats

        return answer

    def _forgetting(self, reset):
        @functools.wraps(reset)
        def forget(device):
            with self.lock:
                self.kept.pop(device, None)
                return reset(device)

        return forget

    def read(self):
        """What is there now and what was the most since the last time: of the host, and of devices, {device: bytes}."""
        most = self.recorder.highest(0) if self.sees_host else 0
        host = self.recorder.heap(0) if self.sees_host else 0
        if not self.ask or not self.is_cuda_there():
            return host, most, NO_DEVICES, NO_DEVICES
        now, most_of_devices = {}, {}
        with self.lock:
            for device in range(self.torch._C._cuda_getDeviceCount()):
                self._read_device(device, now, most_of_devices)
        return host, most, now, most_of_devices

    def _read_device(self, device, now, most):
        stats = self.ask(device)
        held = stats.get("allocated_bytes", {}).get("all")
        if held is None:
            return
        kept = self.kept.setdefault(device, {})
        for name, pools in stats.items():
            if isinstance(pools, dict):
                for pool, values in pools.items():
                    key = (name, pool)
                    if isinstance(values, dict) and values.get("peak", 0) > kept.get(key, 0):
                        kept[key] = values["peak"]
        now[device], most[device] = held["current"], held["peak"]
        self.reset(device)
