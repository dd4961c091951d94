# SPDX-License-Identifier: MIT
"""What a program sees of functions that are watched: signatures, errors with their tracebacks, and workers."""

import copy
import inspect
import logging
import pickle
import sys
import traceback

import torch
import transformers
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((300, 1000), float(index))


def fail():
    raise ArithmeticError("the program's own")


def failing(model):
    weight = torch.nn.Parameter(torch.ones(2))
    return (lambda: model.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens="x"),
            lambda: torch.ones(2).backward(),
            lambda: torch.autograd.grad(torch.ones(1), weight),
            lambda: transformers.cache_utils.DynamicCache().update(1, 2, 0),
            lambda: transformers.cache_utils.StaticCache(),
            lambda: model.to("nowhere"),
            lambda: transformers.AutoModelForCausalLM.from_pretrained("/nowhere/at/all"),
            lambda: torch.optim.SGD([weight], lr=1).step(fail))


def slope(x):
    return torch.autograd.grad([(x * x).sum()], [x])


def main():
    logging.getLogger("transformers").addHandler(logging.StreamHandler(sys.stdout))  # a warning of what we ask would be none of the program's
    for way in ("fork", "spawn", "forkserver"):
        print(way, [batch.sum().item() for batch in DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context=way)])
    config = transformers.Qwen2Config(vocab_size=1000, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(config).eval()
    for function in (model.generate, torch.autograd.backward, torch.nn.Module._apply, transformers.cache_utils.DynamicCache.__init__,
                     transformers.cache_utils.DynamicCache.update, model.from_pretrained):
        print(function.__name__, inspect.signature(function))
    for call in failing(model):
        try:
            call()
        except Exception:
            traceback.print_exc(file=sys.stdout)
    with torch.no_grad():  # makes its cache in the compiled code
        compiled = torch.compile(model.forward, fullgraph=True, backend="eager")(torch.ones(1, 3, dtype=torch.long), use_cache=True)
    cache = dict(compiled.items())[next(name for name in compiled if name != "logits")]  # which newer versions call otherwise, and warn of
    print(type(cache).__name__, cache.get_seq_length())
    print(torch.jit.script(slope)(torch.ones(2, requires_grad=True)))
    one, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    one(torch.ones(1, 8)).sum().backward()
    torch.utils.swap_tensors(one.weight, other.weight)  # refused where anybody has a weak reference
    # PyTorch writes a storage's address into what it pickles, so that two runs need not write the same number of bytes.
    again = pickle.loads(pickle.dumps(model))
    print(type(copy.deepcopy(model)).__name__, vars(again).keys() == vars(model).keys(),
          all(one.equal(other) for one, other in zip(again.parameters(), model.parameters(), strict=True)))
    shared = torch.ones(100, 1000).share_memory_()
    print(shared.is_shared(), model.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=4, do_sample=False, pad_token_id=0))


if __name__ == "__main__":
    main()
