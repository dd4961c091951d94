# SPDX-License-Identifier: MIT
"""What FlashInfer's sampling of logits takes: a masked copy of them, their probabilities, a token for each row."""

import torch


def tokens_of(rows):
    return torch.zeros(rows.size(0), dtype=torch.int32, device=rows.device)


def top_k_top_p_sampling_from_logits(logits, top_k, top_p, deterministic=True):
    masked = torch.empty_like(logits)
    return tokens_of(torch.softmax(masked, dim=-1))


def top_p_sampling_from_probs(probs, top_p, deterministic=True):
    return tokens_of(probs)


def top_k_sampling_from_probs(probs, top_k, deterministic=True):
    return tokens_of(probs)
