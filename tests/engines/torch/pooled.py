# SPDX-License-Identifier: MIT
"""Work with blocks from an allocator that is told: PyTorch's own ("native"; what PYTORCH_CUDA_ALLOC_CONF says counts), our
pool in its place ("pool"), or its own over our pool ("segments"). The work is a small Llama of transformers that trains
or answers, a few layers that train ("layers"), or blocks between which memory lies that is of no use to the next
("fragmented").

    pooled.py ALLOCATOR train|answer|layers|fragmented LIBRARY FIGURES
"""

import ctypes
import sys

import torch

import figures

CONFIG = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16,
          "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 8192, "eos_token_id": None}
# Sequences and tokens of each: no two the same, as data and requests come.
STEPS = [(4, 256), (2, 700), (6, 130), (3, 500), (1, 1500), (5, 300), (2, 610), (4, 333)]
PROMPTS = [(1, 900), (8, 120), (2, 1700), (16, 64), (3, 777), (1, 2500), (6, 333), (4, 1201)]
NEW = 24


class Stats(ctypes.Structure):
    """struct mt_pool_stats."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "live", "peak_live", "reserved", "peak_reserved", "free", "pending", "front", "spare", "largest_free", "addresses",
        "n_allocations", "n_frees", "n_hits", "n_front_hits", "n_misses", "n_failures", "n_growths", "n_pages_made",
        "n_pages_moved", "n_pages_returned", "n_rollbacks", "n_waits")]


def pool_stats(library):
    opened = ctypes.CDLL(library)
    opened.memtally_pool_of_device.restype = ctypes.c_void_p
    pool = opened.memtally_pool_of_device(0)
    opened.memtally_pool_problem.restype = ctypes.c_char_p
    assert pool, opened.memtally_pool_problem(0)
    stats = Stats()
    opened.mt_pool_stats_read(ctypes.c_void_p(pool), ctypes.byref(stats))
    return {name: getattr(stats, name) for name, _ in Stats._fields_}


def train(model):
    steps = torch.optim.AdamW(model.parameters())
    for batch, tokens in STEPS:
        ids = torch.randint(5, 32000, (batch, tokens), device="cuda")
        loss = model(ids, labels=ids).loss
        loss.backward()
        steps.step()
        steps.zero_grad(set_to_none=True)


@torch.no_grad()
def answer(model):
    model.eval()
    for batch, tokens in PROMPTS:
        ids = torch.randint(5, 32000, (batch, tokens), device="cuda")
        model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)


def layers():
    """Batches of no two sizes."""
    with torch.device("cuda"):
        model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(8)))
    steps = torch.optim.AdamW(model.parameters())
    for batch in (3000, 1700, 5100, 900, 4300):
        model(torch.ones(batch, 1000, device="cuda")).sum().backward()
        steps.step()
        steps.zero_grad(set_to_none=True)


def block(mib):
    return torch.empty(mib * figures.MIB, dtype=torch.uint8, device="cuda")


def fragmented(said):
    """A device of 2 GiB: 1,600 MiB are given back to the allocator and cut into eight, of which every other one is given back, so that 800
    MiB lie free between others. 1,000 MiB in one piece are 1,800 in sum. Then comes what no device of this size has."""
    blocks = block(1600)
    del blocks
    blocks = [block(200) for _ in range(8)]
    del blocks[::2]
    more = block(1000)
    try:
        block(4096)
    except (MemoryError, torch.OutOfMemoryError) as error:
        said["refused"] = type(error).__name__
    more = None
    said["after"] = block(1000).numel() // figures.MIB
    return more


def run(work, said):
    if work == "layers":
        return layers()
    if work == "fragmented":
        return fragmented(said)
    import transformers

    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    return {"train": train, "answer": answer}[work](model)


def main():
    _, allocator, work, library, _ = sys.argv
    said = {}
    if allocator == "native":
        run(work, said)
    elif allocator == "pool":
        plugged = torch.cuda.memory.CUDAPluggableAllocator(library, "memtally_pool_malloc", "memtally_pool_free")
        address = ctypes.cast(ctypes.CDLL(library).memtally_pool_record_stream, ctypes.c_void_p).value
        plugged.allocator().set_record_stream_fn(address)
        torch.cuda.memory.change_current_allocator(plugged)
        run(work, said)
    else:
        plugged = torch.cuda.memory.CUDAPluggableAllocator(library, "memtally_pool_try_malloc", "memtally_pool_free")
        pool = torch.cuda.MemPool(plugged.allocator())
        # A pool of PyTorch's is its thread's: gradients are computed by this one too.
        with torch.cuda.use_mem_pool(pool), torch.autograd.set_multithreading_enabled(False):
            run(work, said)
        torch.cuda.synchronize()
    if allocator != "pool":
        stats = torch.cuda.memory_stats()
        said["live"] = stats["allocated_bytes.all.peak"]
        said["requested"] = stats["requested_bytes.all.peak"]
        said["reserved"] = stats["reserved_bytes.all.peak"]
        said["retries"] = stats["num_alloc_retries"]
    if allocator != "native":
        said["pool"] = pool_stats(library)
    if allocator == "segments":
        del pool  # before its allocator
        said["left"] = pool_stats(library)["live"]
    figures.write(said)


if __name__ == "__main__":
    main()
