#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package beside PyTorch on GPUs that are not there. Sizes are multiples of 2 MiB from 20 MiB up, which PyTorch's
allocator asks of the driver as they are, so each sum is arithmetic; the recording of the same run is the second witness."""

import json
import os
import tempfile

import engine
import package
import tap

MIB = 1 << 20
TAKE = """
    import json, sys
    import torch
    import memtally

    def take(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
"""


def on(device, code, *arguments, report=False):
    """The last line that a program prints on such a device, read as JSON, and its recording's report."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        before = [package.program("memtally"), "run", "-q", "--on", device, "-o", recording, "--"]
        told = package.answered(code, *arguments, python=engine.torch(), before=before)
        return (told, json.loads(package.ran([before[0], "report", "--json", recording]))) if report else told


def of_place(report, kind="gpu:"):
    (place,) = [place for place in report["places"] if place["place"].startswith(kind)]
    return place


def test_the_peak_of_a_call_that_begins_with_cuda_is_the_recordings_to_the_byte():
    record, report = on("H100-80GB", TAKE + """
    def load():
        kept, passing = take(32), take(64)
        del passing
        return kept
    kept, record = memtally.measure(load)
    print(json.dumps(record.to_dict()))
    """, report=True)
    assert (record["device"], record["method"]) == ("cuda:0", "allocator"), record
    assert record["peak_memory_bytes"] == record["growth_bytes"] == 96 * MIB, record
    place = of_place(report)
    taken = {row["category"]: row["resident_bytes"] for row in place["rows"]}
    assert record["peak_memory_bytes"] == place["total_resident_bytes"] - taken["context"], (record, taken)


def test_peaks_of_a_device_are_those_of_each_call_nested_or_not():
    inner, outer, again = on("H100-80GB", TAKE + """
    first = take(32)
    def around():
        passing = take(256)
        del passing
        torch.cuda.empty_cache()
        return memtally.measure(take, 128)[1]
    inner, outer = memtally.measure(around)
    again = memtally.Measure(device=outer.devices[0].uuid)(take, 64)[1]
    print(json.dumps([inner.to_dict(), outer.to_dict(), again.to_dict()]))
    """)
    assert [inner["growth_bytes"], outer["growth_bytes"]] == [128 * MIB, 256 * MIB], (inner, outer)
    assert [inner["peak_memory_bytes"], outer["peak_memory_bytes"]] == [160 * MIB, 288 * MIB], (inner, outer)
    # The 128 MiB that were returned are free within the allocator: it reserves no more.
    (device,) = again["devices"]
    assert (again["growth_bytes"], device["allocated_growth_bytes"]) == (0, 64 * MIB), again


def test_a_tracker_sees_devices_by_the_driver_and_by_the_allocator():
    told, report = on("H100-80GB", TAKE + """
    import time
    first, kept = take(32), []
    with memtally.Tracker(interval=0.001) as tracker:
        for step in range(12):
            kept.append(take(32))
            tracker.mark(str(step))
        with tracker.neutral("returns"):
            take(64)
        with tracker.neutral("keeps"):
            kept.append(take(64))
    print(json.dumps(tracker.analyze().to_dict()))
    """, report=True)
    series = {one["source"]: one["bytes"] for one in told["series"]}
    # Each of 12 marks has 32 MiB more; the 64 MiB that came back are the last ones again.
    reserved = [32 + 32 * step for step in range(13)]
    assert series["allocator"] == [mib * MIB for mib in (*reserved, 416, 480, 480, 480, 480)], series["allocator"]
    assert series["driver"][-1] - series["driver"][0] == 448 * MIB, series["driver"]
    # The driver's figure is the recording's: what is reserved, and the context.
    assert series["driver"][-1] == of_place(report)["total_resident_bytes"], report
    growth = {check["name"]: check["growth_bytes"]["cuda:0"] for check in told["checks"]}
    assert growth == {"returns": 0, "keeps": 64 * MIB}, growth


def test_a_pool_s_buffers_are_tensors_of_the_device():
    told, report = on("H100-80GB", TAKE + """
    first = take(32)
    with memtally.pool(max_bytes="1GiB") as pool:
        tensor = pool.allocate(256 << 20)
        where, address = [str(tensor.device), tensor.numel(), str(tensor.dtype)], tensor.data_ptr()
        pool.release(tensor)
        again = pool.allocate(256 << 20)
        told = [where, again.data_ptr() == address, pool.stats().to_dict(), pool.memory_stats()]
        shown = torch.cuda.mem_get_info()
    print(json.dumps([*told, torch.cuda.mem_get_info()[0] - shown[0], sorted(torch.cuda.memory_stats())]))
    """, report=True)
    where, is_same, stats, named, returned, names = told
    assert where == ["cuda:0", 256 * MIB, "torch.uint8"] and is_same, told
    assert (stats["hits"], stats["misses"], stats["held_bytes"]) == (1, 1, 256 * MIB) and returned == 256 * MIB, told
    assert set(named) <= set(names) and named["reserved_bytes.all.peak"] == 256 * MIB, (set(named) - set(names), named)
    # The most of the device: PyTorch's 32 MiB, the pool and the context.
    context = next(row["allocated_bytes"] for row in of_place(report)["rows"] if row["category"] == "context")
    assert of_place(report)["total_resident_bytes"] == 288 * MIB + context, report


def test_the_pool_in_pytorch_s_place_answers_for_it():
    told = on("H100-80GB", TAKE + """
    pool = memtally.use_pool_in_torch()
    kept = [take(32), take(64)]
    more = take(100)
    more = None
    told = pool.memory_stats()
    torch.cuda.empty_cache()
    try:
        memtally.use_pool_in_torch()
    except memtally.Error as error:
        print(json.dumps([told, pool.stats().to_dict(), str(error)]))
    """)
    named, stats, error = told
    assert named["allocated_bytes.all.current"] == 96 * MIB and named["allocated_bytes.all.peak"] == 196 * MIB, named
    assert named["allocation.all.current"] == 2 and named["reserved_bytes.all.peak"] >= 196 * MIB, named
    assert stats["held_bytes"] == 96 * MIB and stats["in_use_bytes"] == 96 * MIB, stats
    assert error == "CUDA is in use already; replace PyTorch's allocator before the first tensor on a device", error


def test_a_call_that_used_no_device_is_one_of_the_host():
    idle, asked, told = on("2xH100-80GB", TAKE + """
    first = take(32)
    idle = memtally.measure(lambda: bytearray(64 << 20))[1]
    asked = memtally.Measure(device="cuda:1")(lambda: torch.empty(32 << 20, dtype=torch.uint8, device="cuda:1"))[1]
    try:
        memtally.Measure(device=2)(print, "ran")
    except memtally.Error as error:
        told = [type(error).__name__, str(error)]
    print(json.dumps([idle.to_dict(), asked.to_dict(), told]))
    """)
    assert idle["device"] == "host" and [device["was_used"] for device in idle["devices"]] == [False, False], idle
    assert (asked["device"], asked["peak_memory_bytes"]) == ("cuda:1", 32 * MIB), asked
    assert [device["was_used"] for device in asked["devices"]] == [False, True], asked
    assert told == ["NotFound", "there is no device 2; PyTorch has 2"], told


def test_a_device_is_named_in_any_way_and_errors_threads_and_coroutines_have_its_peak():
    named, failed, both, waited, host = on("2xH100-80GB", TAKE + """
    import asyncio, threading
    def second(mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda:1")
    first = take(32)
    uuid = memtally.measure(second, 32)[1].devices[1].uuid
    torch.cuda.set_device(1)
    named = []
    for device in (1, "cuda:1", uuid, torch.device("cuda", 1), torch.device("cuda"), "auto"):
        torch.cuda.empty_cache()
        record = memtally.Measure(device=device)(second, 64)[1]
        named.append([record.device, record.method, record.growth_bytes, record.peak_memory_bytes])
    torch.cuda.set_device(0)

    def fails():
        kept = take(96)
        raise KeyError("mine")
    for call in (lambda: memtally.measure(fails), lambda: memtally.Measure().wrap(fails)(), lambda: exec("with memtally.Measure(): fails()")):
        torch.cuda.empty_cache()
        try:
            call()
        except KeyError as error:
            failed = [error.memtally_record.device, error.memtally_record.growth_bytes]
            assert failed == ["cuda:0", 96 << 20], failed

    torch.cuda.empty_cache()
    barrier, both = threading.Barrier(2), []
    def together():
        barrier.wait()
        kept = take(48)
        barrier.wait()
    threads = [threading.Thread(target=lambda: both.append(memtally.measure(together)[1].growth_bytes)) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    torch.cuda.empty_cache()
    async def wait():
        kept = take(80)
        await asyncio.sleep(0)
    waited = asyncio.run(memtally.measure(wait))[1]
    host = memtally.Measure(device=torch.device("cpu"))(take, 20)[1].device
    print(json.dumps([named, failed, both, [waited.device, waited.growth_bytes], host]))
    """)
    assert named == [["cuda:1", "allocator", 64 * MIB, 64 * MIB]] * 6, named
    assert failed == ["cuda:0", 96 * MIB] and both == [96 * MIB] * 2 and waited == ["cuda:0", 80 * MIB] and host == "host", (both, waited)


def test_a_process_that_a_program_forks_after_cuda_measures_its_host():
    record = on("H100-80GB", TAKE + """
    import os
    first = take(32)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(memtally.measure(bytearray, 1 << 20)[1].to_dict()).encode())
        os._exit(0)
    os.close(write)
    print(os.fdopen(read).read())
    """)
    assert record["device"] == "host" and record["peak_memory_bytes"] > 0 and not record["devices"], record


def test_what_a_program_says_of_its_tensors_stands_in_its_recording():
    with tempfile.TemporaryDirectory() as folder:
        program, recording = os.path.join(folder, "program.py"), os.path.join(folder, "recording")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import torch, memtally\n"
                       "on_device = torch.empty(64 << 20, dtype=torch.uint8, device='cuda')\n"
                       "memtally.label(on_device, 'recurrent_state', 'mine')\n"
                       "on_host = torch.ones(48 << 20, dtype=torch.uint8)\n"
                       "memtally.label(on_host, 'training', 'mine')\n"
                       "assert memtally.record().folder\n")
        told = package.answered("""
            import json, memtally, os, sys
            recording = memtally.record(sys.argv[1:3], output=sys.argv[3], on="H100-80GB")
            tally = recording.tally("training-peak")
            device = tally.places[1]
            print(json.dumps([recording.status, tally.place("host").row("training").allocated_bytes,
                              device.row("recurrent_state").allocated_bytes, "training" in str(tally),
                              os.fspath(recording) == sys.argv[3]]))
        """, engine.torch(), program, recording, PYTHONPATH=package.packages())
    assert told == [0, 48 * MIB, 64 * MIB, True, True], told


