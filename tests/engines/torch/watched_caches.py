# SPDX-License-Identifier: MIT
"""Two caches of which the first is gone before the second has grown: the most that both held at one time, by a sum over
storages.

Arguments: where to write, the device."""

import json
import sys

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

FIRST, SECOND_AT_ONCE, SECOND_LATER = 200, 10, 150


def held(*caches):
    """The layers of a dynamic cache, whatever the version calls its parts."""
    parts = [part for cache in caches for layer in getattr(cache, "layers", None) or [cache]
             for part in ([layer.keys, layer.values] if hasattr(layer, "keys") else [*layer.key_cache, *layer.value_cache])]
    return sum(part.untyped_storage().nbytes() for part in parts)


def main():
    path, device = sys.argv[1:]
    config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2)
    model = LlamaForCausalLM(config).eval().to(device)

    def read(cache, n_tokens):
        with torch.no_grad():
            model(torch.ones(1, n_tokens, dtype=torch.long, device=device), past_key_values=cache, use_cache=True)

    first, second = DynamicCache(), DynamicCache()
    read(first, FIRST)
    read(second, SECOND_AT_ONCE)
    most = held(first, second)
    del first
    read(second, SECOND_LATER)
    assert held(second) < most
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"most": most}, file)


if __name__ == "__main__":
    main()
