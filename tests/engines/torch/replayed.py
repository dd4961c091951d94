# SPDX-License-Identifier: MIT
"""Decoding by a CUDA graph that computes on the device whether it is to go on, as engines do that read a flag back."""

import torch

import figures

CUDA = {"device": "cuda"}
LIMITS = (4, 9)  # tokens that each sequence may have
MOST = 50  # steps; a loop that takes as many has not been told to end


class Decoder:
    """State that lives on the device, and one step over it."""

    def __init__(self):
        self.embedding = torch.nn.Embedding(1000, 64, **CUDA)
        self.output = torch.nn.Linear(64, 1000, bias=False, **CUDA)
        self.tokens = torch.full((len(LIMITS),), 7, **CUDA)
        self.lengths = torch.zeros(len(LIMITS), dtype=torch.int32, **CUDA)
        self.limits = torch.tensor(LIMITS, dtype=torch.int32, **CUDA)
        self.before = torch.zeros_like(self.lengths)
        self.is_done = torch.zeros((), dtype=torch.bool, **CUDA)
        self.told = torch.zeros(len(LIMITS), dtype=torch.int32, pin_memory=True)

    def start_anew(self):
        self.lengths.zero_()
        self.is_done.zero_()

    def step(self):
        """The last copies and the filling are memory operations, which a driver may well do by itself."""
        self.tokens.copy_(self.output(self.embedding(self.tokens)).argmax(-1))
        self.before.copy_(self.lengths)
        longer = self.lengths + 1
        self.lengths.copy_(torch.where(longer > self.limits, self.limits, longer))
        self.is_done.copy_((self.lengths >= self.limits).all())
        self.told.copy_(self.lengths, non_blocking=True)


def run(decoder, step):
    """How many steps it takes until the device says that all are done, and what is there then."""
    decoder.start_anew()
    steps = 0
    while steps < MOST:
        step()
        steps += 1
        if decoder.is_done.item():
            break
    torch.cuda.synchronize()
    return {"steps": steps, "lengths": decoder.lengths.tolist(), "before": decoder.before.tolist(), "told": decoder.told.tolist(),
            "token": decoder.tokens[0].item() == decoder.tokens[1].item()}


def captured(decoder):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        decoder.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph


def counted_in_place():
    """Each replay reads what the one before has left, and clears what it has moved on."""
    sums, parts = torch.zeros(3, dtype=torch.int64, **CUDA), torch.zeros(3, dtype=torch.int64, **CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        parts.add_(torch.arange(3, **CUDA))
        sums.add_(parts)
        parts.zero_()
        parts.add_(1)
    said = []
    for _ in range(3):
        graph.replay()
        said.append([sums.tolist(), parts.tolist()])
    return said


def main():
    with torch.no_grad():
        decoder = Decoder()
        said = {"eager": run(decoder, decoder.step)}
        graph = captured(decoder)
        held = torch.cuda.memory_allocated()
        said["replayed"] = run(decoder, graph.replay)
        said["again"] = run(decoder, graph.replay)
        said["held by replays"] = torch.cuda.memory_allocated() - held
        said["in place"] = counted_in_place()
    figures.write(said)


if __name__ == "__main__":
    main()
