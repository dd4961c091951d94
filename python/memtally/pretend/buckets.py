# SPDX-License-Identifier: MIT
"""The buckets in which DistributedDataParallel gathers gradients are made anew before the second step.

The first ones are held by their all-reduces, which PyTorch's watchdog gives back by its own clock, some
0.1 s after they are done. A step that computes nothing takes less, so that it would be chance whether both
are there in the steps that follow. Here the watchdog is waited for, and the reader is told of the rest.
"""

import threading
import weakref

from ..watch import hooks

MODULE = "torch.nn.parallel.distributed"
FORWARDS = 8  # until then buckets are made anew, or never
PATIENCE_S = 5  # where a rank does not come, its all-reduce is not done
NOTE = (
    "DistributedDataParallel makes its buckets anew after the first step. If the host runs ahead of the device, the "
    "first ones are still there: each device then holds up to %.2f MiB more than this report shows"
)


def _settle(module):
    """Waits until no collective of the group is held any more."""
    wait = getattr(module.process_group, "_wait_for_pending_works", None)
    if wait:
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        waiter.join(PATIENCE_S)


def _bytes(module):
    return sum(each.numel() * each.element_size() for each in module.parameters() if each.requires_grad)


def start(watch, trace):
    forwards = weakref.WeakKeyDictionary()

    def make(function):
        def before_forward(self, *args, **kwargs):
            is_first_kind = getattr(self, "_has_rebuilt_buckets", None) is False
            if is_first_kind and forwards.setdefault(self, 0) < FORWARDS:
                forwards[self] += 1
                try:
                    _settle(self)
                except Exception as error:
                    trace.failed("buckets", error)
            result = function(self, *args, **kwargs)
            if is_first_kind and self._has_rebuilt_buckets:
                trace.say(NOTE % (_bytes(self) / (1 << 20)), once=NOTE)
            return result

        return before_forward

    watch.when_imported(MODULE, lambda module: hooks.replace(module, "DistributedDataParallel._pre_forward", make))
