#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package beside PyTorch on GPUs that are not there. Sizes are multiples of 2 MiB from 20 MiB up, which PyTorch's
allocator asks of the driver as they are, so each sum is arithmetic; the recording of the same run is the second witness."""

import json
import math
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
    assert reset["by"] == {"allocated": 128 * MIB, "cached": 32 * MIB}, reset
    assert reset["after"] == [112 * MIB, 0] and reset["freed"] == 160 * MIB and reset["problems"] == [], reset
    assert reset["held"] == [[64 * MIB, f"Tensor {64 * MIB} uint8", "__main__.kept.layers['first'][0]"],
                             [48 * MIB, f"Tensor {48 * MIB} uint8", "step():mine"]], reset
    # The call's own peak is not lost although the reset has the allocator count anew.
    assert peak == (64 + 128 + 32 + 48) * MIB and kept == (64 + 48) * MIB and after == 64 * MIB + 48 * MIB, (peak, kept, after)


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
    assert told == [{"allocated": 0, "cached": 16 * MIB}, 37 * MIB, 5 * MIB], told


LOAD = TAKE + """
    import weakref

    GIB = 1 << 30
    first = take(32)
    del first

    class Half:
        pass

    def loader(blocks, failing, error=None):
        def load(**asked):
            loader.asked = asked
            half = Half()
            half.me, half.blocks = half, []  # only a collection frees it
            loader.half = weakref.ref(half)
            for at in range(blocks):
                if at == failing:
                    if error:
                        raise error
                    try:
                        half.blocks.append(take(200 << 10))
                    except RuntimeError as refused:
                        passing = take(20)
                        raise OSError("the shard cannot be read") from refused
                half.blocks.append(take(64))
            return half
        return load
"""


def test_a_load_that_fails_at_any_of_its_allocations_leaves_nothing():
    kinds, left, alive, notes = on("H100-80GB", LOAD + """
    kinds, left, alive = [], [], []
    for failing in range(8):
        try:
            memtally.conservative_load(loader(8, failing))
        except OSError as error:
            kinds.append([str(error), type(error.__cause__).__name__])
            left.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
            alive.append(loader.half() is not None)
            notes = error.__notes__
    print(json.dumps([kinds, left, alive, notes]))
    """)
    assert kinds == [["the shard cannot be read", "OutOfMemoryError"]] * 8, kinds
    assert left == [[0, 0]] * 8 and alive == [False] * 8, (left, alive)
    assert notes[0].startswith("memtally: cuda:0 was given ") and "that were free" in notes[0], notes


def test_a_load_gets_what_is_free_less_the_buffer_and_what_running_takes():
    asked, free, with_model, running, set_by_hand, same, codes = on("H100-80GB", LOAD + """
    free = torch.cuda.mem_get_info(0)[0]
    loaded = memtally.conservative_load(loader(2, None), buffer="3GiB")
    asked = loader.asked
    same = [block.nbytes for block in loaded.blocks]
    del loaded
    with open("config.json", "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
                   "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
                   "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
                   "tie_word_embeddings": True}, file)
    memtally.conservative_load(loader(1, None), "config.json", buffer=0, context=8192)
    with_model = loader.asked["max_memory"][0]
    estimate = memtally.estimate("config.json", engine="transformers", device=str(free), context=8192)
    running = {row.category: row.high_bytes for row in estimate.place("gpu:0").rows}
    memtally.conservative_load(loader(1, None), limits={0: "5GiB", "cpu": 7})
    codes = []
    try:
        memtally.conservative_load(loader(1, None), limits={3: "5GiB"})
    except memtally.Error as error:
        codes.append(error.code)
    print(json.dumps([[asked["max_memory"][0], asked["device_map"]], free, with_model, running, loader.asked["max_memory"], same, codes]))
    """)
    # free was read while 32 MiB were held free by the allocator, which the load gave back first.
    assert asked == [free + 32 * MIB - 3072 * MIB, "auto"] and same == [64 * MIB] * 2, (asked, free)
    kept = sum(size for category, size in running.items() if category not in ("weights", "context"))
    # 2 (K and V) * 16 layers * 8 heads * 64 values * 2 bytes for each token.
    assert running["kv_cache"] == 2 * 16 * 8 * 64 * 2 * 8192 and kept > running["kv_cache"], running
    assert with_model == free + 32 * MIB - kept, (with_model, free, kept)
    assert set_by_hand == {"0": 5 << 30, "cpu": 7} and codes == ["MT_EARG"], set_by_hand


def test_what_would_fit_is_said_of_weights_that_do_not():
    notes = on("H100-80GB", LOAD + """
    with open("config.json", "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
                   "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
                   "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
                   "tie_word_embeddings": False}, file)
    try:
        memtally.conservative_load(loader(1, 0, KeyboardInterrupt()), "config.json", buffer="10GiB")
    except KeyboardInterrupt as error:
        print(json.dumps(error.__notes__))
    """)
    # 70.55 billion weights of 2 bytes are 131 GiB, and some 67 GiB are given to them: half and a tenth of that is too much, a
    # quarter and as much is not.
    assert len(notes) == 3 and "131." in notes[1], notes
    assert "4 bit weights" in notes[2] and "8 bit" not in notes[2], notes


def test_models_of_transformers_are_loaded_or_leave_nothing():
    loaded, left, kind = on("H100-80GB", TAKE + """
    import warnings
    warnings.simplefilter("ignore")
    from transformers import AutoModelForCausalLM, LlamaConfig
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=1024)
    AutoModelForCausalLM.from_config(config).save_pretrained("model")
    load = lambda **asked: AutoModelForCausalLM.from_pretrained("model", **asked)
    model = memtally.conservative_load(load, "model", context=512)
    loaded = [str(next(model.parameters()).device), sum(one.nbytes for one in model.parameters()),
              torch.cuda.memory_allocated()]
    del model
    memtally.reset_device()

    def broken(**asked):
        model = load(**asked)
        raise RuntimeError("broken at the end")
    try:
        memtally.conservative_load(broken, "model", context=512)
    except RuntimeError as error:
        kind = str(error)
        left = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    print(json.dumps([loaded, left, kind]))
    """)
    device, of_parameters, allocated = loaded
    assert device == "cuda:0" and of_parameters <= allocated <= of_parameters + MIB, loaded
    assert kind == "broken at the end" and left == [0, 0], (kind, left)


FIT = TAKE + """
    import math

    GIB = 1 << 30
    first = take(32)
    memtally.reset_device()
    tries = []

    def note(batch, record):
        tries.append([batch, record is not None])

    def runs(batch):
        fixed = take(8 << 10)
        return take(batch << 10)
