# SPDX-License-Identifier: MIT
"""What a driver answers about devices, contexts, streams, graphs and code."""

import ctypes

from cuda import MIB, allocate, attribute, check, driver, event, out, start, stream, taken
from sections import section

CODES = [0, 1, 2, 3, 4, 100, 101, 200, 201, 208, 211, 217, 218, 300, 301, 302, 304, 400, 401, 500, 600, 700, 701, 702]
CODES += [704, 705, 708, 709, 712, 713, 714, 718, 719, 800, 801, 900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 999]

# Which bus, how fast today and what the machine around is, are no matter of the card.
OF_THE_MACHINE = {13, 33, 34, 35, 36, 49, 50, 98, 99, 100, 119}


@section(unknown=1)
def names_of_errors():
    answers = {}
    for code in CODES:
        name, at = out(ctypes.c_char_p)
        words, at_words = out(ctypes.c_char_p)
        driver.cuGetErrorName(code, at)
        driver.cuGetErrorString(code, at_words)
        answers[str(code)] = [(name.value or b"").decode(), (words.value or b"").decode()]
    answers["unknown"] = driver.cuGetErrorName(123456, at)
    return answers


@section(count=3, get=3, allocate=3, context=3)
def before_the_start():
    number, at = out(ctypes.c_int)
    pointer, at_pointer = out()
    return {
        "count": driver.cuDeviceGetCount(at),
        "get": driver.cuDeviceGet(at, 0),
        "allocate": driver.cuMemAlloc_v2(at_pointer, 4096),
        "context": driver.cuCtxGetCurrent(at_pointer),
        "version": driver.cuDriverGetVersion(at),
    }


@section(flags=1, below=101, above=101)
def devices():
    flags = driver.cuInit(1)
    start(with_context=False)
    number, at = out(ctypes.c_int)
    return {
        "flags": flags,
        "below": driver.cuDeviceGet(at, -1),
        "above": driver.cuDeviceGet(at, 99),
        "no_place": driver.cuDeviceGet(None, 0),
    }


@section()
def properties():
    device = start(with_context=False)
    name = ctypes.create_string_buffer(128)
    check(driver.cuDeviceGetName(name, 128, device), "cuDeviceGetName")
    short = ctypes.create_string_buffer(8)
    driver.cuDeviceGetName(short, 8, device)
    size, at = out(ctypes.c_size_t)
    check(driver.cuDeviceTotalMem_v2(at, device), "cuDeviceTotalMem")
    return {"name": name.value.decode(), "cut": short.value.decode(), "total": size.value}


@section(wrong=1)
def attributes():
    device = start(with_context=False)
    answers = {str(n): attribute(device, n) for n in range(1, 135) if n not in OF_THE_MACHINE}
    value, at = out(ctypes.c_int)
    answers["wrong"] = driver.cuDeviceGetAttribute(at, 5000, device)
    return answers


@section(same=True, is_not_zero=True)
def identity():
    device = start(with_context=False)
    first, second = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    answers = {"code": driver.cuDeviceGetUuid_v2(first, device)}
    driver.cuDeviceGetUuid_v2(second, device)
    answers["same"] = first.raw == second.raw
    answers["is_not_zero"] = first.raw != b"\0" * 16
    bus = ctypes.create_string_buffer(16)
    answers["bus"] = driver.cuDeviceGetPCIBusId(bus, 16, device)
    back, at = out(ctypes.c_int)
    answers["by_bus"] = driver.cuDeviceGetByPCIBusId(at, bus)
    answers["bus_is_the_devices"] = back.value == device
    answers["no_such_bus"] = driver.cuDeviceGetByPCIBusId(at, b"ffff:ff:1f.0")
    return answers


def primary_state(device):
    flags, at = out(ctypes.c_uint)
    active, at_active = out(ctypes.c_int)
    check(driver.cuDevicePrimaryCtxGetState(device, at, at_active), "cuDevicePrimaryCtxGetState")
    return [flags.value, active.value]


