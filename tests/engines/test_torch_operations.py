#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What operations of PyTorch take on a pretended H100. Every expectation is worked out here, from shapes and from what
PyTorch documents of its allocator: blocks are multiples of 512 bytes; up to 1 MiB they are cut from segments of 2 MiB,
below 10 MiB from segments of 20, and larger ones get a segment rounded to 2 MiB; a rest above 1 MiB is cut off."""

import functools
import typing

import tap
import torch_program

MIB = 1 << 20
CUBLAS = 32 * MIB  # PyTorch's workspace for a handle of cuBLAS where the capability is 9.0
CUBLASLT = MIB  # and for cuBLASLt
TRANSIENT = (2, 15)  # from this version on each product takes its workspace and frees it (pytorch PR 194311), and
# efficient attention has its seed and offset on the device; 2.9 keeps a workspace for each handle and stream, and has them on the host


def block(*bytes_):
    """The sum of blocks for tensors of so many bytes."""
    return sum(-(-one // 512) * 512 for one in bytes_)


F32, BF16, BOOL, I64 = 999000 * 4, 999000 * 2, 999000, 1000 * 8  # [1000, 999], and 1000 indices
HALF = 1024 * 1024 * 2
HEADS = 4 * 8 * 512 * 64 * 2  # a query, a key or a value of the attentions


class Product(typing.NamedTuple):
    """The result, and the workspace that a library asks for, which the first product of its kind brings where it stays."""
    result: int
    workspace: int
    is_first: bool = False

    def figures(self, is_transient):
        if is_transient:
            return self.result, self.result + self.workspace
        return (self.result + self.workspace * self.is_first,) * 2


class Seeded(typing.NamedTuple):
    """The result, and what the random numbers of a dropout start from, which is there without one too."""
    result: int
    seeds: int

    def figures(self, is_transient):
        return self.result, self.result + self.seeds * is_transient


# Bytes of the result, and the highest beside the tensors before; where that is left out it is the result alone.
# None: what is needed beside depends on kernels.
OPERATIONS = {
    "one byte": block(1),
    "512 bytes": block(512),
    "513 bytes": 1024,
    "nothing": 0,
    "zeros of f64": block(3 * 5 * 7 * 8),
    "ones of bool": block(1025),
    "arange": block(1000 * 8),
    "linspace": block(999 * 4),
    "full": block(33 * 65 * 4),
    "randn of bf16": block(BF16),
    "randint": block(77 * 77 * 8),
    "eye": block(100 * 100 * 4),
    "from a list": block(3 * 8),
    "from the host": block(1000 * 500 * 4),
    "complex": block(300 * 16),
    "float8": block(1001),
    "add": block(F32),
    "add in place": 0,
    "broadcast": block(F32),
    "add two types": block(F32),
    "compare": block(BOOL),
    "where": (block(F32), block(F32, 4)),  # the 0.0 is a tensor for a while
    "to f32": block(F32),
    "to the same type": 0,
    "view": 0,
    "transpose": 0,
    "contiguous transpose": block(F32),
    "slice": 0,
    "expand": 0,
    "exp into a tensor": 0,
    "clone": block(F32),
    "gelu": block(BF16),
    "silu and multiply": (block(BF16), block(BF16, BF16)),
    "dropout": (block(BF16), block(BF16, BOOL)),  # a mask of a byte for each
    "softmax": block(BF16),
    "softmax to f32": (block(F32), block(F32, F32)),
    "layer norm": (block(BF16), block(BF16, 1000 * 4, 1000 * 4)),  # mean and deviation of each row
    "copy to the host": 0,
    "pinned": 0,
    "cat": block(2 * F32),
    "stack": block(3 * 999 * 4),
    "split": 0,
    "chunk and clone": block(250 * 999 * 4),
    "index select": block(10 * 999 * 4),
    "index by a tensor": block(10 * 999 * 4),
    "gather": block(999 * 4),
    "embedding": block(F32),
    "scatter add in place": 0,
    "repeat": block(7 * 3 * 999 * 4),
    "repeat interleave": (block(30 * 999 * 4), None),
    "pad": block(1007 * 1002 * 4),
    "flip": block(F32),
    "roll": block(F32),
    "one hot": (block(1000 * 9 * 8), block(1000 * 9 * 8, I64)),
    "lower triangle": block(F32),
    "cumulative sum": block(F32),
    "sum of all": (block(4), None),
    "mean of rows": block(1000 * 4),
    "sum of columns": (block(999 * 2), None),
    "max of rows": block(1000 * 4, 1000 * 8),
    "argmax": block(1000 * 8),
    "deviation": block(1000 * 4),
    "any": (block(1), None),
    "norm": (block(4), None),
    "logsumexp": (block(1000 * 4), block(F32, 1000 * 4, 1000 * 4)),  # what was raised, and the highest of each row
    "sort": (block(F32, 999000 * 8), None),
    "topk": (block(1000 * 50 * 4, 1000 * 50 * 8), None),
    "cross entropy": (block(4), block(F32, 1000 * 8, 4, 4)),  # the log of the softmax, targets, the weight of all
    "multinomial": (block(1000 * 4 * 8), None),
    "first product": Product(block(HALF), CUBLAS, is_first=True),
    "product": Product(block(HALF), CUBLAS),
    "product of batches": Product(block(4 * 256 * 256 * 2), CUBLAS),
    "matrix and vector": Product(block(1024 * 2), CUBLAS),
    "first linear with bias": Product(block(HALF), CUBLASLT, is_first=True),
    "linear with bias": Product(block(HALF), CUBLASLT),
    "addmm": Product(block(HALF), CUBLASLT),
    "einsum": Product(block(HALF), CUBLAS),
    "flash attention": (block(HEADS), block(HEADS, 4 * 8 * 512 * 4, 8, 8)),  # log-sum-exp of rows, seed and offset
    "efficient attention": Seeded(block(HEADS), block(8, 8)),
    "convolution": (block(2 * 32 * 56 * 56 * 4), None),
    "pooling": block(2 * 16 * 28 * 28 * 4),
    "interpolation": block(2 * 16 * 112 * 112 * 4),
    "batch norm": (block(2 * 16 * 56 * 56 * 4), block(2 * 16 * 56 * 56 * 4, 16 * 4, 16 * 4)),
    "fourier transform": (block(128 * 128 * 8), None),
    "real fourier transform": (block(128 * 65 * 8), None),
    "cholesky": (block(128 * 128 * 4), None),
}


@functools.cache
def rehearsed():
    """What the program wrote down, and the document of its rehearsal."""
    return torch_program.rehearse("operations.py", "H100-80GB", statuses=(0, 1))


def said(part):
    return rehearsed()[0][part]


def is_transient():
    return tuple(said("torch")) >= TRANSIENT


def check_operation(name, wanted):
    figures = said("operations")[name]
    if isinstance(wanted, (Product, Seeded)):
        wanted = wanted.figures(is_transient())
    kept, peak = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    assert "error" not in figures, figures["error"]
    assert figures["kept"] == kept, (figures, kept)
    assert figures["peak"] == peak if peak is not None else figures["peak"] >= kept, (figures, peak)
    assert figures["driver"] == figures["reserved"] and figures["reserved"] % (2 * MIB) == 0, figures


def test_the_card_is_the_one_that_was_asked_for():
    """NVIDIA's data sheet: 132 multiprocessors, compute capability 9.0, 80 GB."""
    card = said("card")
    assert card["capability"] == [9, 0] and card["processors"] == 132 and card["count"] == 1, card
    assert "H100" in card["name"] and 79 << 30 < card["total"] < 80 << 30 and card["asked"] == card["total"], card


