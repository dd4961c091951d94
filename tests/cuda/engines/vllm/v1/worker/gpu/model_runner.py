# SPDX-License-Identifier: MIT
"""A second runner, which keeps its requests' state on the device and asks the device how many tokens each of them got. It
takes sampler_gib beside the weights, and needs PyTorch."""

import logging
import types

import numpy

from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.v1.worker import gpu_model_runner

TOKENS = 4  # that each request is given
MOST_STEPS = 50
GIB = 1 << 30
log = logging.getLogger("vllm.communication")


def init_kv_cache(runner, available):
    return runner.take(available * len(runner.devices) / GIB)


class GPUModelRunner(gpu_model_runner.GPUModelRunner):
    def load_model(self):
        log.warning("SymmMemCommunicator: symmetric memory multicast operations are not supported.")
        self.held += BaseModelLoader().load_model(self.take, self.model.weights_gib)
        self.held += self.take(self.model.sampler_gib)

    def initialize_kv_cache(self, available):
        self.held += init_kv_cache(self, available)

    def capture_model(self):
        self.held += self.take(self.model.graph_gib)

    def sample(self, hidden_states, batch, grammar):
        import torch

        counts = torch.ones(len(batch.idx_mapping_np), dtype=torch.int32, device="cuda")
        return None, counts, torch.empty_like(counts)

    def execute_model(self):
        """Two requests, the first of whose prompts takes two passes."""
        lengths, done, got = numpy.array([12, 6], dtype=numpy.int32), numpy.zeros(2, dtype=numpy.int32), numpy.zeros(2, dtype=int)
        self.req_states = types.SimpleNamespace(num_computed_prefill_tokens=done, prefill_len=types.SimpleNamespace(np=lengths))
        for step in range(1, MOST_STEPS + 1):
            now = numpy.where(done < lengths, numpy.minimum(lengths - done, 8), 1)
            batch = types.SimpleNamespace(idx_mapping_np=numpy.arange(2), num_scheduled_tokens=now, cu_num_logits_np=numpy.arange(3))
            _, counts, refused = self.sample(None, batch, None)
            got += counts.cpu().numpy()
            assert not refused.cpu().numpy().any(), refused
            done[:] = numpy.minimum(done + now, lengths)
            if (got >= TOKENS).all():
                print("steps", step, "tokens", got.tolist(), flush=True)
                return
        raise RuntimeError("decoding does not end")
