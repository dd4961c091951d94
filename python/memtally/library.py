# SPDX-License-Identifier: MIT
"""The functions of libmemtally that Python calls. A test holds the layouts against the headers."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
from typing import Any

from . import places
from .errors import Error, error_of

UNKNOWN = 2**64 - 1  # MT_UNKNOWN
HOST_ONLY = -1  # MT_MEASURE_HOST_ONLY
METHODS = {"auto": 0, "exact": 1, "sampled": 2}  # enum mt_measure_method: those that can be asked for
DEVICE_METHODS = {2: "sampled", 3: "caught"}  # likewise: those of a device's result
AS_NVML, AS_CUDA = 0, 1  # enum mt_measure_count


class ErrorStruct(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("offset", ctypes.c_uint64), ("text", ctypes.c_char * 488)]


class OptionsStruct(ctypes.Structure):
    _fields_ = [
        ("method", ctypes.c_int),
        ("device_index", ctypes.c_int),
        ("interval_ns", ctypes.c_uint64),
        ("device_count", ctypes.c_int),
        ("device_uuid", ctypes.c_char_p),
    ]


class ResultStruct(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("method", ctypes.c_int),
        ("overlapped", ctypes.c_int),
        ("latency_ns", ctypes.c_uint64),
        ("baseline_bytes", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("growth_bytes", ctypes.c_uint64),
        ("after_bytes", ctypes.c_uint64),
        ("n_samples", ctypes.c_uint64),
        ("device_index", ctypes.c_int),
        ("device_capacity_bytes", ctypes.c_uint64),
        ("device_baseline_bytes", ctypes.c_uint64),
        ("device_peak_bytes", ctypes.c_uint64),
        ("device_growth_bytes", ctypes.c_uint64),
        ("device_after_bytes", ctypes.c_uint64),
        ("device_method", ctypes.c_int),
        ("device_own_baseline_bytes", ctypes.c_uint64),
        ("device_own_peak_bytes", ctypes.c_uint64),
        ("device_own_growth_bytes", ctypes.c_uint64),
        ("device_own_after_bytes", ctypes.c_uint64),
        ("device_uuid", ctypes.c_char * 96),
        ("problem", ErrorStruct),
    ]


class HostStruct(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                "time_ns",
                "memory_total_bytes",
                "memory_free_bytes",
                "memory_available_bytes",
                "page_cache_bytes",
                "shared_memory_bytes",
                "slab_reclaimable_bytes",
                "anonymous_bytes",
                "mapped_file_bytes",
                "processes_resident_bytes",
                "swap_total_bytes",
                "swap_free_bytes",
                "swap_used_bytes",
                "hugepages_total_bytes",
                "hugepages_free_bytes",
            )
        ),
        ("pressure_some_avg10_percent", ctypes.c_double),
        ("pressure_full_avg10_percent", ctypes.c_double),
        ("pressure_some_ns", ctypes.c_uint64),
        ("pressure_full_ns", ctypes.c_uint64),
        ("cgroup_version", ctypes.c_int),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "cgroup_limit_bytes",
                "cgroup_high_bytes",
                "cgroup_usage_bytes",
                "cgroup_peak_bytes",
                "cgroup_working_set_bytes",
                "cgroup_oom_kills",
            )
        ),
    ]


TRACK_SAMPLES = 4096  # MT_TRACK_SAMPLES
TRACK_DEVICES = 8  # MT_TRACK_DEVICES
AlertFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)


class TrackSampleStruct(ctypes.Structure):
    _fields_ = [
        ("time_ns", ctypes.c_uint64),
        ("resident_bytes", ctypes.c_uint64),
        ("heap_used_bytes", ctypes.c_uint64),
        ("heap_free_bytes", ctypes.c_uint64),
        ("device_bytes", ctypes.c_uint64 * TRACK_DEVICES),
    ]


class TrackOptionsStruct(ctypes.Structure):
    _fields_ = [
        ("interval_ns", ctypes.c_uint64),
        ("alert_bytes", ctypes.c_uint64),
        ("alert", AlertFunction),
        ("context", ctypes.c_void_p),
        ("n_devices", ctypes.c_uint32),
        ("devices", ctypes.c_int * TRACK_DEVICES),
    ]


class TrendPointStruct(ctypes.Structure):
    _fields_ = [("time_ns", ctypes.c_uint64), ("held_bytes", ctypes.c_uint64), ("used_bytes", ctypes.c_uint64)]


class TrendStruct(ctypes.Structure):
    _fields_ = [
        ("pattern", ctypes.c_int),
        ("confidence_ratio", ctypes.c_double),
        ("low_bytes", ctypes.c_uint64),
        ("high_bytes", ctypes.c_uint64),
        ("growth_bytes", ctypes.c_int64),
        ("bytes_per_second", ctypes.c_double),
    ]


BUDGET_PLACES = 14  # MT_BUDGET_PLACES
BUDGET_HOLDERS = 128  # MT_BUDGET_HOLDERS
JOB_PLACES = 65  # MT_JOB_PLACES


class BudgetNeedStruct(ctypes.Structure):
    _fields_ = [("place", ctypes.c_char * 48), ("bytes", ctypes.c_uint64), ("used_bytes", ctypes.c_uint64)]


class BudgetPlaceStruct(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("capacity_bytes", ctypes.c_uint64),
        ("free_bytes", ctypes.c_uint64),
        ("min_free_bytes", ctypes.c_uint64),
        ("overhead_bytes", ctypes.c_uint64),
    ]


class BudgetHolderStruct(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("pid", ctypes.c_int),
        ("holds", ctypes.c_int),
        ("n_passed", ctypes.c_uint32),
        ("n_needs", ctypes.c_uint32),
        ("needs", BudgetNeedStruct * BUDGET_PLACES),
    ]


class JobMachineStruct(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_size_t),
        ("places", BudgetPlaceStruct * JOB_PLACES),
        ("names", (ctypes.c_char * 16) * JOB_PLACES),
    ]


class PoolStatsStruct(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                "live_bytes",
                "peak_live_bytes",
                "reserved_bytes",
                "peak_reserved_bytes",
                "free_bytes",
                "pending_bytes",
                "front_bytes",
                "spare_bytes",
                "largest_free_bytes",
                "address_bytes_used",
                "n_allocations",
                "n_frees",
                "n_hits",
                "n_front_hits",
                "n_misses",
                "n_failures",
                "n_growths",
                "n_pages_made",
                "n_pages_moved",
                "n_pages_returned",
                "n_rollbacks",
                "n_waits",
                "copied_bytes",
            )
        ),
    ]


class TrackPointer(ctypes.c_void_p):
    """A struct mt_track *."""


PRESSURES = ("low", "moderate", "high", "critical")  # enum mt_pressure
LEAKS = ("none", "fast", "slow")  # enum mt_leak
MONITOR_CALLS = 32  # MT_MONITOR_CALLS


class MonitorSourceStruct(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("close", ctypes.c_void_p),
        ("glance", ctypes.c_void_p),
    ]


class MonitorSnapshotStruct(ctypes.Structure):
    _fields_ = [
        ("time_ns", ctypes.c_uint64),
        ("total_bytes", ctypes.c_uint64),
        ("available_bytes", ctypes.c_uint64),
        ("allocated_bytes", ctypes.c_uint64),
        ("pooled_bytes", ctypes.c_uint64),
        ("largest_bytes", ctypes.c_uint64),
        ("utilisation_ratio", ctypes.c_double),
        ("pressure", ctypes.c_int),
    ]


ClockFunction = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
PressureFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(MonitorSnapshotStruct), ctypes.c_int)
CleanFunction = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)  # mt_monitor_clean


class MonitorOptionsStruct(ctypes.Structure):
    _fields_ = [
        ("history", ctypes.c_size_t),
        ("level_ratios", ctypes.c_double * (len(PRESSURES) - 1)),
        ("hysteresis_ratio", ctypes.c_double),
        ("cleanup_ratio", ctypes.c_double),
        ("cleanup_pause_ns", ctypes.c_uint64),
        ("callback_ns", ctypes.c_uint64),
        ("now_ns", ClockFunction),
        ("on_pressure", PressureFunction),
        ("context", ctypes.c_void_p),
    ]


class MonitorPooledStruct(ctypes.Structure):
    _fields_ = [("free_bytes", ctypes.c_uint64), ("largest_bytes", ctypes.c_uint64)]


AskPoolFunction = ctypes.CFUNCTYPE(  # mt_monitor_ask_pool
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(MonitorPooledStruct)
)


class MonitorCallStruct(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32),
        ("freed_bytes", ctypes.c_uint64),
        ("took_ns", ctypes.c_uint64),
        ("hangs", ctypes.c_int),
    ]


class MonitorCleanupStruct(ctypes.Structure):
    _fields_ = [
        ("before_bytes", ctypes.c_uint64),
        ("after_bytes", ctypes.c_uint64),
        ("n_calls", ctypes.c_size_t),
        ("calls", MonitorCallStruct * MONITOR_CALLS),
    ]


class MonitorGrowthStruct(ctypes.Structure):
    _fields_ = [
        ("leak", ctypes.c_int),
        ("bytes_per_s", ctypes.c_double),
        ("low_bytes_per_s", ctypes.c_double),
        ("high_bytes_per_s", ctypes.c_double),
        ("full_ns", ctypes.c_uint64),
        ("full_low_ns", ctypes.c_uint64),
    ]


class MonitorStatsStruct(ctypes.Structure):
    _fields_ = [
        ("n_records", ctypes.c_uint64),
        ("n_failures", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("average_bytes", ctypes.c_double),
        ("n_events", ctypes.c_uint64 * len(PRESSURES)),
        ("last_event_ns", ctypes.c_uint64 * len(PRESSURES)),
        ("n_cleanups", ctypes.c_uint64),
        ("cleaned_bytes", ctypes.c_uint64),
        ("n_leaks", ctypes.c_uint64),
        ("growth", MonitorGrowthStruct),
    ]


class MonitorPointer(ctypes.c_void_p):
    """A struct mt_monitor *."""


class PoolPointer(ctypes.c_void_p):
    """A struct mt_pool *."""


class BackendPointer(ctypes.c_void_p):
    """A struct mt_pool_backend *."""


class CudaPointer(ctypes.c_void_p):
    """A struct mt_pool_cuda *."""


STRUCTS = {
    "mt_error": ErrorStruct,
    "mt_measure_options": OptionsStruct,
    "mt_measure_result": ResultStruct,
    "mt_host_sample": HostStruct,
    "mt_track_sample": TrackSampleStruct,
    "mt_track_options": TrackOptionsStruct,
    "mt_trend_point": TrendPointStruct,
    "mt_trend": TrendStruct,
    "mt_monitor_source": MonitorSourceStruct,
    "mt_monitor_snapshot": MonitorSnapshotStruct,
    "mt_monitor_options": MonitorOptionsStruct,
    "mt_monitor_pooled": MonitorPooledStruct,
    "mt_monitor_call": MonitorCallStruct,
    "mt_monitor_cleanup": MonitorCleanupStruct,
    "mt_monitor_growth": MonitorGrowthStruct,
    "mt_monitor_stats": MonitorStatsStruct,
    "mt_budget_need": BudgetNeedStruct,
    "mt_budget_place": BudgetPlaceStruct,
    "mt_budget_holder": BudgetHolderStruct,
    "mt_job_machine": JobMachineStruct,
    "mt_pool_stats": PoolStatsStruct,
}

_Pointer = ctypes.c_void_p
# Name, result, parameters.
_FUNCTIONS = (
    ("mt_error_name", ctypes.c_char_p, (ctypes.c_int,)),
    ("mt_category_by_name", ctypes.c_int, (ctypes.c_char_p,)),
    ("mt_category_name", ctypes.c_char_p, (ctypes.c_int,)),
    ("mt_format_size", ctypes.c_char_p, (ctypes.c_uint64, ctypes.c_char_p)),
    ("mt_parse_size", ctypes.c_int, (ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64))),
    ("mt_host_sample_take", ctypes.c_int, (ctypes.c_int, ctypes.POINTER(HostStruct), ctypes.POINTER(ErrorStruct))),
    (
        "mt_measure_begin",
        ctypes.c_int,
        (ctypes.POINTER(OptionsStruct), ctypes.POINTER(_Pointer), ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_measure_end", None, (_Pointer, ctypes.POINTER(ResultStruct))),
    (
        "mt_track_start",
        ctypes.c_int,
        (ctypes.POINTER(TrackOptionsStruct), ctypes.POINTER(TrackPointer), ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_track_look", None, (TrackPointer, ctypes.POINTER(TrackSampleStruct))),
    ("mt_track_copy", ctypes.c_size_t, (TrackPointer, ctypes.POINTER(TrackSampleStruct), ctypes.c_size_t)),
    ("mt_track_destroy", None, (TrackPointer,)),
    ("mt_trend_judge", None, (ctypes.POINTER(TrendPointStruct), ctypes.c_size_t, ctypes.POINTER(TrendStruct))),
    ("mt_trend_pattern_name", ctypes.c_char_p, (ctypes.c_int,)),
    (
        "mt_job_look",
        ctypes.c_int,
        (ctypes.POINTER(JobMachineStruct), ctypes.c_char_p, ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_budget_ask",
        ctypes.c_int,
        (
            ctypes.c_char_p,
            ctypes.POINTER(BudgetNeedStruct),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(ErrorStruct),
        ),
    ),
    (
        "mt_budget_take",
        ctypes.c_int,
        (ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(BudgetPlaceStruct), ctypes.c_size_t, ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_budget_renew",
        ctypes.c_int,
        (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_budget_release", ctypes.c_int, (ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ErrorStruct))),
    (
        "mt_budget_list",
        ctypes.c_int,
        (
            ctypes.c_char_p,
            ctypes.POINTER(BudgetHolderStruct),
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.POINTER(ErrorStruct),
        ),
    ),
    (
        "mt_monitor_open_source",
        ctypes.c_int,
        (ctypes.c_char_p, ctypes.POINTER(MonitorSourceStruct), ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_monitor_create",
        ctypes.c_int,
        (
            ctypes.POINTER(MonitorSourceStruct),
            ctypes.POINTER(MonitorOptionsStruct),
            ctypes.POINTER(MonitorPointer),
            ctypes.POINTER(ErrorStruct),
        ),
    ),
    (
        "mt_monitor_look",
        ctypes.c_int,
        (MonitorPointer, ctypes.POINTER(MonitorSnapshotStruct), ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_monitor_record",
        ctypes.c_int,
        (MonitorPointer, ctypes.POINTER(MonitorSnapshotStruct), ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_monitor_history",
        ctypes.c_size_t,
        (MonitorPointer, ctypes.POINTER(MonitorSnapshotStruct), ctypes.c_size_t),
    ),
    ("mt_monitor_can_allocate", ctypes.c_int, (MonitorPointer, ctypes.c_uint64, ctypes.c_double)),
    ("mt_monitor_is_low", ctypes.c_int, (MonitorPointer, ctypes.c_double)),
    (
        "mt_monitor_add_pool",
        ctypes.c_int,
        (MonitorPointer, AskPoolFunction, ctypes.c_void_p, ctypes.POINTER(ErrorStruct)),
    ),
    (
        "mt_monitor_add_cleanup",
        ctypes.c_int,
        (
            MonitorPointer,
            ctypes.c_char_p,
            CleanFunction,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(ErrorStruct),
        ),
    ),
    ("mt_monitor_add_heap_trim", ctypes.c_int, (MonitorPointer, ctypes.c_int, ctypes.POINTER(ErrorStruct))),
    ("mt_monitor_remove_cleanup", ctypes.c_int, (MonitorPointer, ctypes.c_uint64)),
    (
        "mt_monitor_cleanup",
        ctypes.c_int,
        (MonitorPointer, ctypes.c_uint64, ctypes.POINTER(MonitorCleanupStruct), ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_monitor_stats_read", None, (MonitorPointer, ctypes.POINTER(MonitorStatsStruct))),
    ("mt_pool_host_backend", BackendPointer, ()),
    (
        "mt_pool_cuda_create",
        ctypes.c_int,
        (ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(CudaPointer), ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_pool_cuda_backend", BackendPointer, (CudaPointer,)),
    ("mt_pool_cuda_destroy", None, (CudaPointer,)),
    (
        "mt_pool_create",
        ctypes.c_int,
        (BackendPointer, _Pointer, ctypes.POINTER(PoolPointer), ctypes.POINTER(ErrorStruct)),
    ),
    ("mt_pool_destroy", None, (PoolPointer,)),
    ("mt_pool_limit", None, (PoolPointer, ctypes.c_uint64, ctypes.c_uint64)),
    ("mt_pool_allocate", ctypes.c_int, (PoolPointer, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))),
    (
        "mt_pool_allocate_hinted",
        ctypes.c_int,
        (PoolPointer, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint64)),
    ),
    ("mt_pool_sleep", ctypes.c_int, (PoolPointer, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))),
    ("mt_pool_wake", ctypes.c_int, (PoolPointer,)),
    ("mt_pool_free", ctypes.c_int, (PoolPointer, ctypes.c_uint64)),
    ("mt_pool_trim", ctypes.c_uint64, (PoolPointer, ctypes.c_uint64)),
    ("mt_pool_tick", ctypes.c_uint64, (PoolPointer,)),
    ("mt_pool_stats_read", None, (PoolPointer, ctypes.POINTER(PoolStatsStruct))),
)


@functools.cache
def load() -> ctypes.CDLL:
    """The library, with its functions declared."""
    loaded = ctypes.CDLL(places.library())
    for name, result, parameters in _FUNCTIONS:
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = parameters
    return loaded


def error_from(error: ErrorStruct) -> Error:
    name = load().mt_error_name(error.code)
    return error_of(name.decode(), error.text.decode(errors="replace"))


def begin(options: OptionsStruct) -> ctypes.c_void_p:
    """Begins a measurement. What cannot begin is an Error, and nothing was begun."""
    measure, error = ctypes.c_void_p(), ErrorStruct()
    if load().mt_measure_begin(ctypes.byref(options), ctypes.byref(measure), ctypes.byref(error)) < 0:
        raise error_from(error)
    return measure


def end(measure: ctypes.c_void_p) -> ResultStruct:
    result = ResultStruct()
    load().mt_measure_end(measure, ctypes.byref(result))
    return result


def put_away(measure: ctypes.c_void_p) -> None:
    load().mt_measure_end(measure, None)


def start_track(options: TrackOptionsStruct) -> TrackPointer:
    track, error = TrackPointer(), ErrorStruct()
    if load().mt_track_start(ctypes.byref(options), ctypes.byref(track), ctypes.byref(error)) < 0:
        raise error_from(error)
    return track


def look(track: TrackPointer) -> TrackSampleStruct:
    """A sample of now, which the series has too."""
    sample = TrackSampleStruct()
    load().mt_track_look(track, ctypes.byref(sample))
    return sample


def samples(track: TrackPointer) -> list[TrackSampleStruct]:
    taken = (TrackSampleStruct * TRACK_SAMPLES)()
    return list(taken[: load().mt_track_copy(track, taken, TRACK_SAMPLES)])


def destroy_track(track: TrackPointer) -> None:
    load().mt_track_destroy(track)


def judge(points: list[tuple[int, int, int]]) -> tuple[str, TrendStruct]:
    """The pattern of a series of (time in ns, held, used of that or UNKNOWN)."""
    given, trend = (TrendPointStruct * len(points))(*(TrendPointStruct(*point) for point in points)), TrendStruct()
    load().mt_trend_judge(given, len(points), ctypes.byref(trend))
    name: bytes = load().mt_trend_pattern_name(trend.pattern)
    return name.decode(), trend


def _checked(name: str, *arguments: Any) -> None:
    """Calls a function whose last parameter is the error."""
    error = ErrorStruct()
    if getattr(load(), name)(*arguments, ctypes.byref(error)) < 0:
        raise error_from(error)


def machine(visible: str | None) -> JobMachineStruct:
    """The places of this machine with what they have free; `visible` as CUDA_VISIBLE_DEVICES."""
    found = JobMachineStruct()
    _checked("mt_job_look", ctypes.byref(found), None if visible is None else visible.encode())
    return found


def ask_budget(path: str, needs: dict[str, int]) -> int:
    """The number of a new request; see <memtally/budget.h>, also for those below."""
    number = ctypes.c_uint64()
    given = (BudgetNeedStruct * len(needs))(*(BudgetNeedStruct(place.encode(), size) for place, size in needs.items()))
    _checked("mt_budget_ask", os.fsencode(path), given, len(needs), ctypes.byref(number))
    return number.value


def take_budget(path: str, number: int, found: JobMachineStruct) -> None:
    _checked("mt_budget_take", os.fsencode(path), number, found.places, found.n)


def renew_budget(path: str, number: int, place: str, used: int) -> None:
    _checked("mt_budget_renew", os.fsencode(path), number, place.encode(), used)


def release_budget(path: str, number: int) -> None:
    _checked("mt_budget_release", os.fsencode(path), number)


def budget_holders(path: str) -> list[BudgetHolderStruct]:
    holders, n = (BudgetHolderStruct * BUDGET_HOLDERS)(), ctypes.c_size_t()
    _checked("mt_budget_list", os.fsencode(path), holders, ctypes.byref(n), None)
    return list(holders[: n.value])


def error_name(code: int) -> str:
    """ "MT_EARG" and so on."""
    name: bytes = load().mt_error_name(code)
    return name.decode()


class MadePool:
    """A pool, and the device that it is of."""

    def __init__(self, pool: PoolPointer, cuda: CudaPointer | None, max_bytes: int) -> None:
        self.pool = pool
        self.cuda = cuda
        self.max_bytes = max_bytes


def make_pool(device: int | None, max_bytes: int) -> MadePool:
    """A pool of a CUDA device's memory, or of the host's."""
    loaded, pool, error = load(), PoolPointer(), ErrorStruct()
    cuda = CudaPointer() if device is not None else None
    if cuda is not None and loaded.mt_pool_cuda_create(device, 0, ctypes.byref(cuda), ctypes.byref(error)) < 0:
        raise error_from(error)
    backend = loaded.mt_pool_host_backend() if cuda is None else loaded.mt_pool_cuda_backend(cuda)
    if loaded.mt_pool_create(backend, None, ctypes.byref(pool), ctypes.byref(error)) < 0:
        if cuda is not None:
            loaded.mt_pool_cuda_destroy(cuda)
        raise error_from(error)
    loaded.mt_pool_limit(pool, max_bytes, 0)
    return MadePool(pool, cuda, max_bytes)


def destroy_pool(made: MadePool) -> None:
    load().mt_pool_destroy(made.pool)
    if made.cuda is not None:
        load().mt_pool_cuda_destroy(made.cuda)


def pool_allocate(made: MadePool, size: int, stream: int, hints: int) -> int:
    """The address of a block."""
    address = ctypes.c_uint64()
    code: int = load().mt_pool_allocate_hinted(made.pool, size, stream, hints, ctypes.byref(address))
    if code < 0:
        if error_name(code) == "MT_EBUSY":
            raise error_of("MT_EBUSY", "the pool sleeps; wake() it before you take buffers")
        used = text_of_size(pool_stats(made).live_bytes)
        raise error_of(
            error_name(code),
            f"the pool has no room for {text_of_size(size)}: {used} are in use, and it holds {text_of_size(made.max_bytes)}"
            " at most; release what is not used, or give it more by max_bytes",
        )
    return address.value


def pool_free(made: MadePool, address: int) -> None:
    load().mt_pool_free(made.pool, address)


def pool_sleep(made: MadePool, keep: int) -> int:
    """The bytes given back."""
    released = ctypes.c_uint64()
    code: int = load().mt_pool_sleep(made.pool, keep, ctypes.byref(released))
    if code < 0:
        why = {"MT_EBUSY": "it sleeps already, or work on it cannot be waited for", "MT_ENOMEM": "the host has no room for copies"}
        raise error_of(error_name(code), "the pool cannot sleep: " + why.get(error_name(code), "its device refused"))
    return released.value


def pool_wake(made: MadePool) -> None:
    code: int = load().mt_pool_wake(made.pool)
    if code < 0:
        raise error_of(error_name(code), "the pool found no memory to wake up with: it sleeps on; free some and wake() it again")


def pool_trim(made: MadePool, keep_bytes: int) -> int:
    returned: int = load().mt_pool_trim(made.pool, keep_bytes)
    return returned


def pool_tick(made: MadePool) -> int:
    returned: int = load().mt_pool_tick(made.pool)
    return returned


def pool_stats(made: MadePool) -> PoolStatsStruct:
    stats = PoolStatsStruct()
    load().mt_pool_stats_read(made.pool, ctypes.byref(stats))
    return stats


def host() -> HostStruct:
    """What the machine says of its memory now."""
    sample, error = HostStruct(), ErrorStruct()
    if load().mt_host_sample_take(0, ctypes.byref(sample), ctypes.byref(error)) < 0:
        raise error_from(error)
    return sample


def resident() -> int:
    """What is resident of this process now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def host_left() -> int | None:
    """What this process may still take of the host, by the machine and by its cgroup; None where neither says."""
    said = host()
    left = [said.memory_available_bytes]
    if UNKNOWN not in (said.cgroup_limit_bytes, said.cgroup_working_set_bytes):
        left.append(max(0, said.cgroup_limit_bytes - said.cgroup_working_set_bytes))
    return min((value for value in left if value != UNKNOWN), default=None)


def size(value: int | str) -> int:
    """Bytes of a size as people write it ("4GiB"), or of a number of bytes."""
    if isinstance(value, int):
        return value
    parsed = ctypes.c_uint64()
    if load().mt_parse_size(value.encode(), ctypes.byref(parsed)) < 0:
        raise error_of("MT_EARG", f"{value!r} is no size; write it as 4GiB, 512MiB or a number of bytes")
    return parsed.value


def text_of_size(value: int) -> str:
    """The size as the command writes it ("4.00 GiB")."""
    if value < 0:
        return "-" + text_of_size(-value)
    text = ctypes.create_string_buffer(64)
    written: bytes = load().mt_format_size(value, text)
    return written.decode()


def category(name: str) -> int:
    """The number of a category ("kv_cache")."""
    number: int = load().mt_category_by_name(name.encode())
    if not number:
        known = [load().mt_category_name(i).decode() for i in range(1, 64)]
        raise error_of("MT_EARG", f"no category {name!r}; there are {', '.join(n for n in known if n != '?')}")
    return number
