# SPDX-License-Identifier: MIT
"""A package in vLLM's place: it goes about memory as vLLM does, with a model whose sizes stand in its config.json, and
ends with vLLM's own words where memory does not suffice. It has no code of vLLM's."""

import types

from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker.gpu_worker import Worker


class LLMEngine:
    """As much of an engine as a program asks of it."""

    def __init__(self, args):
        self.worker = Worker(args)
        self.worker.start()
        self.vllm_config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(max_model_len=self.worker.model_runner.max_model_len),
            scheduler_config=types.SimpleNamespace(max_num_batched_tokens=2048, max_num_seqs=self.worker.model_runner.max_num_reqs),
        )

    @classmethod
    def from_engine_args(cls, engine_args, usage_context=None):
        return cls(engine_args)


class SamplingParams:
    def __init__(self, **how):
        self.how = how


class LLM:
    def __init__(self, model, **settings):
        self.llm_engine = LLMEngine.from_engine_args(EngineArgs(model=model, **settings), usage_context=None)

    def generate(self, prompts, how, use_tqdm):
        self.llm_engine.worker.execute_model()