RESET = TAKE + """
    import gc

    class Model:
        def __init__(self):
            self.layers = {"first": [take(64)]}

    class Cycle:
        def __init__(self, mib):
            self.memory, self.me = take(mib), self

    def text(reset):
        return {"freed": reset.freed, "by": reset.freed_by_category, "after": [reset.after.allocated, reset.after.cached],
                "held": [[one.bytes, one.what, one.path] for one in reset.held], "problems": reset.problems}
"""


def test_a_device_gives_back_cycles_and_caches_and_says_who_holds_the_rest():
    reset, peak, kept, after = on("H100-80GB", RESET + """
    kept = Model()
    gc.disable()
    Cycle(128)
    passing = take(32)
    del passing
    def step():
        mine = take(48)
        (reset,) = memtally.reset_device(0)
        return reset
    reset, record = memtally.measure(step)
    print(json.dumps([text(reset), record.peak_memory_bytes, torch.cuda.max_memory_reserved(), torch.cuda.memory_reserved()]))
    """)
    assert reset["by"] == {"unattributed": 128 * MIB, "cached": 32 * MIB}, reset
    assert reset["after"] == [112 * MIB, 0] and reset["freed"] == 160 * MIB and reset["problems"] == [], reset
    assert reset["held"] == [[64 * MIB, f"Tensor {64 * MIB} uint8", "__main__.kept.layers['first'][0]"],
                             [48 * MIB, f"Tensor {48 * MIB} uint8", "step():mine"]], reset
    # The call's own peak is not lost although the reset has the allocator count anew.
    assert peak == (64 + 128 + 32 + 48) * MIB and kept == (64 + 48) * MIB and after == 64 * MIB + 48 * MIB, (peak, kept, after)


