# SPDX-License-Identifier: MIT
"""What holds a model's memory on each of its devices."""

from vllm import memory

GIB = 1 << 30


class GPUModelRunner:
    def __init__(self, args, model):
        self.args, self.model = args, model
        self.max_model_len = args.max_model_len or model.max_position_embeddings
        self.max_num_reqs = args.max_num_seqs or 256
        self.devices = range(args.tensor_parallel_size)
        self.held = []

    def take(self, gib):
        """On each device its part."""
        return [memory.take(int(gib * GIB) // len(self.devices), device) for device in self.devices]

    def load_model(self):
        self.held += self.take(self.model.weights_gib)

    def profile_run(self):
        """What is free, and all, while a pass is as large as may be."""
        pass_blocks = self.take(self.model.sequence_mib * self.max_num_reqs / 1024)
        free, total = memory.info()
        memory.give_back(pass_blocks)
        return free, total

    def initialize_kv_cache(self, available):
        self.held += self.take(available * len(self.devices) / GIB)

    def capture_model(self):
        self.held += self.take(self.model.graph_gib)

    def execute_model(self):
        pass

    def warm_up(self):
        self.held += self.take(self.model.warm_up_gib)
