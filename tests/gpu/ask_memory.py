# SPDX-License-Identifier: MIT
"""What a driver answers about memory."""

import ctypes
import os

from cuda import (
    MIB,
    Access,
    PoolProperties,
    allocate,
    attribute,
    check,
    driver,
    event,
    free_bytes,
    out,
    pinned,
    start,
    stream,
    taken,
    total_bytes,
)
from sections import section

SIZES = [1, 255, 256, 257, 512, 4096, 65536, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 17 * MIB, 1024 * MIB]


@section(total_is_the_devices=True, free_is_less=True, without_places=1)
def memory_information():
    device = start()
    whole, at = out(ctypes.c_size_t)
    check(driver.cuDeviceTotalMem_v2(at, device), "cuDeviceTotalMem")
    return {
        "total_is_the_devices": whole.value == total_bytes(),
        "free_is_less": free_bytes() < whole.value,
        "without_places": driver.cuMemGetInfo_v2(None, None),
    }


@section(zero=1, huge=2, over_total=2, free_of_nothing=0, free_of_a_wrong_address=1)
def errors_of_allocations():
    start()
    return {
        "zero": allocate(0)[0],
        "without_place": driver.cuMemAlloc_v2(None, 4096),
        "huge": allocate(1 << 60)[0],
        "over_total": allocate(total_bytes() + 1)[0],
        "free_of_nothing": driver.cuMemFree_v2(0),
        "free_of_a_wrong_address": driver.cuMemFree_v2(0x1234),
    }


@section()
def free_memory_by_size():
    """Each of a process's own, so that slabs of one do not serve the next."""
    start()
    answers = {}
    for size in SIZES:
        fell, (code, pointer) = taken(lambda size=size: allocate(size))
        answers[str(size)] = {"code": code, "taken": fell, "aligned_512": pointer % 512 == 0}
        back, code = taken(lambda pointer=pointer: driver.cuMemFree_v2(pointer))
        answers[str(size)]["given_back"] = -back
    return answers


@section()
def small_allocations_share():
    """A thousand of one kilobyte: what falls at each step of a hundred."""
    start()
    pointers = []

    def take():
        for _ in range(100):
            pointers.append(allocate(1024)[1])

    steps = [taken(take)[0] for _ in range(10)]
    distances = sorted({b - a for a, b in zip(pointers, pointers[1:])})[:2]
    back, _ = taken(lambda: [driver.cuMemFree_v2(pointer) for pointer in pointers])
    return {"steps": steps, "apart": distances[0], "given_back": -back}


@section(double_free=1, inside=1)
def frees_that_are_wrong():
    start()
    _, pointer = allocate(4 * MIB)
    inside = driver.cuMemFree_v2(pointer + 256)
    first = driver.cuMemFree_v2(pointer)
    return {"inside": inside, "first": first, "double_free": driver.cuMemFree_v2(pointer)}


@section(base_is_found=True, size=5000)
def address_ranges():
    start()
    _, pointer = allocate(5000)
    base, at_base = out()
    size, at_size = out(ctypes.c_size_t)
    code = driver.cuMemGetAddressRange_v2(at_base, at_size, pointer + 4999)
    return {
        "code": code,
        "base_is_found": base.value == pointer,
        "size": size.value,
        "outside": driver.cuMemGetAddressRange_v2(at_base, at_size, 0x1000),
    }


@section(wrong_element=1)
def pitched():
    start()
    answers = {}
    for width in (1, 100, 512, 513, 4000, 65537):
        pointer, at = out()
        pitch, at_pitch = out(ctypes.c_size_t)
        code = driver.cuMemAllocPitch_v2(at, at_pitch, width, 10, 4)
        answers[str(width)] = {"code": code, "pitch": pitch.value}
        driver.cuMemFree_v2(pointer)
    answers["wrong_element"] = driver.cuMemAllocPitch_v2(at, at_pitch, 100, 10, 3)
    return answers


def pointer_attributes(pointer):
    names = {"type": 2, "ordinal": 9, "managed": 8}
    answers = {}
    for name, number in names.items():
        value, at = out(ctypes.c_int)
        code = driver.cuPointerGetAttribute(at, number, pointer)
        answers[name] = value.value if code == 0 else f"error {code}"
    return answers


@section(device={"type": 2, "ordinal": 0, "managed": 0}, host={"type": 1, "ordinal": 0, "managed": 0})
def attributes_of_pointers():
    start()
    host, at = out()
    check(driver.cuMemHostAlloc(at, 4096, 0), "cuMemHostAlloc")
    managed, at = out()
    check(driver.cuMemAllocManaged(at, 4096, 1), "cuMemAllocManaged")
    plain = ctypes.create_string_buffer(64)
    return {
        "device": pointer_attributes(allocate(4096)[1]),
        "host": pointer_attributes(host.value),
        "managed": pointer_attributes(managed.value),
        "plain": pointer_attributes(ctypes.addressof(plain)),
    }