def test_a_pool_gives_back_what_no_buffer_has():
    device, host = on("H100-80GB", RESET + """
    first = take(32)
    pool = memtally.pool(max_bytes="4GiB")
    kept, free = pool.allocate(64 << 20), pool.allocate(256 << 20)
    held, idle = pool.allocate(64 << 20, "host"), pool.allocate(128 << 20, "host")
    pool.release(free)
    pool.release(idle)
    before = [torch.cuda.mem_get_info(0)[0], pool.stats().held_bytes]
    (reset,) = memtally.reset_device(0)
    device = [text(reset)["by"], torch.cuda.mem_get_info(0)[0] - before[0], reset.after.allocated]
    memtally.reset_host()
    print(json.dumps([device, [pool.stats().held_bytes, pool.stats().in_use_bytes, before[1] - pool.stats().held_bytes]]))
    """)
    assert device == [{"unattributed": 0, "cached": 256 * MIB}, 256 * MIB, 96 * MIB], device
    assert host[:2] == [128 * MIB, 128 * MIB] and host[2] == 384 * MIB, host


def test_every_device_is_reset_where_none_is_named_and_none_where_none_is_used():
    none, told, places, wrong = on("2xH100-80GB", RESET + """
    none = memtally.reset_device()
    a = torch.empty(32 << 20, dtype=torch.uint8, device="cuda:1")
    del a
    resets = memtally.reset_device("all")
    wrong = []
    for device in (2, "cpu"):
        try:
            memtally.reset_device(device)
        except memtally.Error as error:
            wrong.append(error.code)
    print(json.dumps([none, [text(reset) for reset in resets], [reset.place for reset in resets], wrong]))
    """)
    assert none == [] and places == ["cuda:0", "cuda:1"] and wrong == ["MT_ENOTFOUND", "MT_EARG"]
    assert [reset["freed"] for reset in told] == [0, 32 * MIB], told


