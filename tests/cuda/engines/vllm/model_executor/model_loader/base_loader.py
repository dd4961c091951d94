# SPDX-License-Identifier: MIT
"""Loads weights, and nothing else."""


class BaseModelLoader:
    def load_model(self, take, gib):
        return take(gib)