@section(zero=1, flags=3, taken=0, same_address=True)
def pinned_memory():
    start()
    pointer, at = out()
    zero = driver.cuMemHostAlloc(at, 0, 0)
    fell, code = taken(lambda: driver.cuMemHostAlloc(at, 8 * MIB, 3))
    flags, at_flags = out(ctypes.c_uint)
    check(driver.cuMemHostGetFlags(at_flags, pointer), "cuMemHostGetFlags")
    device, at_device = out()
    driver.cuMemHostGetDevicePointer_v2(at_device, pointer, 0)
    return {
        "zero": zero,
        "code": code,
        "taken": fell,
        "flags": flags.value,
        "same_address": device.value == pointer.value,
        "free": driver.cuMemFreeHost(pointer),
        "free_again": driver.cuMemFreeHost(pointer),
    }


@section(first=0, again=712, gone=0, gone_again=713)
def registered_memory():
    start()
    page = 4096
    block = ctypes.create_string_buffer(16 * page)
    address = (ctypes.addressof(block) + page - 1) // page * page
    return {
        "first": driver.cuMemHostRegister_v2(address, 8 * page, 0),
        "again": driver.cuMemHostRegister_v2(address, 8 * page, 0),
        "gone": driver.cuMemHostUnregister(address),
        "gone_again": driver.cuMemHostUnregister(address),
    }


@section(zero=1, no_flags=1)
def managed_memory():
    start()
    pointer, at = out()
    answers = {
        "zero": driver.cuMemAllocManaged(at, 0, 1),
        "no_flags": driver.cuMemAllocManaged(at, 4096, 0),
    }
    answers["taken"], answers["code"] = taken(lambda: driver.cuMemAllocManaged(at, 16 * MIB, 1))
    answers["free"] = driver.cuMemFree_v2(pointer)
    return answers


@section(round_trip=True, between=True, set_bytes=True, set_words=True)
def copies_of_small_blocks():
    start()
    size = 4096
    first, second = allocate(size)[1], allocate(size)[1]
    data = bytes(range(256)) * 16
    back = ctypes.create_string_buffer(size)
    answers = {"to": driver.cuMemcpyHtoD_v2(first, data, size)}
    answers["from"] = driver.cuMemcpyDtoH_v2(back, first, size)
    answers["round_trip"] = back.raw == data
    driver.cuMemcpyDtoD_v2(second, first, size)
    driver.cuMemcpyDtoH_v2(back, second, size)
    answers["between"] = back.raw == data
    driver.cuMemsetD8_v2(first, 0xAB, 100)
    driver.cuMemsetD32_v2(first + 512, 0x01020304, 8)
    driver.cuMemcpyDtoH_v2(back, first, size)
    answers["set_bytes"] = back.raw[:101] == b"\xab" * 100 + data[100:101]
    answers["set_words"] = back.raw[512:544] == b"\x04\x03\x02\x01" * 8
    answers["past_the_end"] = driver.cuMemcpyHtoD_v2(first + (1 << 45), data, size)
    return answers


@section(is_supported=1)
def default_pool():
    device = start()
    pool, at = out()
    answers = {"is_supported": attribute(device, 115)}
    check(driver.cuDeviceGetDefaultMemPool(at, device), "cuDeviceGetDefaultMemPool")
    current, at_current = out()
    check(driver.cuDeviceGetMemPool(at_current, device), "cuDeviceGetMemPool")
    answers["current_is_default"] = current.value == pool.value
    answers["attributes"] = {str(n): pool_attribute(pool, n) for n in range(1, 9)}
    return answers


def pool_attribute(pool, number):
    value, at = out()
    code = driver.cuMemPoolGetAttribute(pool, number, at)
    width = 0xFFFFFFFF if number <= 3 else (1 << 64) - 1
    return value.value & width if code == 0 else f"error {code}"


def set_threshold(pool, size):
    return driver.cuMemPoolSetAttribute(pool, 4, ctypes.byref(ctypes.c_uint64(size)))


RESERVED, RESERVED_HIGH, USED, USED_HIGH = 5, 6, 7, 8