def test_the_host_says_which_tensors_stay_and_looking_holds_none():
    told, alive = on("H100-80GB", TAKE + """
    import weakref
    kept = [torch.zeros(32 << 20, dtype=torch.uint8)]
    def hold():
        local = torch.zeros(16 << 20, dtype=torch.uint8)
        reference = weakref.ref(local)
        reset = memtally.reset_host()
        del local
        return reset, reference() is not None
    reset, is_alive = hold()
    print(json.dumps([[[one.bytes, one.path] for one in reset.held[:2]], is_alive]))
    """)
    assert told == [[32 * MIB, "__main__.kept[0]"], [16 * MIB, "hold():local"]], told
    assert not alive


def test_a_pool_of_cupys_is_emptied_too():
    told = on("H100-80GB", TAKE + """
    import types

    class Pool:
        used, total = 5 << 20, 21 << 20
        def used_bytes(self): return self.used
        def total_bytes(self): return self.total
        def free_all_blocks(self): self.total = self.used

    class Device:
        def __init__(self, index): pass
        def __enter__(self): return self
        def __exit__(self, *_): pass

    pool, pinned = Pool(), Pool()
    first = take(32)
    sys.modules["cupy"] = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Device=Device), get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pinned)
    (reset,) = memtally.reset_device(0)
    print(json.dumps([reset.freed_by_category, reset.after.total, pinned.total]))
    """)
    assert told == [{"unattributed": 0, "cached": 16 * MIB}, 37 * MIB, 5 * MIB], told


