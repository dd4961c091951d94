# SPDX-License-Identifier: MIT
"""The most that PyTorch's allocator held, as it counts it itself: what a program would print of
torch.cuda.max_memory_allocated() and max_memory_reserved(), over all times that it starts them anew."""

import os
import time

# What starts the count of a device anew, or of all devices of a kind.
RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


class Peaks:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.pid = 0
        self.told = {}  # device: what was told of it

    def start(self):
        self.pid = os.getpid()
        for name in RESETS:
            reset = getattr(self.torch._C, name, None)
            if reset:
                setattr(self.torch._C, name, self._before(reset))

    def _before(self, reset):
        def reset_and_tell(*args):
            self.tell()
            return reset(*args)

        return reset_and_tell

    def tell(self):
        """Where more was held than was told of. Never raises."""
        if self.pid != os.getpid():
            return
        try:
            for device in range(self.torch._C._cuda_getDeviceCount()):
                self._tell_of(device)
        except Exception as error:
            self.pid = 0
            self.trace.failed("peaks of the allocator", error)

    def _tell_of(self, device):
        stats = self.torch._C._cuda_memoryStats(device)
        peaks = [stats.get(name, {}).get("all", {}).get("peak", 0) for name in ("allocated_bytes", "reserved_bytes")]
        told = self.told.get(device, [0, 0])
        most = [max(pair) for pair in zip(peaks, told)]
        if most != told:
            self.told[device] = most
            self.trace.line("m", device, time.monotonic_ns(), *most)
