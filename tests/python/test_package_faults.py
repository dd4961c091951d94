#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on a GPU that is not there and that refuses at each allocation in turn, of a load, a training step, a generate: each
time the program gets PyTorch's own exception, nothing stays, and the rehearsal blames what asked. With ALL=1, as `make test-python`
has it, whole and with transformers, bitsandbytes and diffusers, else some allocations of a training step."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

import engine
import package
import tap

MIB = 1 << 20
IS_WHOLE = bool(os.environ.get("ALL"))
FAULTS = """
    import contextlib, ctypes, gc, json, re, sys, warnings
    import torch
    import memtally
    warnings.simplefilter("ignore")
    MIB, PAGE = 1 << 20, 2 << 20
    STRIDE = int(sys.argv[1])
    driver = ctypes.CDLL("libcuda.so.1")

    @contextlib.contextmanager
    def with_only(left):
        # Another program, so to say, has the rest of the device: whole pages of the driver, as PyTorch's segments are.
        size = torch.cuda.mem_get_info()[0] // PAGE * PAGE - left
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        try:
            yield
        finally:
            assert driver.cuMemFree_v2(address) == 0

    def now():
        memtally.reset_device(largest=0)
        tally = memtally.tally().place("gpu:0")
        rows = {row.category: row.bytes for row in tally.rows if row.bytes} if tally else {}
        return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0], rows]

    class Refused:
        # What PyTorch said of the n-th allocation that was refused, and what its allocator held then.
        def __init__(self, fn):
            self.fn, self.error = fn, None
        def __call__(self, *args, **kwargs):
            try:
                return self.fn(*args, **kwargs)
            except torch.OutOfMemoryError as error:
                size, unit = re.search(r"Tried to allocate ([\\d.]+) (\\w+)", str(error)).groups()
                self.asked = int(float(size) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit])
                self.held, self.kind, self.said = torch.cuda.memory_reserved(), type(error).__name__, str(error)
                self.identity = id(error)
                raise

    def refuse_each(ways, clean=lambda: None):
        # Each way is what runs, a function that calls what it is given, and whether that cleans up. The last try is refused nothing.
        ways[0][1](ways[0][0])
        clean()
        before, left, tries = now(), 0, []
        while True:
            fn, call, cleans = ways[len(tries) % len(ways)]
            refused = Refused(fn)
            failed = None
            with with_only(left):
                try:
                    call(refused)
                except torch.OutOfMemoryError as error:
                    failed = [id(error) == refused.identity, str(error) == refused.said, len(getattr(error, "__notes__", ()))]
                    clean()
                    # What cleans up has done so while the exception, with its traceback, is there.
                    assert not cleans or torch.cuda.memory_allocated() == before[0], (len(tries), torch.cuda.memory_allocated(), before)
                if not failed:
                    break
                memtally.reset_device(largest=0)
            tries.append([refused.asked, *failed])
            assert now() == before, (len(tries), left, now(), before)
            left = max(left + PAGE, (refused.held - before[1] + refused.asked + PAGE - 1) // PAGE * PAGE) + STRIDE * 24 * MIB
        clean()
        assert now() == before, (now(), before)
        return tries

    torch.cuda.init()
    torch.zeros(1, device="cuda").add_(1)
"""
STEP = FAULTS + """
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, device="cuda") for _ in range(3)))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.zeros(2048, 2048, device="cuda")

    def step(_=None):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def clean():
        optimizer.zero_grad()
        optimizer.state.clear()

    tries = refuse_each([(step, lambda fn: memtally.measure(fn), False), (step, lambda fn: memtally.fit_batch(fn, 1), True)], clean)
    print(json.dumps([tries, sum(one.nbytes for one in model.parameters())]))
"""
GENERATE = FAULTS + """
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=8, vocab_size=2048, torch_dtype="bfloat16")
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    prompt = torch.zeros(16, 512, dtype=torch.long, device="cuda")

    def generate(_=None):
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=2, min_new_tokens=2, do_sample=False)

    tries = refuse_each([(generate, lambda fn: memtally.measure(fn), False), (generate, lambda fn: memtally.fit_batch(fn, 1), True)])
    print(json.dumps([tries, sum(one.nbytes for one in model.parameters())]))
"""
LOADED = """
    def loads(load):
        def call(fn):
            loaded = memtally.conservative_load(fn, limits={0: "40GiB", "cpu": "1GiB"})
            places = {str(one.device) for one in models_of(loaded) for one in one.parameters()}
            assert places == {"cuda:0"}, places
        return [(load, call, True)]

    def models_of(loaded):
        return [loaded] if isinstance(loaded, torch.nn.Module) else [one for one in loaded.components.values() if isinstance(one, torch.nn.Module)]
"""
LOAD = FAULTS + LOADED + """
    from transformers import AutoModelForCausalLM, LlamaConfig
    config = LlamaConfig(hidden_size=1024, intermediate_size=6144, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=8, vocab_size=6144, torch_dtype="bfloat16", tie_word_embeddings=True)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    made.to_empty(device="cpu").save_pretrained("model")
    del made
    {settings}
    tries = refuse_each(loads(lambda **asked: AutoModelForCausalLM.from_pretrained("model", **settings, **asked)))
    print(json.dumps([tries, 0]))
"""
DIFFUSE = FAULTS + LOADED + """
    from diffusers import DDPMPipeline, DDPMScheduler, DiffusionPipeline, UNet2DConditionModel, UNet2DModel
    from diffusers.utils import logging
    logging.disable_progress_bar()
    UNet2DConditionModel(sample_size=32, layers_per_block=1, block_out_channels=(256, 512), norm_num_groups=8, cross_attention_dim=32,
                         down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), attention_head_dim=8,
                         up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")).save_pretrained("conditioned")
    unet = UNet2DModel(sample_size=32, layers_per_block=1, block_out_channels=(256, 512), norm_num_groups=8,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained("pipeline")
    del unet
    tries = refuse_each(loads(lambda **asked: UNet2DConditionModel.from_pretrained("conditioned", **asked)))
    # A pipeline knows no "auto"; "balanced" is its word.
    tries += refuse_each(loads(lambda max_memory, device_map: DiffusionPipeline.from_pretrained(
        "pipeline", device_map="balanced", max_memory=max_memory)))
    print(json.dumps([tries, 0]))
"""


