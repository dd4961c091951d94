#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of one small layer to try a build of llama.cpp with: usage: tiny.py FILE

Its matrices are of the types that a processor may want in another layout, each of another one, so that a prefill goes
through the kernels of each. All weights are 0, and there is no vocabulary."""

import struct
import sys

WIDTH = 256  # a block of each type
TEXT, COUNT, REAL = 8, 4, 6
# Types of ggml: number, elements and bytes of a block.
F32, F16 = (0, 1, 4), (1, 1, 2)
Q4_0, Q4_1, Q8_0 = (2, 32, 18), (3, 32, 20), (8, 32, 34)
Q4_K, Q5_K, Q6_K, IQ4_XS = (12, 256, 144), (13, 256, 176), (14, 256, 210), (23, 256, 136)

PAIRS = [
    ("general.architecture", TEXT, "llama"),
    ("llama.block_count", COUNT, 1),
    ("llama.context_length", COUNT, 512),
    ("llama.embedding_length", COUNT, WIDTH),
    ("llama.feed_forward_length", COUNT, WIDTH),
    ("llama.attention.head_count", COUNT, 4),
    ("llama.attention.layer_norm_rms_epsilon", REAL, 1e-5),
    ("llama.vocab_size", COUNT, WIDTH),
    ("tokenizer.ggml.model", TEXT, "no_vocab"),
]
TENSORS = [
    ("token_embd.weight", F16, 2),
    ("output_norm.weight", F32, 1),
    ("output.weight", Q4_0, 2),
    ("blk.0.attn_norm.weight", F32, 1),
    ("blk.0.attn_q.weight", Q4_0, 2),
    ("blk.0.attn_k.weight", Q4_1, 2),
    ("blk.0.attn_v.weight", Q8_0, 2),
    ("blk.0.attn_output.weight", Q4_K, 2),
    ("blk.0.ffn_norm.weight", F32, 1),
    ("blk.0.ffn_gate.weight", Q5_K, 2),
    ("blk.0.ffn_up.weight", Q6_K, 2),
    ("blk.0.ffn_down.weight", IQ4_XS, 2),
]
ALIGNMENT = 32


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + (text(value) if kind == TEXT else struct.pack("<f" if kind == REAL else "<I", value))


def main():
    header = b"GGUF" + struct.pack("<IQQ", 3, len(TENSORS), len(PAIRS)) + b"".join(pair(*each) for each in PAIRS)
    offset = 0
    for name, (number, elements, size), dimensions in TENSORS:
        header += text(name) + struct.pack(f"<I{dimensions}QIQ", dimensions, *[WIDTH] * dimensions, number, offset)
        offset += WIDTH**dimensions // elements * size
        offset += -offset % ALIGNMENT
    header += b"\0" * (-len(header) % ALIGNMENT)
    with open(sys.argv[1], "wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)


if __name__ == "__main__":
    main()