"""


def test_the_largest_batch_is_found_in_few_tries():
    found, expected, tries, left = on("H100-80GB", FIT + """
    free = torch.cuda.mem_get_info(0)[0]
    found = memtally.fit_batch(runs, 1000, on_try=note)
    print(json.dumps([found, (free - 8 * GIB) // GIB, tries, torch.cuda.memory_reserved()]))
    """)
    assert found == expected and left == 32 * MIB, (found, expected, left)
    assert [found, True] in tries and [found + 1, False] in tries and len(tries) <= 5, tries


def test_batches_that_grow_otherwise_than_by_a_line_are_found_too():
    squared, rooted, upper, started, tries = on("H100-80GB", FIT + """
    squared = memtally.fit_batch(lambda batch: take(batch * batch), 100_000, on_try=note)
    rooted = memtally.fit_batch(lambda batch: take(math.isqrt(batch << 26)), 100_000, on_try=note)
    upper = memtally.fit_batch(runs, 17)
    started = memtally.fit_batch(runs, 1000, start=500)
    print(json.dumps([squared, rooted, upper, started, len(tries)]))
    """)
    assert upper == 17 and started > 17
    # squared^2 MiB and isqrt(rooted * 2^26) MiB are both just within what is free: less than (squared + 1)^2 MiB.
    assert squared**2 < 80 << 10 < (squared + 12) ** 2, squared
    assert math.isqrt(rooted << 26) < (squared + 1) ** 2 and math.isqrt((rooted + 1) << 26) >= squared**2, (rooted, squared)
    assert tries <= 30, tries


def test_what_is_no_shortage_goes_through_and_so_does_a_batch_of_one_that_does_not_fit():
    told = on("H100-80GB", FIT + """
    told = []
    def broken(batch):
        raise RuntimeError("shapes do not agree")
    for fn, start in ((broken, 1), (lambda batch: take(100 << 10), 1), (lambda batch: take(100 << 10), 8)):
        try:
            memtally.fit_batch(fn, 8, start)
        except Exception as error:
            told.append([type(error).__name__, torch.cuda.memory_reserved() >> 20])
    for upper, start in ((0, 1), (4, 5)):
        try:
            memtally.fit_batch(runs, upper, start)
        except memtally.Error as error:
            told.append(error.code)
    print(json.dumps(told))
    """)
    assert told == [["RuntimeError", 32], ["OutOfMemoryError", 32], ["OutOfMemoryError", 32], "MT_EARG", "MT_EARG"], told


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


MONITOR = """
    def seen():
        said = monitor.snapshot()
        use = {use.name: [use.used_bytes >> 20, use.free_bytes >> 20] for use in monitor.pools()}
        return [said.pooled_bytes >> 20, use, said.available_bytes - (said.total_bytes - said.allocated_bytes)]
"""


def test_a_monitor_tells_what_pytorch_holds_free_from_what_it_uses_and_gives_it_back():
    told, cleanup, left, gone = on("2xH100-80GB", TAKE + MONITOR + """
    monitor = memtally.monitor(0)
    told = [monitor.pools()]
    kept, passing = take(32), take(640)
    free = torch.cuda.mem_get_info(0)[0]
    told += [seen(), monitor.snapshot().available_bytes == free, monitor.snapshot().backend]
    del passing
    told.append(seen())
    done = monitor.cleanup()
    told.append(seen())
    cleanup = {call.name: [call.freed_bytes >> 20, call.error] for call in done.calls}
    other = memtally.monitor("cuda:1")
    print(json.dumps([told, cleanup, done.freed_bytes >> 20, [use.used_bytes for use in other.pools()]]))
    """)
    assert told == [[], [0, {"PyTorch": [672, 0]}, 0], True, "NVML", [640, {"PyTorch": [32, 640]}, 0],
                    [0, {"PyTorch": [32, 0]}, 0]], told
    assert cleanup["PyTorch's cache"] == [640, None] and left == 640 and gone == [0], (cleanup, left, gone)


def test_a_block_can_be_had_where_pytorch_then_gives_it_and_not_where_it_does_not():
    told = on("H100-80GB", TAKE + """
    monitor = memtally.monitor(0, auto_cleanup=False)
    def asked(mib):
        said = monitor.can_allocate(mib << 20, margin=0)
        try:
            take(mib)
            return [said, True]
        except torch.cuda.OutOfMemoryError:
            return [said, False]
    take(32)
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(0)[0] >> 20
    told = [asked(free // 2 * 2), asked(free + 2)]
    torch.cuda.empty_cache()
    # Two segments that nobody uses: PyTorch gives them back for one block of the size of both.
    pair = [take(free // 6 * 2), take(free // 6 * 2)]
    del pair
    told += [asked(free // 2 * 2)]
    torch.cuda.empty_cache()
    # A segment of half the device, of which a small block is used: its rest can be had within PyTorch only.
    segment = take(free // 4 * 2)
    size = segment.numel() >> 20
    del segment
    holds = take(64)
    rest = torch.cuda.mem_get_info(0)[0] >> 20
    told += [[monitor.can_allocate(mib << 20, margin=0) for mib in (size - 64, rest, max(size - 64, rest) + 2)]]
    told += [asked(max(size - 64, rest) + 2), asked(size - 64)]
    print(json.dumps(told))
    """)
    assert told == [[True, True], [False, False], [True, True], [True, True, False], [False, False], [True, True]], told


def test_cupys_pool_counts_where_a_program_has_it():
    told = on("H100-80GB", TAKE + MONITOR + """
    import contextlib, types
    class Pool:
        used, total = 96 << 20, 480 << 20
        def used_bytes(self): return self.used
        def total_bytes(self): return self.total
        def free_all_blocks(self): self.total = self.used
    pool, pinned = Pool(), Pool()
    sys.modules["cupy"] = types.SimpleNamespace(
        get_default_memory_pool=lambda: pool, get_default_pinned_memory_pool=lambda: pinned,
        cuda=types.SimpleNamespace(Device=lambda index: contextlib.nullcontext()))
    monitor = memtally.monitor(0)
    told = [seen()[:2]]
    monitor.cleanup()
    told.append(seen()[:2])
    pool.total_bytes = None
    told += [monitor.snapshot().pooled_bytes, monitor.stats().callback_errors > 0]
    print(json.dumps(told))
    """)
    assert told == [[384, {"CuPy": [96, 384]}], [0, {"CuPy": [96, 0]}], 0, True], told


if __name__ == "__main__":
    tap.main(globals())
