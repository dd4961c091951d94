#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench_pool_traces.py PROGRAM [NAME…]: has a program replay 36 traces of requests for memory, or those named. 20 of them are
packed in traces/ (see README.md there) and in the unit tests; the others are made here, each by a rule that stands in its function."""

import lzma
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.path.join(HERE, "..", "unit", "pool", "traces")
KIB, MIB = 1 << 10, 1 << 20


class Trace:
    """Requests in the order in which they come."""

    def __init__(self):
        self.lines, self.sizes = [], []

    def take(self, size):
        self.sizes.append(int(size))
        self.lines.append(f"a,{len(self.sizes) - 1},{int(size)}")
        return len(self.sizes) - 1

    def give(self, *blocks):
        self.lines += [f"f,{block},{self.sizes[block]}" for block in blocks]


def weights(hidden, inner, layers, heads, kv_heads, vocabulary, *, tied=False, biases=False, experts=1):
    """The tensors of a model in 16 bits, one after the other."""
    trace, key = Trace(), 2 * hidden * hidden * kv_heads // heads
    for _ in range(1 if tied else 2):
        trace.take(2 * vocabulary * hidden)
    for _ in range(layers):
        for size in (2 * hidden * hidden, key, key, 2 * hidden * hidden):
            trace.take(size)
        if biases:
            for size in (2 * hidden, key // hidden, key // hidden):
                trace.take(size)
        for _ in range(3 * experts):
            trace.take(2 * hidden * inner)
        trace.take(2 * hidden)
        trace.take(2 * hidden)
    trace.take(2 * hidden)
    return trace


def workspaces_that_grow():
    """Attention converts keys and values into two workspaces that grow with the context, and has a third for its sums."""
    trace = Trace()
    for part in range(1, 129):
        for _ in range(160):
            blocks = [trace.take(part * 512 * KIB), trace.take(part * 512 * KIB), trace.take(72 * KIB + 9 * KIB * (part // 4))]
            trace.give(*reversed(blocks))
    return trace


def cache_that_is_copied():
    """Keys and values of 32 layers are joined with those of one token more at each step: a new block, then the old one goes."""
    trace, chance = Trace(), random.Random(1)
    for prompt in (chance.randrange(200, 1800) for _ in range(6)):
        cache = [trace.take(2048 * prompt) for _ in range(64)]
        for step in range(1, 160):
            for i in range(64):
                old, passing = cache[i], trace.take(chance.choice((8192, 28672, 2048)))
                cache[i] = trace.take(2048 * (prompt + step))
                trace.give(old, passing)
        trace.give(*cache)
    return trace


def training(lengths, layers, per_token):
    """Activations of each layer are kept until the way back, which takes twice as much for a moment."""
    trace = Trace()
    state = [trace.take(size * MIB) for size in (64, 32, 32, 16, 16, 8) for _ in range(layers)]
    for tokens in lengths:
        kept = []
        for _ in range(layers):
            passing = trace.take(tokens * per_token * 3)
            kept += [trace.take(tokens * per_token), trace.take(tokens * per_token // 2), trace.take(tokens * 64)]
            trace.give(passing)
        head = trace.take(tokens * 64 * KIB)
        trace.give(head)
        for layer in reversed(range(layers)):
            gradients = [trace.take(tokens * per_token * 2), trace.take(tokens * per_token)]
            trace.give(*kept[3 * layer : 3 * layer + 3], *gradients)
    trace.give(*state)
    return trace


def ragged_training():
    chance = random.Random(2)
    return training([chance.randrange(300, 4096) for _ in range(60)], 24, 6 * KIB)


def experts_by_chance():
    """Each expert of a layer has as many tokens as chance sends to it."""
    trace, chance = Trace(), random.Random(3)
    held = [trace.take(96 * MIB) for _ in range(16)]
    for _ in range(40):
        kept = []
        for _ in range(16):
            routed = trace.take(4096 * 4096 * 2)
            shares = [chance.random() ** 3 for _ in range(16)]
            for share in shares:
                tokens = int(8192 * share / sum(shares)) + 1
                up, down = trace.take(tokens * 28672), trace.take(tokens * 8192)
                trace.give(up)
                kept.append(down)
            trace.give(routed)
        trace.give(*reversed(kept))
    trace.give(*held)
    return trace


def images(sides, steps):
    """A U-Net: feature maps shrink by four and grow again, and each level keeps one for the way up."""
    trace, chance = Trace(), random.Random(4)
    held = trace.take(1700 * MIB)
    for _ in range(40):
        side = chance.choice(sides)
        for _ in range(steps):
            kept = []
            for level in range(4):
                size = 2 * (side >> level) ** 2 * (320 << level)
                for _ in range(2):
                    passing = [trace.take(size), trace.take(size)]
                    kept.append(trace.take(size))
                    trace.give(*passing)
            while kept:
                block = kept.pop()
                joined = trace.take(2 * trace.sizes[block])
                trace.give(block)
                trace.give(joined)
    trace.give(held)
    return trace


def speculation():
    """A small model drafts four tokens, a large one checks them; both have caches that are copied as they grow."""
    trace, chance = Trace(), random.Random(5)
    held = [trace.take(size) for size in (1000 * MIB, 6000 * MIB)]
    for _ in range(12):
        tokens = chance.randrange(100, 3000)
        small, large = trace.take(tokens * 12 * KIB), trace.take(tokens * 128 * KIB)
        for _ in range(40):
            for _ in range(4):
                trace.give(trace.take(300 * KIB), trace.take(2 * MIB))
            tokens += chance.randrange(1, 5)
            logits = trace.take(5 * 128256 * 4)
            old = small, large
            small, large = trace.take(tokens * 12 * KIB), trace.take(tokens * 128 * KIB)
            trace.give(*old, logits)
        trace.give(small, large)
    trace.give(*held)
    return trace


def adapters():
    """Adapters of several ranks come and go over a model, eight at a time, while requests are served."""
    trace, chance = Trace(), random.Random(6)
    held, loaded = trace.take(8000 * MIB), []
    for _ in range(400):
        if len(loaded) == 8:
            trace.give(*loaded.pop(chance.randrange(8)))
        rank = chance.choice((8, 16, 32, 64))
        loaded.append([trace.take(rank * width * 2) for _ in range(32) for width in (4096, 4096, 14336, 14336)])
        for _ in range(6):
            tokens = chance.randrange(1, 2048)
            trace.give(trace.take(tokens * 28672), trace.take(tokens * 8192))
    for blocks in loaded:
        trace.give(*blocks)
    trace.give(held)
    return trace


def beams():
    """Four beams share no cache: what is chosen is copied, and the rest goes, every few tokens."""
    trace, chance = Trace(), random.Random(7)
    for _ in range(30):
        tokens = chance.randrange(64, 1024)
        caches = [[trace.take(tokens * 4096) for _ in range(24)] for _ in range(4)]
        for _ in range(24):
            tokens += 4
            chosen = [chance.randrange(4) for _ in range(4)]
            new = [[trace.take(tokens * 4096) for _ in range(24)] for _ in chosen]
            for blocks in caches:
                trace.give(*blocks)
            caches = new
        for blocks in caches:
            trace.give(*blocks)
    return trace


def prefixes():
    """A cache of prompts' beginnings up to 4 GiB, of which the oldest go where there is no room, beside the work itself."""
    trace, chance, cached, held = Trace(), random.Random(8), [], 0
    for _ in range(3000):
        size = int(64 * KIB * 2 ** (chance.random() * 10))
        while held + size > 4096 * MIB:
            gone = cached.pop(0)
            held -= trace.sizes[gone]
            trace.give(gone)
        work = [trace.take(size // 8 + 1), trace.take(size // 2 + 1)]
        cached.append(trace.take(size))
        held += size
        trace.give(*work)
    trace.give(*cached)
    return trace


def batches_on_the_host():
    """A loader reads ahead: batches of samples of many sizes, four at a time, and one buffer in which they are joined."""
    trace, chance, ahead = Trace(), random.Random(9), []
    for _ in range(600):
        samples = [trace.take(3 * chance.randrange(200, 1200) * chance.randrange(200, 1200)) for _ in range(32)]
        ahead.append(trace.take(32 * 3 * 224 * 224 * 4))
        trace.give(*samples)
        if len(ahead) == 4:
            trace.give(ahead.pop(0))
    trace.give(*ahead)
    return trace


MADE = {
    "weights_qwen2.5_0.5b": lambda: weights(896, 4864, 24, 14, 2, 151936, tied=True, biases=True),
    "weights_qwen2.5_7b": lambda: weights(3584, 18944, 28, 28, 4, 152064, biases=True),
    "weights_llama3.1_8b": lambda: weights(4096, 14336, 32, 32, 8, 128256),
    "weights_llama3.1_70b": lambda: weights(8192, 28672, 80, 64, 8, 128256),
    "weights_mixtral_8x7b": lambda: weights(4096, 14336, 32, 32, 8, 32000, experts=8),
    "workspaces_that_grow": workspaces_that_grow,
    "cache_that_is_copied": cache_that_is_copied,
    "ragged_training": ragged_training,
    "experts_by_chance": experts_by_chance,
    "images_of_one_size": lambda: images([64], 10),
    "images_of_many_sizes": lambda: images([64, 96, 128, 80, 112], 10),
    "speculation": speculation,
    "adapters": adapters,
    "beams": beams,
    "prefixes": prefixes,
    "batches_on_the_host": batches_on_the_host,
}


def write_all(folder):
    """Every trace as a file; their paths."""
    paths = [os.path.join(SHARED, name) for name in sorted(os.listdir(SHARED)) if name.endswith(".csv")]
    packed = os.path.join(HERE, "traces")
    for name in sorted(os.listdir(packed)):
        if name.endswith(".xz"):
            paths.append(os.path.join(folder, name[: -len(".csv.xz")]))
            with lzma.open(os.path.join(packed, name)) as source, open(paths[-1], "wb") as target:
                target.write(source.read())
    for name, make in MADE.items():
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "w", encoding="ascii") as target:
            target.write("\n".join(make().lines) + "\n")
    return paths


def main():
    with tempfile.TemporaryDirectory() as folder:
        wanted = sys.argv[2:]
        paths = [path for path in write_all(folder) if not wanted or os.path.basename(path) in wanted]
        subprocess.run([sys.argv[1], *paths], check=True)


if __name__ == "__main__":
    main()
