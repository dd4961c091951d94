# SPDX-License-Identifier: MIT
"""In FlashInfer's place: a workspace that cannot be made, for each of the ways that an engine tries."""


def create_allreduce_fusion_workspace(backend, world_size, rank, max_token_num, hidden_dim, dtype):
    raise RuntimeError(f"{backend}: rank {rank} of {world_size} wants {max_token_num} x {hidden_dim} of {dtype}")
