# SPDX-License-Identifier: MIT
"""A worker of one model: weights, a pass as large as may be, then a cache of what its share leaves.

The model's config.json says: weights_gib of all, sequence_mib that a pass takes for each sequence at a time, token_kib
that a token takes of the cache, graph_gib of graphs that are captured last, warm_up_gib of a pass before that,
fails_at_share, from which on it fails for a reason of its own, and sampler_gib where the second runner is meant."""

import json
import logging
import os
import types

from vllm import memory
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

GIB = 1 << 30
log = logging.getLogger("vllm.worker")


class Worker:
    def __init__(self, args):
        with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
            model = types.SimpleNamespace(**{"graph_gib": 0, "warm_up_gib": 0, "fails_at_share": 2, **json.load(file)})
        self.args = args
        self.token = model.token_kib * 1024 / args.tensor_parallel_size / (2 if args.kv_cache_dtype == "fp8" else 1)
        self.model_runner = self.make_runner(args, model)

    def make_runner(self, args, model):
        if not hasattr(model, "sampler_gib"):
            return GPUModelRunner(args, model)
        from vllm.v1.worker.gpu import model_runner

        return model_runner.GPUModelRunner(args, model)

    def load_model(self):
        self.model_runner.load_model()

    def determine_available_memory(self):
        free, total = self.model_runner.profile_run()
        available = self.args.gpu_memory_utilization * total - (total - free)
        log.info("Available KV cache memory: %.2f GiB", available / GIB)
        return available

    def initialize_from_config(self, available):
        self.model_runner.initialize_kv_cache(available)
        longest = self.model_runner.max_model_len
        log.info("Maximum concurrency for %s tokens per request: %.2fx", f"{longest:,}", available / self.token / longest)

    def compile_or_warm_up_model(self):
        if self.model_runner.model.warm_up_gib:
            self.model_runner.warm_up()
        if self.model_runner.model.graph_gib and not self.args.enforce_eager:
            self.model_runner.capture_model()

    def execute_model(self):
        self.model_runner.execute_model()

    def start(self):
        logging.basicConfig(level=logging.INFO)
        self.check_share()
        if self.args.gpu_memory_utilization >= self.model_runner.model.fails_at_share:
            raise KeyError("share")
        self.load_model()
        available = self.determine_available_memory()
        self.check_cache(available)
        self.initialize_from_config(available)
        self.compile_or_warm_up_model()

    def check_share(self):
        free, total = memory.info()
        share = self.args.gpu_memory_utilization
        if free < share * total:
            raise ValueError(
                f"Free memory on device ({free / GIB:.2f}/{total / GIB:.2f} GiB) on startup is less than desired GPU memory "
                f"utilization ({share}, {share * total / GIB:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory "
                "used by other processes.")

    def check_cache(self, available):
        if available <= 0:
            raise ValueError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                             "initializing the engine.")
        longest = self.model_runner.max_model_len
        if longest * self.token > available:
            raise ValueError(
                f"To serve at least one request with the models's max seq len ({longest}), ({longest * self.token / GIB:.2f} "
                "GiB KV cache is needed, which is larger than the available KV cache memory "
                f"({available / GIB:.2f} GiB). Based on the available memory, the estimated maximum model length is "
                f"{int(available / self.token)}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
                "initializing the engine.")
