#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small Llama of transformers with random weights, which is saved, loaded and generates: plain PyTorch, which knows
nothing of memtally. To see what it holds:

    memtally run -- python examples/generate.py FOLDER

FOLDER is where the model is saved."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT, NEW = 256, 8


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = LlamaConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=8,
                        num_key_value_heads=4, vocab_size=16384)
    LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(sys.argv[1])

    model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).to(device).eval()
    prompt = torch.randint(3, shape.vocab_size, (4, PROMPT), device=device)
    with torch.no_grad():
        written = model.generate(prompt, attention_mask=torch.ones_like(prompt), min_new_tokens=NEW, max_new_tokens=NEW,
                                 do_sample=False, pad_token_id=0)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    print(f"on {device}: {list(written.shape)} tokens, {weights} bytes of weights")


if __name__ == "__main__":
    main()