def test_a_reset_gives_back_workspaces_and_pools_of_graphs_that_are_gone_and_counts_anew_by_category():
    told = on("H100-80GB", TAKE + """
    import os
    environment = dict(os.environ)
    model = torch.nn.Linear(4096, 4096, device="cuda", bias=False)
    model(torch.zeros(64, 4096, device="cuda")).sum().backward()
    parameter = model.weight.nbytes
    workspaces = torch.cuda.memory_allocated() - 2 * parameter
    static = take(32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = static + 1
    graph.replay()
    del graph, made, static
    model.weight.grad = None
    (reset,) = memtally.reset_device()
    counted = torch.cuda.memory_stats()
    told = [parameter, workspaces > 0 or torch.__version__.split(".")[:2] != ["2", "9"], reset.before.by_category, reset.freed_by_category, reset.after.by_category,
            reset.after.total == parameter == torch.cuda.memory_reserved(), dict(os.environ) == environment, reset.problems,
            [counted["allocated_bytes.all.peak"], counted["allocated_bytes.all.allocated"], counted["num_alloc_retries"]]]
    torch.zeros(1 << 20, device="cuda")
    told.append(torch.cuda.memory_stats()["allocated_bytes.all.allocated"])
    print(json.dumps(told))
    """)
    parameter, has_workspaces, before, freed, after, is_all, is_same, problems, (peak, allocated, retries), anew = told
    # PyTorch 2.15 lets go of them itself.
    assert has_workspaces and problems == [] and is_same, told
    assert before["weights"] == parameter == 64 * MIB and after == {"weights": parameter} and is_all, told
    assert freed["weights"] == 0 and freed["cached"] + freed.get("unattributed", 0) > 32 * MIB and sum(freed.values()) == sum(before.values()) - parameter, told
    assert (peak, allocated, retries, anew) == (parameter, 0, 0, 4 * MIB), told


def test_an_allocators_setting_that_would_help_is_said_and_not_made():
    said, before, after = on("H100-80GB", TAKE + """
    def settings():
        return str(torch.cuda.memory._snapshot()["allocator_settings"])
    first = take(32)
    before = settings()
    (clean,) = memtally.reset_device()
    large = take(640)
    del large
    pinned = take(20)  # of the segment that was large
    (reset,) = memtally.reset_device()
    assert not clean.advice and reset.after.cached == 620 << 20, (clean, reset)
    print(json.dumps([str(reset), before, settings()]))
    """)
    assert "620.00 MiB cannot be given back, for each segment of it has a tensor in it; start the program with " in said, said
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in said and before == after, (before, after)
    with open(os.path.join(package.ROOT, "docs", "python", "reset.md"), encoding="utf-8") as file:
        assert f"```text\n{said}\n```\n" in file.read(), said


def test_beside_its_loaders_a_tracker_draws_with_matplotlib_and_cupy_has_what_is_called_of_it():
    folder = os.environ.get("MEMTALLY_LOADERS")
    if not folder:
        raise tap.Skip("MEMTALLY_LOADERS names no folder with matplotlib and CuPy; make test-python brings them")
    size, is_drawn = package.answered("""
    import json, memtally, struct, sys
    with memtally.Tracker("drawn", interval=0.001) as tracker:
        block = bytearray(b"x") * (64 << 20)
        tracker.mark("middle")
    tracker.save("memory.png")
    with open("memory.png", "rb") as file:
        head = file.read(24)
    from matplotlib import image
    pixels = image.imread("memory.png")[..., :3].reshape(-1, 3)
    colours = {tuple(round(255 * part) for part in pixel) for pixel in pixels[:: max(1, len(pixels) // 200_000)].tolist()}
    print(json.dumps([struct.unpack(">8s8xII", head)[1:], [head[1:4] == b"PNG", len(colours) > 2]]))
    """, python=engine.torch(), PYTHONPATH=os.pathsep.join([package.packages(), folder]))
    assert size[0] >= 900 and size[1] >= 200 and is_drawn == [True, True], (size, is_drawn)
    told = package.answered(CUPY, python=engine.torch(), PYTHONPATH=os.pathsep.join([package.packages(), folder]))
    assert told == {"pools": 1, "missing": []}, told


