#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the package does with the room on GPUs that are not there: loads within limits, finds the largest batch, says what can be
had, beside PyTorch. Sizes are as in test_package_torch.py."""

import math

import tap
from test_package_torch import MIB, TAKE, on

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