@section(before=[0, 0], after=[0, 1], released=[0, 0], release_again=201)
def primary_context():
    device = start(with_context=False)
    answers = {"before": primary_state(device)}
    first, at = out()
    second, at_second = out()
    driver.cuDevicePrimaryCtxRetain(at, device)
    driver.cuDevicePrimaryCtxRetain(at_second, device)
    answers["same"] = first.value == second.value
    answers["after"] = primary_state(device)
    driver.cuDevicePrimaryCtxRelease_v2(device)
    driver.cuDevicePrimaryCtxRelease_v2(device)
    answers["released"] = primary_state(device)
    answers["release_again"] = driver.cuDevicePrimaryCtxRelease_v2(device)
    return answers


@section(without=201, pop_of_nothing=201)
def contexts():
    device = start(with_context=False)
    pointer, at = out()
    answers = {"without": driver.cuMemAlloc_v2(at, 4096)}
    current, at_current = out()
    answers["pop_of_nothing"] = driver.cuCtxPopCurrent_v2(at_current)
    answers["current"] = [driver.cuCtxGetCurrent(at_current), current.value]
    context, at = out()
    driver.cuDevicePrimaryCtxRetain(at, device)
    answers["push"] = driver.cuCtxPushCurrent_v2(context)
    version, at = out(ctypes.c_uint)
    answers["version"] = [driver.cuCtxGetApiVersion(context, at), version.value]
    of, at = out(ctypes.c_int)
    answers["device"] = [driver.cuCtxGetDevice(at), of.value]
    answers["pop"] = [driver.cuCtxPopCurrent_v2(at_current), current.value == context.value]
    return answers


@section()
def limits():
    start()
    answers = {}
    for number in range(0, 9):
        value, at = out(ctypes.c_size_t)
        code = driver.cuCtxGetLimit(at, number)
        answers[str(number)] = value.value if code == 0 else f"error {code}"
    answers["set"] = driver.cuCtxSetLimit(0, 4096)
    value, at = out(ctypes.c_size_t)
    driver.cuCtxGetLimit(at, 0)
    answers["stack"] = value.value
    answers["wrong"] = driver.cuCtxSetLimit(77, 1)
    return answers


@section(non_blocking=1, wrong_flags=1, query=0)
def streams():
    start()
    made, at = out()
    answers = {"wrong_flags": driver.cuStreamCreate(at, 64)}
    driver.cuStreamCreate(at, 1)
    flags, at_flags = out(ctypes.c_uint)
    driver.cuStreamGetFlags(made, at_flags)
    answers["non_blocking"] = flags.value
    least, at_least = out(ctypes.c_int)
    greatest, at_greatest = out(ctypes.c_int)
    driver.cuCtxGetStreamPriorityRange(at_least, at_greatest)
    answers["priorities"] = [least.value, greatest.value]
    high, at = out()
    driver.cuStreamCreateWithPriority(at, 1, -100)
    priority, at_priority = out(ctypes.c_int)
    driver.cuStreamGetPriority(high, at_priority)
    answers["priority"] = priority.value
    answers["query"] = driver.cuStreamQuery(made)
    answers["destroy"] = driver.cuStreamDestroy_v2(made)
    return answers


@section(not_recorded=0, timing_off=400, unrecorded_time=400, wrong_flags=1)
def events():
    start()
    first, second, quiet = event(), event(), event(2)
    time, at = out(ctypes.c_float)
    answers = {
        "not_recorded": driver.cuEventQuery(first),
        "unrecorded_time": driver.cuEventElapsedTime(at, first, second),
    }
    driver.cuEventRecord(first, 0)
    driver.cuEventRecord(second, 0)
    driver.cuEventRecord(quiet, 0)
    answers["synchronize"] = driver.cuEventSynchronize(second)
    answers["time"] = driver.cuEventElapsedTime(at, first, second)
    answers["is_positive"] = time.value >= 0
    answers["timing_off"] = driver.cuEventElapsedTime(at, first, quiet)
    made, at = out()
    answers["wrong_flags"] = driver.cuEventCreate(at, 64)
    answers["destroy"] = driver.cuEventDestroy_v2(first)
    return answers


@section(order=[1, 2, 3])
def host_functions():
    start()
    on = stream()
    order = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    calls = [kind(lambda _, n=n: order.append(n)) for n in (1, 2, 3)]
    codes = [driver.cuLaunchHostFunc(on, ctypes.cast(call, ctypes.c_void_p), 0) for call in calls]
    driver.cuStreamSynchronize(on)
    return {"codes": codes, "order": order}


