# SPDX-License-Identifier: MIT
"""Writes a split GGUF of many tensors as headers before holes: a model of a terabyte that takes a few MB of disk.

The shape is that of a mixture of experts whose experts are stored one by one, as converters of 2024 did: 92,000 tensors of
q4_k in 46 files, a vocabulary of 128,000 tokens in the first."""

import os
import struct
import sys

U16, U32, I32, F32, STRING, ARRAY = 2, 4, 5, 6, 8, 9
Q4_K, F32_TENSOR = 12, 0
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    formats = {U16: "<H", U32: "<I", I32: "<i", F32: "<f"}
    body = text(value) if kind == STRING else struct.pack(formats[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def string_array(key, values):
    return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(text(v) for v in values)


def number_array(key, kind, values):
    letter = "f" if kind == F32 else "i"
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + struct.pack("<%d%s" % (len(values), letter), *values)


def model_pairs():
    vocabulary = 128000
    pairs = [pair("general.architecture", STRING, "llama"), pair("general.name", STRING, "bench")]
    for key, value in (("block_count", 100), ("context_length", 8192), ("embedding_length", 4096),
                       ("feed_forward_length", 4864), ("attention.head_count", 32), ("attention.head_count_kv", 8),
                       ("expert_count", 304), ("expert_used_count", 8), ("vocab_size", vocabulary)):
        pairs.append(pair("llama." + key, U32, value))
    pairs.append(pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5))
    pairs.append(pair("tokenizer.ggml.model", STRING, "gpt2"))
    pairs.append(string_array("tokenizer.ggml.tokens", ["token%d" % i for i in range(vocabulary)]))
    pairs.append(number_array("tokenizer.ggml.token_type", I32, [1] * vocabulary))
    return pairs


def tensors(n_tensors):
    yield "token_embd.weight", (4096, 128000), Q4_K
    yield "output.weight", (4096, 128000), Q4_K
    yield "output_norm.weight", (4096,), F32_TENSOR
    count = 3
    layer = 0
    while count < n_tensors:
        rest = ["attn_q", "attn_k", "attn_v", "attn_output"]
        names = [(name, (4096, 4096)) for name in rest]
        for expert in range(304):
            names += [("ffn_gate.%d" % expert, (4096, 4864)), ("ffn_up.%d" % expert, (4096, 4864)),
                      ("ffn_down.%d" % expert, (4864, 4096))]
        for name, shape in names:
            if count == n_tensors:
                return
            yield "blk.%d.%s.weight" % (layer, name), shape, Q4_K
            count += 1
        layer += 1


def bytes_of(shape, kind):
    elements = 1
    for size in shape:
        elements *= size
    return elements * 4 if kind == F32_TENSOR else elements // 256 * 144


def write_part(path, number, parts, total, chosen):
    pairs = model_pairs() if number == 0 else []
    pairs += [pair("split.no", U16, number), pair("split.count", U16, parts), pair("split.tensors.count", I32, total)]
    offset = 0
    infos = []
    for name, shape, kind in chosen:
        infos.append(text(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape) +
                     struct.pack("<IQ", kind, offset))
        offset += (bytes_of(shape, kind) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    header = b"GGUF" + struct.pack("<IQQ", 3, len(chosen), len(pairs)) + b"".join(pairs) + b"".join(infos)
    start = (len(header) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(start + offset)
    return len(header), start + offset


def write(folder, n_tensors=92000, parts=46):
    """Returns the first part's path, the bytes of all headers and of all files."""
    everything = list(tensors(n_tensors))
    per_part = (n_tensors + parts - 1) // parts
    headers = files = 0
    for number in range(parts):
        path = os.path.join(folder, "bench-%05d-of-%05d.gguf" % (number + 1, parts))
        header, size = write_part(path, number, parts, n_tensors, everything[number * per_part:(number + 1) * per_part])
        headers += header
        files += size
    return os.path.join(folder, "bench-00001-of-%05d.gguf" % parts), headers, files


if __name__ == "__main__":
    print(*write(sys.argv[1]))