# A CuPy that finds no device shows only the names of what is called, and the parameters, of which CuPy's texts tell.
CUPY = """
    import json, warnings
    warnings.simplefilter("ignore")
    import cupy
    from memtally import resetting
    missing = []

    def takes(thing, name, n):
        called = getattr(thing, name, None)
        if not callable(called):
            missing.append(name)
            return
        given = [word for word in called.__doc__.partition("(")[2].partition(")")[0].split(", ") if word not in ("", "self")]
        if not len([word for word in given if "=" not in word]) <= n <= len(given):
            missing.append(f"{name} takes {given}")

    pool, pinned = cupy.get_default_memory_pool(), cupy.get_default_pinned_memory_pool()
    for name in ("used_bytes", "total_bytes", "free_all_blocks"):
        takes(pool, name, 0)
    takes(pinned, "free_all_blocks", 0)
    pinned.free_all_blocks()
    takes(cupy.cuda, "Device", 1)
    for name in ("__enter__", "__exit__"):
        assert callable(getattr(cupy.cuda.Device, name)), name
    takes(cupy.cuda, "get_current_stream", 0)
    assert cupy.cuda.ExternalStream(7, 0).ptr == 7
    takes(cupy.cuda, "UnownedMemory", 4)
    takes(cupy.cuda, "MemoryPointer", 2)
    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(4096, 16, pool, 0), 0)
    array = cupy.ndarray((16,), cupy.uint8, pointer)
    assert array.data.ptr == 4096 and hasattr(cupy.ndarray, "__cuda_array_interface__")
    print(json.dumps({"pools": len(resetting.pools_of_cupy()), "missing": missing}))
"""

def test_a_tally_of_now_has_what_the_program_holds():
    places, sums, text = on("H100-80GB", TAKE + """
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, device="cuda") for _ in range(4)))
    on_host = torch.nn.Linear(4096, 4096)
    with torch.no_grad():
        on_host.weight.zero_()
        on_host.bias.zero_()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    other, passing = take(64), take(32)
    del passing
    tally = memtally.tally()
    of = lambda tensors: sum(one.untyped_storage().nbytes() for one in tensors)
    state = [value for one in optimizer.state.values() for value in one.values() if value.is_cuda]
    sums = {"weights": of(model.parameters()), "training": of(one.grad for one in model.parameters()) + of(state),
            "on_host": of(on_host.parameters()), "reserved": torch.cuda.memory_reserved(),
            "cached": torch.cuda.memory_reserved() - torch.cuda.memory_allocated()}
    places = [[place.place, place.total_bytes, place.unattributed_bytes, {row.category: row.bytes for row in place.rows}]
              for place in tally]
    print(json.dumps([places, sums, str(tally)]))
    """)
    (host, total, rest, rows), (device, reserved, unattributed, taken) = places
    assert (host, device) == ("host", "gpu:0") and text.startswith("place")
    assert rows["weights"] == sums["on_host"] and rest == total - sum(rows.values()), rows
    assert reserved == sums["reserved"] and unattributed == reserved - sum(taken.values()), places
    assert {name: taken[name] for name in ("weights", "training", "cached")} == {
        name: sums[name] for name in ("weights", "training", "cached")}, (taken, sums)
    assert unattributed >= 64 * MIB, unattributed


if __name__ == "__main__":
    tap.main(globals())