def empty_graph():
    graph, at = out()
    check(driver.cuGraphCreate(at, 0), "cuGraphCreate")
    return graph


def count_nodes(graph):
    count, at = out(ctypes.c_size_t)
    check(driver.cuGraphGetNodes(graph, None, at), "cuGraphGetNodes")
    return count.value


@section(nodes=2, clone=2, launch=0, flags=1)
def graphs():
    start()
    graph = empty_graph()
    answers = {"flags": driver.cuGraphCreate(out()[1], 7)}
    first, at = out()
    answers["empty"] = driver.cuGraphAddEmptyNode(at, graph, None, 0)
    second, at = out()
    answers["after"] = driver.cuGraphAddEmptyNode(at, graph, ctypes.byref(first), 1)
    answers["nodes"] = count_nodes(graph)
    copy, at = out()
    driver.cuGraphClone(at, graph)
    answers["clone"] = count_nodes(copy)
    made, at = out()
    answers["instantiate"] = driver.cuGraphInstantiateWithFlags(at, graph, 0)
    on = stream()
    answers["launch"] = driver.cuGraphLaunch(made, on)
    answers["wait"] = driver.cuStreamSynchronize(on)
    answers["destroy"] = [driver.cuGraphExecDestroy(made), driver.cuGraphDestroy(copy), driver.cuGraphDestroy(graph)]
    return answers


RELAXED, GLOBAL = 2, 0


def capture_status(on):
    status, at = out(ctypes.c_int)
    code = driver.cuStreamIsCapturing(on, at)
    return status.value if code == 0 else f"error {code}"


@section(before=0, within=1, after=0, nodes=1, legacy=900)
def captures():
    start()
    on = stream(1)
    _, pointer = allocate(4096)
    answers = {"before": capture_status(on)}
    answers["legacy"] = driver.cuStreamBeginCapture_v2(0, RELAXED)
    answers["begin"] = driver.cuStreamBeginCapture_v2(on, RELAXED)
    answers["again"] = driver.cuStreamBeginCapture_v2(on, RELAXED)
    answers["within"] = capture_status(on)
    answers["set"] = driver.cuMemsetD8Async(pointer, 1, 4096, on)
    graph, at = out()
    answers["end"] = driver.cuStreamEndCapture(on, at)
    answers["after"] = capture_status(on)
    answers["nodes"] = count_nodes(graph)
    answers["end_again"] = driver.cuStreamEndCapture(on, at)
    return answers


@section(synchronize=900, status=2, end=901)
def captures_that_break():
    start()
    on = stream(1)
    driver.cuStreamBeginCapture_v2(on, RELAXED)
    answers = {"synchronize": driver.cuStreamSynchronize(on), "status": capture_status(on)}
    graph, at = out()
    answers["end"] = driver.cuStreamEndCapture(on, at)
    answers["graph"] = graph.value
    return answers


@section(allocate=900)
def captures_that_forbid():
    start()
    on = stream(1)
    driver.cuStreamBeginCapture_v2(on, GLOBAL)
    answers = {"allocate": allocate(4096)[0], "status": capture_status(on)}
    graph, at = out()
    answers["end"] = driver.cuStreamEndCapture(on, at)
    return answers


@section(joined=0, nodes=2)
def captures_over_streams():
    start()
    on, other = stream(1), stream(1)
    _, pointer = allocate(4096)
    fork, join = event(2), event(2)
    driver.cuStreamBeginCapture_v2(on, RELAXED)
    driver.cuMemsetD8Async(pointer, 1, 100, on)
    driver.cuEventRecord(fork, on)
    driver.cuStreamWaitEvent(other, fork, 0)
    answers = {"other": capture_status(other)}
    driver.cuMemsetD8Async(pointer, 2, 100, other)
    driver.cuEventRecord(join, other)
    driver.cuStreamWaitEvent(on, join, 0)
    graph, at = out()
    answers["joined"] = driver.cuStreamEndCapture(on, at)
    answers["nodes"] = count_nodes(graph)
    return answers


