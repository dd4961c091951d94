#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two steps of training a small decoder whose layers lie on two devices: plain PyTorch, which knows nothing of
memtally. To see what it would hold:

    memtally rehearse --device 24GiB,24GiB -- python examples/train_pair.py"""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, VOCABULARY = 1024, 16, 16, 32000
SEQUENCES, TOKENS, STEPS = 4, 1024, 2


class Decoder(nn.Module):
    """The first half of the layers on one device, the rest and the output on the other."""

    def __init__(self, devices):
        super().__init__()
        self.devices = [devices[i * len(devices) // LAYERS] for i in range(LAYERS)]
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, device=devices[0])
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True, device=device
            )
            for device in self.devices
        )
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False, device=devices[-1])

    def forward(self, tokens):
        state = self.embedding(tokens)
        for device, layer in zip(self.devices, self.layers):
            state = state.to(device)
            mask = nn.Transformer.generate_square_subsequent_mask(state.shape[1], device=device)
            state = layer(state, src_mask=mask, is_causal=True)
        return self.output(state)


def main():
    model = Decoder(["cuda:0", "cuda:1"])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (SEQUENCES, TOKENS + 1), device="cuda:0")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            targets = tokens[:, 1:].to(logits.device)
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
