# SPDX-License-Identifier: MIT
"""CUDA's driver as a script calls it: by name, with the result code and what was written."""

import ctypes
import functools
import time

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2
MIB = 1 << 20

Pointer = ctypes.c_uint64


class Driver:
    """The functions of libcuda. Arguments are Python numbers, ctypes objects or bytes."""

    @functools.cached_property
    def library(self):
        return ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self.library, name)
        function.restype = ctypes.c_int

        def call(*arguments):
            return function(*(convert(argument) for argument in arguments))

        return call

    def has(self, name):
        return hasattr(self.library, name)


def convert(argument):
    """Numbers go as 64 bits: the callee takes as many as it wants."""
    if isinstance(argument, int):
        return ctypes.c_uint64(argument & (1 << 64) - 1)
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, (ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)):
        return ctypes.c_uint64((argument.value or 0) & (1 << 64) - 1)
    return argument


driver = Driver()


def out(kind=Pointer):
    """A place for what a call writes, and its address to give to the call."""
    place = kind()
    return place, ctypes.byref(place)


def check(code, what):
    if code != SUCCESS:
        raise RuntimeError(f"{what} answered {code}")


def settle():
    """Waits until free memory stands still: processes of other sections may yet be going."""
    last, since = free_bytes(), time.monotonic()
    while time.monotonic() - since < 0.2:
        time.sleep(0.02)
        now = free_bytes()
        if now != last:
            last, since = now, time.monotonic()


def start(with_context=True):
    """The first device, with its primary context current."""
    check(driver.cuInit(0), "cuInit")
    device, at = out(ctypes.c_int)
    check(driver.cuDeviceGet(at, 0), "cuDeviceGet")
    if with_context:
        context, at = out()
        check(driver.cuDevicePrimaryCtxRetain(at, device.value), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        settle()
    return device.value


def free_bytes():
    free, at_free = out(ctypes.c_size_t)
    total, at_total = out(ctypes.c_size_t)
    check(driver.cuMemGetInfo_v2(at_free, at_total), "cuMemGetInfo")
    return free.value


def total_bytes():
    free, at_free = out(ctypes.c_size_t)
    total, at_total = out(ctypes.c_size_t)
    check(driver.cuMemGetInfo_v2(at_free, at_total), "cuMemGetInfo")
    return total.value


def allocate(size):
    """The code and the address."""
    pointer, at = out()
    code = driver.cuMemAlloc_v2(at, size)
    return code, pointer.value


def taken(action):
    """By how much free memory falls through an action, and what it gave."""
    before = free_bytes()
    result = action()
    return before - free_bytes(), result


def attribute(device, number):
    value, at = out(ctypes.c_int)
    code = driver.cuDeviceGetAttribute(at, number, device)
    return value.value if code == SUCCESS else f"error {code}"


def stream(flags=0):
    made, at = out()
    check(driver.cuStreamCreate(at, flags), "cuStreamCreate")
    return made


def event(flags=0):
    made, at = out()
    check(driver.cuEventCreate(at, flags), "cuEventCreate")
    return made


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of a device."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("alloc_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


def pinned(device=0, handle_types=0):
    properties = AllocationProperties()
    properties.type = 1
    properties.handle_types = handle_types
    properties.location.type = 1
    properties.location.id = device
    return properties


