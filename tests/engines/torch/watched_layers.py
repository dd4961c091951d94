# SPDX-License-Identifier: MIT
"""A model of repeated blocks, run forward and backward, and what an independent count says of each module: sums over
storages, and torch.cuda.max_memory_allocated() of calls of the module by itself.

Arguments: where to write, the device."""

import copy
import inspect
import json
import pickle
import sys

import torch

WIDTH, WORDS, BLOCKS, TOKENS = 512, 4096, 3, 256


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, hidden):
        return hidden + self.down(torch.nn.functional.gelu(self.up(self.norm(hidden))))


class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, tokens):
        hidden = self.words(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.body.words.weight  # tied

    def forward(self, tokens):
        return self.head(self.body(tokens))


def storages(module):
    held = {}
    for tensor in (*module.parameters(), *module.buffers()):
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def taken_by(call, device):
    """What a call takes above what was there before, by PyTorch's own count."""
    if device == "cpu":
        call()
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = call()
    most = torch.cuda.max_memory_allocated() - before
    del kept
    return most


def main(path, device):
    torch.manual_seed(0)
    said = {"weights": {}, "forward": {}, "backward": {}}
    model = Model().to(device)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device=device)
    for name, module in model.named_modules():
        said["weights"][name] = storages(module)
    # The model as a whole comes first, so that what each module takes then is seen within it.
    said["forward"][""] = taken_by(lambda: model(tokens), device)
    said["max_allocated"] = torch.cuda.max_memory_allocated() if device != "cpu" else None
    hidden = torch.zeros(1, TOKENS, WIDTH, device=device, requires_grad=True)
    for name in ("body.blocks.0", "body.blocks.1", "body.blocks.2", "head"):
        module = model.get_submodule(name)
        said["forward"][name] = taken_by(lambda: module(hidden), device)  # noqa: B023, called at once
    said["forward"]["body"] = taken_by(lambda: model.body(tokens), device)
    for name in ("body.blocks.1", "body.blocks.2"):
        result = model.get_submodule(name)(hidden)
        gradient = torch.zeros_like(result)
        said["backward"][name] = taken_by(lambda: torch.autograd.backward(result, gradient), device)
        del result
        model.zero_grad(set_to_none=True)
        hidden.grad = None
    model(tokens).sum().backward()
    said["sum"] = float(sum(parameter.grad.numel() for parameter in model.parameters()))
    pickle.loads(pickle.dumps(copy.deepcopy(model)))
    said["signature"] = str(inspect.signature(model))
    said["hooks"] = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    said["compiled"] = [list(torch.compile(module, backend="eager")(hidden.detach()).shape) for module in (model.body.blocks[0],)]
    said["graph"] = str(torch.fx.symbolic_trace(model.body.blocks[0]).graph)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)


main(*sys.argv[1:])