def through_pool(threshold):
    """Reserved and used after taking and giving back, and what the device has less."""
    device = start()
    on = stream()
    pool, at = out()
    check(driver.cuDeviceGetDefaultMemPool(at, device), "cuDeviceGetDefaultMemPool")
    set_threshold(pool, threshold)
    before = free_bytes()
    pointer, at = out()
    check(driver.cuMemAllocAsync(at, 5 * MIB, on), "cuMemAllocAsync")
    check(driver.cuStreamSynchronize(on), "cuStreamSynchronize")
    answers = {"held": before - free_bytes(), "used": pool_attribute(pool, USED), "reserved": pool_attribute(pool, RESERVED)}
    check(driver.cuMemFreeAsync(pointer, on), "cuMemFreeAsync")
    check(driver.cuStreamSynchronize(on), "cuStreamSynchronize")
    answers["kept"] = before - free_bytes()
    answers["used_after"] = pool_attribute(pool, USED)
    answers["reserved_after"] = pool_attribute(pool, RESERVED)
    answers["used_high"] = pool_attribute(pool, USED_HIGH)
    answers["reserved_high"] = pool_attribute(pool, RESERVED_HIGH)
    check(driver.cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo")
    answers["after_trim"] = before - free_bytes()
    return answers


@section(used_after=0, reserved_after=0, kept=0)
def pool_without_threshold():
    return through_pool(0)


@section(used_after=0, after_trim=0)
def pool_with_threshold():
    return through_pool((1 << 64) - 1)


@section(destroy=0)
def pool_of_ones_own():
    start()
    on = stream()
    properties = PoolProperties()
    properties.alloc_type = 1
    properties.location.type = 1
    pool, at = out()
    answers = {"create": driver.cuMemPoolCreate(at, ctypes.byref(properties))}
    pointer, at = out()
    answers["taken"], answers["code"] = taken(lambda: driver.cuMemAllocFromPoolAsync(at, 100, pool, on))
    answers["used"] = pool_attribute(pool, USED)
    answers["free"] = driver.cuMemFreeAsync(pointer, on)
    driver.cuStreamSynchronize(on)
    answers["destroy"] = driver.cuMemPoolDestroy(pool)
    return answers


@section(minimum=2 * MIB, recommended=2 * MIB)
def granularity_of_maps():
    start()
    answers = {}
    for name, option in (("minimum", 0), ("recommended", 1)):
        size, at = out(ctypes.c_size_t)
        properties = pinned()
        check(driver.cuMemGetAllocationGranularity(at, ctypes.byref(properties), option), name)
        answers[name] = size.value
    return answers


@section(uneven_size=1, zero=1)
def reserved_addresses():
    start()
    address, at = out()
    answers = {
        "uneven_size": driver.cuMemAddressReserve(at, 2 * MIB + 1, 0, 0, 0),
        "zero": driver.cuMemAddressReserve(at, 0, 0, 0, 0),
    }
    answers["taken"], answers["code"] = taken(lambda: driver.cuMemAddressReserve(at, 64 * MIB, 0, 0, 0))
    answers["aligned"] = address.value % (2 * MIB) == 0
    answers["free_of_a_part"] = driver.cuMemAddressFree(address, 2 * MIB)
    answers["free"] = driver.cuMemAddressFree(address, 64 * MIB)
    return answers


def mapped(size):
    """A handle with memory behind addresses, and what the device had less at each step."""
    properties = pinned()
    address, at = out()
    check(driver.cuMemAddressReserve(at, 2 * size, 0, 0, 0), "cuMemAddressReserve")
    handle, at_handle = out()
    answers = {}
    answers["create_takes"], answers["create"] = taken(lambda: driver.cuMemCreate(at_handle, size, ctypes.byref(properties), 0))
    answers["map_takes"], answers["map"] = taken(lambda: driver.cuMemMap(address, size, 0, handle, 0))
    access = Access()
    access.location.type = 1
    access.flags = 3
    answers["access"] = driver.cuMemSetAccess(address, size, ctypes.byref(access), 1)
    return answers, address, handle


@section(create_takes=32 * MIB, map_takes=0, release_gives=0, unmap_gives=32 * MIB, twice=1)
def maps():
    start()
    size = 32 * MIB
    answers, address, handle = mapped(size)
    answers["twice"] = driver.cuMemMap(address, size, 0, handle, 0)
    data = b"memory" * 10
    back = ctypes.create_string_buffer(len(data))
    driver.cuMemcpyHtoD_v2(address.value, data, len(data))
    driver.cuMemcpyDtoH_v2(back, address.value, len(data))
    answers["is_memory"] = back.raw == data
    fell, answers["release"] = taken(lambda: driver.cuMemRelease(handle))
    answers["release_gives"] = -fell
    fell, answers["unmap"] = taken(lambda: driver.cuMemUnmap(address, size))
    answers["unmap_gives"] = -fell
    answers["unmap_again"] = driver.cuMemUnmap(address, size)
    return answers


@section(uneven=1, too_large=2)
def handles_that_are_refused():
    start()
    properties = pinned()
    handle, at = out()
    whole = total_bytes() // (2 * MIB) * 2 * MIB + 2 * MIB
    wrong = pinned()
    wrong.type = 0
    return {
        "uneven": driver.cuMemCreate(at, 1000, ctypes.byref(properties), 0),
        "zero": driver.cuMemCreate(at, 0, ctypes.byref(properties), 0),
        "too_large": driver.cuMemCreate(at, whole, ctypes.byref(properties), 0),
        "no_type": driver.cuMemCreate(at, 2 * MIB, ctypes.byref(wrong), 0),
        "release_of_nothing": driver.cuMemRelease(0),
    }


@section(export=0)
def handles_in_files():
    device = start()
    properties = pinned(handle_types=1)
    handle, at = out()
    check(driver.cuMemCreate(at, 2 * MIB, ctypes.byref(properties), 0), "cuMemCreate")
    file, at_file = out(ctypes.c_int)
    answers = {"is_supported": attribute(device, 103), "export": driver.cuMemExportToShareableHandle(at_file, handle, 1, 0)}
    again, at_again = out()
    taken_by, answers["import"] = taken(
        lambda: driver.cuMemImportFromShareableHandle(at_again, ctypes.c_void_p(file.value), 1)
    )
    answers["import_takes"] = taken_by
    answers["release_first"] = taken(lambda: driver.cuMemRelease(handle))[0]
    os.close(file.value)
    answers["release_second_gives"] = -taken(lambda: driver.cuMemRelease(again))[0]
    return answers


class Share(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


@section(child={"open": 0, "reads": True, "takes": 0})
def memory_between_processes():
    """A child is forked before CUDA starts and opens what the parent has."""
    there, here = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        import json

        share = Share.from_buffer_copy(os.read(there[0], 64))
        start()
        pointer, at = out()
        driver.library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Share, ctypes.c_uint]
        fell, code = taken(lambda: driver.library.cuIpcOpenMemHandle_v2(at, share, 1))
        back = ctypes.create_string_buffer(6)
        driver.cuMemcpyDtoH_v2(back, pointer, 6)
        os.write(here[1], json.dumps({"open": code, "reads": back.raw == b"shared", "takes": fell}).encode())
        os._exit(0)
    start()
    _, pointer = allocate(4 * MIB)
    driver.cuMemcpyHtoD_v2(pointer, b"shared", 6)
    driver.cuCtxSynchronize()
    share = Share()
    answers = {"handle": driver.cuIpcGetMemHandle(ctypes.byref(share), pointer)}
    os.write(there[1], bytes(share))
    os.close(here[1])
    answers["child"] = os.read(here[0], 4096).decode()
    os.waitpid(child, 0)
    import json

    answers["child"] = json.loads(answers["child"] or "null")
    return answers


@section(same_pointer=0)
def handles_of_other_processes_opened_here():
    start()
    _, pointer = allocate(4 * MIB)
    share, wrong = Share(), Share()
    answers = {"same_pointer": driver.cuIpcGetMemHandle(ctypes.byref(share), pointer)}
    opened, at = out()
    driver.library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Share, ctypes.c_uint]
    answers["open_here"] = driver.library.cuIpcOpenMemHandle_v2(at, share, 1)
    answers["open_of_zeros"] = driver.library.cuIpcOpenMemHandle_v2(at, wrong, 1)
    answers["close_of_ones_own"] = driver.cuIpcCloseMemHandle(pointer)
    return answers


@section(events_done=True)
def memory_in_order_of_a_stream():
    start()
    on = stream()
    done = event()
    pointer, at = out()
    answers = {"take": driver.cuMemAllocAsync(at, 1000, on), "zero": driver.cuMemAllocAsync(at, 0, on)}
    driver.cuEventRecord(done, on)
    driver.cuStreamSynchronize(on)
    answers["events_done"] = driver.cuEventQuery(done) == 0
    answers["free_plainly"] = driver.cuMemFree_v2(pointer)
    return answers


@section()
def out_of_memory_leaves_things_as_they_were():
    start()
    before = free_bytes()
    codes = []
    pointers = []
    while len(pointers) < 64 and free_bytes() > 512 * MIB:
        code, pointer = allocate((free_bytes() // 2) // MIB * MIB)
        codes.append(code)
        pointers.append(pointer)
    code, _ = allocate(free_bytes() + MIB)
    for pointer in pointers:
        driver.cuMemFree_v2(pointer)
    return {"all_succeed": set(codes) == {0}, "then": code, "back": before == free_bytes()}