def rehearsed(code, folders=(), settings="settings = {}"):
    """What a program printed last, and the document of its rehearsal."""
    command = [package.program("memtally"), "rehearse", "--json", "--no-suggest", "--timeout", "3000", "--device", "24GiB"]
    with tempfile.TemporaryDirectory() as folder:
        path, answer = os.path.join(folder, "program.py"), os.path.join(folder, "answer.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(code.replace("{settings}", settings)))
        environment = package.clean(PYTHONPATH=os.pathsep.join([package.packages(), *folders]))
        words = [*command, "-o", answer, "--", engine.torch(), path, "0" if IS_WHOLE else "1"]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        with open(answer, encoding="utf-8") as file:
            document = json.load(file)
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[[")]
    return *json.loads(line), document["rehearsal"]


def check(tries, rehearsal, categories, notes, least):
    assert len(tries) >= (least if IS_WHOLE else 3), tries
    for asked, is_same, says_same, n_notes in tries:
        assert is_same and says_same and (n_notes > 0) == notes and asked >= 2 * MIB, (tries, asked)
    # The program went on. What was refused last is one of the tries, or what PyTorch got once it had freed its cache.
    assert rehearsal["outcome"] == "coped" and rehearsal["refusals"] >= len(tries), rehearsal["outcome"]
    refused = rehearsal["refused"]
    is_of_a_try = refused["asked_bytes"] in {one[0] for one in tries}
    assert (is_of_a_try or rehearsal["refusals"] > len(tries)) and refused["place"] == "gpu:0", (refused, tries)
    # Nothing says what PyTorch's segments are for before they are there; what is said otherwise has to be right.
    assert refused["category"] in {None, *categories}, refused
    return refused


def test_a_training_step_that_is_refused_any_of_its_allocations_leaves_nothing():
    tries, weights, rehearsal = rehearsed(STEP)
    refused = check(tries, rehearsal, {"training", "activations"}, False, 12)
    assert any("step" in call for call in refused["stack"]), refused
    # What was there all along keeps its name.
    (weight_row,) = [row for row in refused["held"] if row["category"] == "weights"]
    assert weight_row["allocated_bytes"] == weights, (refused["held"], weights)


def test_a_generate_that_is_refused_any_of_its_allocations_leaves_nothing():
    tries, weights, rehearsal = rehearsed(GENERATE)
    refused = check(tries, rehearsal, {"activations", "kv_cache", "workspace"}, False, 12)
    # Nobody says who asked for what PyTorch got once it had freed its cache.
    who, has_coped = refused["stack"], rehearsal["refusals"] > len(tries)
    assert any("generate" in call for call in who) or (not who and has_coped), refused
    held = {row["category"]: row["allocated_bytes"] for row in refused["held"]}
    assert held["weights"] >= weights, (held, weights)


def test_a_load_of_transformers_that_is_refused_any_of_its_allocations_leaves_nothing():
    tries, _, rehearsal = rehearsed(LOAD)
    check(tries, rehearsal, {"weights"}, True, 7)


def loaders():
    folder = os.environ.get("MEMTALLY_LOADERS")
    if not folder:
        raise tap.Skip("MEMTALLY_LOADERS names no folder with bitsandbytes and diffusers; make test-python brings them")
    return [folder]


def test_a_load_in_4_and_8_bits_that_is_refused_any_of_its_allocations_leaves_nothing():
    for bits in (4, 8):
        settings = f"from transformers import BitsAndBytesConfig; settings = dict(quantization_config=BitsAndBytesConfig(load_in_{bits}bit=True))"
        tries, _, rehearsal = rehearsed(LOAD, loaders(), settings)
        check(tries, rehearsal, {"weights", "activations", "workspace"}, True, 3)


def test_a_load_of_diffusers_that_is_refused_any_of_its_allocations_leaves_nothing():
    tries, _, rehearsal = rehearsed(DIFFUSE, loaders())
    check(tries, rehearsal, {"weights", "activations"}, True, 4)


if __name__ == "__main__":
    quick = ["test_a_training_step_that_is_refused_any_of_its_allocations_leaves_nothing"]
    tap.main(globals(), None if IS_WHOLE or len(sys.argv) > 1 else quick)
