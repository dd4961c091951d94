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
METHODS = {"auto": 0, "exact": 1, "sampled": 2}  # enum mt_measure_method


class ErrorStruct(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("offset", ctypes.c_uint64), ("text", ctypes.c_char * 488)]


class OptionsStruct(ctypes.Structure):
    _fields_ = [("method", ctypes.c_int), ("device_index", ctypes.c_int), ("interval_ns", ctypes.c_uint64)]


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


class TrackPointer(ctypes.c_void_p):
    """A struct mt_track *."""


STRUCTS = {
    "mt_error": ErrorStruct,
    "mt_measure_options": OptionsStruct,
    "mt_measure_result": ResultStruct,
    "mt_host_sample": HostStruct,
    "mt_track_sample": TrackSampleStruct,
    "mt_track_options": TrackOptionsStruct,
    "mt_trend_point": TrendPointStruct,
    "mt_trend": TrendStruct,
    "mt_budget_need": BudgetNeedStruct,
    "mt_budget_place": BudgetPlaceStruct,
    "mt_budget_holder": BudgetHolderStruct,
    "mt_job_machine": JobMachineStruct,
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