def test_small_values_come_back_as_they_went():
    assert said("values") == {"list": [3, 1, 4, 1, 5], "item": 4, "view": [1, 4]}, said("values")


def test_segments_are_cut_as_documented():
    wanted = {  # what tensors hold, what segments
        "one small": (512, 2 * MIB), "two small": (2 * MIB, 2 * MIB), "three small": (3 * MIB, 4 * MIB),
        "just large": (MIB + 512, 20 * MIB), "two large": (18 * MIB, 20 * MIB), "three large": (27 * MIB, 40 * MIB),
        "10 MiB": (10 * MIB, 10 * MIB), "a byte more": (10 * MIB + 512, 12 * MIB),
        "15 MiB": (16 * MIB, 16 * MIB),  # the rest of 1 MiB is not cut off
        "100.5 MiB": (201 * MIB // 2, 102 * MIB),  # the rest of 1.5 MiB is
    }
    for name, (kept, reserved) in wanted.items():
        figures = said("segments")[name]
        assert (figures["kept"], figures["reserved"], figures["driver"]) == (kept, reserved, reserved), (name, figures)


def test_what_is_freed_is_kept_until_it_is_given_back():
    """Each is [PyTorch's, the driver's]. What one stream has freed is not for another."""
    wanted = {"held": 64, "freed": 64, "used again": 64, "on another stream": 96, "given back": 0}
    assert said("cache") == {name: [mib * MIB, mib * MIB] for name, mib in wanted.items()}, said("cache")


def test_attention_by_products_keeps_its_result():
    """Its result may have a rest with it of at most 1 MiB, which is not cut off; it needs the scores of all pairs."""
    figures = said("operations")["attention by products"]
    assert block(HEADS) <= figures["kept"] <= block(HEADS) + MIB, figures
    assert figures["peak"] > 4 * 8 * 512 * 512 * 2, figures


def test_a_training_step_takes_gradients_and_two_states():
    """Two layers of 1024 x 1024 in f32, 256 rows. Of the forward pass stay the outputs of both layers and the loss.
    Gradients are as large as parameters; autograd's own thread has a handle of cuBLAS, so a workspace if it stays. AdamW's
    state is two numbers for each parameter, and its kernels for many tensors need a third for a while."""
    training, parameters = said("training"), 2 * 1024 * 1024 * 4
    kept = {name: figures["kept"] for name, figures in training.items()}
    assert kept["forward"] == block(2 * 256 * 1024 * 4, 4), kept
    assert kept["backward"] == parameters + (0 if is_transient() else CUBLAS) - 2 * 256 * 1024 * 4, kept
    assert kept["first step"] == 2 * parameters and kept["second step"] == 0, kept
    assert training["second step"]["peak"] == parameters, training
    assert kept["zero grad"] == -parameters and kept["step with momentum"] == parameters, kept


def test_graphs_have_a_pool_of_their_own():
    """Four products: the first capture brings a workspace for its stream and, since 2 MiB and 2 MiB are alive at a
    time, one segment of 20 MiB. The second shares the pool; its results are of 256 KiB, so it needs one of 2 MiB, of
    which the last is held to the end. Beside the pool the driver takes 2 MiB for nodes, which stay, and 2.9 has a state of
    the random generator, 2 MiB, which goes with the graphs. A workspace that is kept stays too."""
    graphs, nodes, last = said("graphs"), 2 * MIB, 2 * MIB
    beside = nodes + (0 if is_transient() else 2 * MIB)
    assert graphs["512"] == {"segments": 2, "bytes": CUBLAS + 20 * MIB, "driver": CUBLAS + 20 * MIB + beside}, graphs
    assert graphs["64"] == {"segments": 3, "bytes": CUBLAS + 22 * MIB, "driver": CUBLAS + 22 * MIB + beside}, graphs
    assert graphs["replayed"]["driver"] == CUBLAS + 22 * MIB + beside, graphs
    assert graphs["given back"]["driver"] == (0 if is_transient() else CUBLAS) + last + nodes, graphs


def gpu_0():
    (place,) = [place for place in rehearsed()[1]["places"] if place["place"] == "gpu:0"]
    return place


def test_the_tally_of_the_peak_adds_up_to_what_pytorch_and_the_driver_took():
    """The rows are the peak's; without the context and the nodes of graphs, which are the driver's, they are what PyTorch
    says it reserved at most."""
    rows = {row["category"]: row for row in gpu_0()["rows"]}
    nodes = sum(part["allocated_bytes"] for part in rows["graphs"]["detail"] if part["name"] == "graph nodes")
    own = sum(row["allocated_bytes"] for category, row in rows.items() if category != "context") - nodes
    assert own == said("at the end")["reserved"] and nodes in (0, 2 * MIB), (rows, said("at the end"))
    assert rows["context"]["allocated_bytes"] > 0, rows


for operation, expected in OPERATIONS.items():
    globals()["test_what_is_taken_by_" + operation.replace(" ", "_")] = functools.partial(check_operation, operation, expected)


if __name__ == "__main__":
    tap.main(globals())
