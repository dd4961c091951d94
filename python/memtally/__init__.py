# SPDX-License-Identifier: MIT
"""Where memory goes, from Python: measured, predicted, recorded, given back.

    result, record = memtally.measure(model.generate, inputs)
    print(record.peak_memory_bytes)
    print(memtally.estimate("model.gguf", device="24GiB"))

What is asked for is loaded when it is first used; PyTorch is never imported for it. The folders `watch`, `pretend` and
`site` are none of a program's business: `memtally run` and `memtally rehearse` put them into programs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from .batches import fit_batch as fit_batch
    from .documents import Comparison as Comparison
    from .documents import Estimate as Estimate
    from .documents import Estimates as Estimates
    from .documents import Tally as Tally
    from .errors import Error as Error
    from .generation import profile_generation as profile_generation
    from .loading import conservative_load as conservative_load
    from .measuring import DeviceMemory as DeviceMemory
    from .measuring import HostMemory as HostMemory
    from .measuring import Measure as Measure
    from .measuring import Record as Record
    from .measuring import measure as measure
    from .monitoring import Monitor as Monitor
    from .monitoring import monitor as monitor
    from .naming import label as label
    from .naming import mark as mark
    from .naming import scope as scope
    from .placing import Placement as Placement
    from .placing import place as place
    from .pooling import Pool as Pool
    from .pooling import PoolStats as PoolStats
    from .pooling import TorchPool as TorchPool
    from .pooling import pool as pool
    from .pooling import use_pool_in_torch as use_pool_in_torch
    from .present import tally as tally
    from .questions import compare as compare
    from .questions import estimate as estimate
    from .questions import rehearse as rehearse
    from .recording import Recording as Recording
    from .recording import record as record
    from .resetting import Reset as Reset
    from .resetting import reset_device as reset_device
    from .resetting import reset_host as reset_host
    from .tracking import Analysis as Analysis
    from .tracking import Tracker as Tracker
    from .version import VERSION as __version__

_PLACES = {
    "Analysis": "tracking",
    "Comparison": "documents",
    "DeviceMemory": "measuring",
    "Error": "errors",
    "Estimate": "documents",
    "Estimates": "documents",
    "HostMemory": "measuring",
    "Measure": "measuring",
    "Monitor": "monitoring",
    "Placement": "placing",
    "Pool": "pooling",
    "PoolStats": "pooling",
    "Record": "measuring",
    "Recording": "recording",
    "Reset": "resetting",
    "Tally": "documents",
    "TorchPool": "pooling",
    "Tracker": "tracking",
    "compare": "questions",
    "conservative_load": "loading",
    "estimate": "questions",
    "fit_batch": "batches",
    "label": "naming",
    "mark": "naming",
    "measure": "measuring",
    "monitor": "monitoring",
    "place": "placing",
    "pool": "pooling",
    "profile_generation": "generation",
    "record": "recording",
    "rehearse": "questions",
    "reset_device": "resetting",
    "reset_host": "resetting",
    "scope": "naming",
    "tally": "present",
    "use_pool_in_torch": "pooling",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        value = import_module(".version", __name__).VERSION
    elif name in _PLACES:
        value = getattr(import_module("." + _PLACES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "__version__"})