@section(end=904)
def captures_that_are_not_joined():
    start()
    on, other = stream(1), stream(1)
    _, pointer = allocate(4096)
    fork = event(2)
    driver.cuStreamBeginCapture_v2(on, RELAXED)
    driver.cuEventRecord(fork, on)
    driver.cuStreamWaitEvent(other, fork, 0)
    driver.cuMemsetD8Async(pointer, 2, 100, other)
    graph, at = out()
    return {"end": driver.cuStreamEndCapture(on, at)}


def graph_memory(device, number):
    value, at = out()
    code = driver.cuDeviceGetGraphMemAttribute(device, number, at)
    return value.value if code == 0 else f"error {code}"


@section(used_after=0, trimmed=0)
def memory_of_graphs():
    device = start()
    on = stream(1)
    driver.cuStreamBeginCapture_v2(on, RELAXED)
    pointer, at = out()
    answers = {"take": driver.cuMemAllocAsync(at, 3 * MIB, on)}
    answers["free"] = driver.cuMemFreeAsync(pointer, on)
    graph, at = out()
    driver.cuStreamEndCapture(on, at)
    answers["nodes"] = count_nodes(graph)
    made, at = out()
    driver.cuGraphInstantiateWithFlags(at, graph, 0)
    answers["launch_takes"], answers["launch"] = taken(lambda: driver.cuGraphLaunch(made, on))
    driver.cuStreamSynchronize(on)
    answers["used_after"] = graph_memory(device, 0)
    answers["reserved_after"] = graph_memory(device, 2)
    driver.cuGraphExecDestroy(made)
    driver.cuGraphDestroy(graph)
    driver.cuDeviceGraphMemTrim(device)
    answers["trimmed"] = graph_memory(device, 2)
    return answers


PTX = b""".version 6.0
.target sm_52
.address_size 64
.visible .entry nothing(.param .u64 p) { ret; }
\0"""


@section(load=0, there=0, not_there=500, empty=200)
def modules():
    start()
    module, at = out()
    answers = {"load": driver.cuModuleLoadData(at, PTX)}
    function, at = out()
    answers["there"] = driver.cuModuleGetFunction(at, module, b"nothing")
    answers["not_there"] = driver.cuModuleGetFunction(at, module, b"something")
    wrong, at = out()
    answers["empty"] = driver.cuModuleLoadData(at, b"not an image\0")
    answers["unload"] = driver.cuModuleUnload(module)
    return answers


@section(launch=0, no_threads=1, many_threads=1, much_shared=1)
def launches():
    start()
    module, at = out()
    check(driver.cuModuleLoadData(at, PTX), "cuModuleLoadData")
    function, at = out()
    check(driver.cuModuleGetFunction(at, module, b"nothing"), "cuModuleGetFunction")
    parameter = ctypes.c_uint64(0)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))

    def launch(blocks, threads, shared=0):
        return driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, 0, parameters, None)

    answers = {
        "launch": launch(1, 1),
        "no_threads": launch(1, 0),
        "no_blocks": launch(0, 1),
        "many_threads": launch(1, 2048),
        "much_shared": launch(1, 1, 1 << 20),
    }
    value, at = out(ctypes.c_int)
    driver.cuFuncGetAttribute(at, 0, function)
    answers["threads_most"] = value.value
    answers["synchronize"] = driver.cuCtxSynchronize()
    return answers


@section(itself=0)
def peers():
    device = start()
    answer, at = out(ctypes.c_int)
    code = driver.cuDeviceCanAccessPeer(at, device, device)
    return {"code": code, "itself": answer.value, "no_device": driver.cuDeviceCanAccessPeer(at, device, 99)}


@section(not_there=[500, 0, 1], empty=1)
def addresses_of_functions():
    start(with_context=False)
    answers = {}
    names = ["cuMemAlloc", "cuGetProcAddress", "cuStreamBeginCapture", "cuGraphInstantiate", "cuCtxCreate", "cuMemAllocAsync"]
    for name in names + ["cuDoesNotExist"]:
        found = []
        for version in (2000, 11020, 12000):
            address, at = out()
            status, at_status = out(ctypes.c_int)
            code = driver.cuGetProcAddress_v2(name.encode(), at, version, 0, at_status)
            found.append([code, int(address.value != 0), status.value])
        answers[name] = found
    answers["not_there"] = answers.pop("cuDoesNotExist")[2]
    answers["empty"] = driver.cuGetProcAddress_v2(None, at, 12000, 0, at_status)
    return answers
