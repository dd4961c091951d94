# SPDX-License-Identifier: MIT
"""Starts vLLM or SGLang with n-gram drafts of four tokens for at most 32 requests at a time, weights of zeros, and ends once it
is ready. usage: run_graphs.py ENGINE MODEL [--max_concurrency N]. Above N requests a step has no drafts."""

import argparse
import importlib
import os

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
REQUESTS, DRAFT, CONTEXT = 32, 4, 1024


def start_vllm(model, concurrency):
    import vllm

    drafts = {"method": "ngram", "num_speculative_tokens": DRAFT, "prompt_lookup_max": 4}
    if concurrency:
        drafts["num_speculative_tokens_per_batch_size"] = [(1, concurrency, DRAFT), (concurrency + 1, REQUESTS, 0)]
    kernels = getattr(importlib.import_module("vllm.config"), "KernelConfig", None)
    knows = "enable_jit_warmup" in getattr(kernels, "__dataclass_fields__", {})
    more = {"kernel_config": {"enable_jit_warmup": False}} if knows else {}
    vllm.LLM(model=model, load_format="dummy", skip_tokenizer_init=True, max_num_seqs=REQUESTS, max_model_len=CONTEXT,
             speculative_config=drafts, **more)


def start_sglang(model, concurrency):
    """It has no bound on the requests with drafts: with one, a run has none at all. Sources of its n-grams, which it compiles as
    it starts, name size_t in 0.5.14 without the header that has it."""
    import sglang
    if sglang.__version__ == "0.5.14":
        os.environ.setdefault("CXX", "c++ -include cstddef")
    from sglang.srt.server_args import ServerArgs

    most = "cuda_graph_max_bs_decode" if hasattr(ServerArgs, "cuda_graph_max_bs_decode") else "cuda_graph_max_bs"
    drafts = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": DRAFT} if not concurrency else {}
    sglang.Engine(model_path=model, load_format="dummy", skip_tokenizer_init=True, context_length=CONTEXT, max_running_requests=REQUESTS,
                  **{most: REQUESTS}, **drafts).shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("vllm", "sglang"))
    parser.add_argument("model")
    parser.add_argument("--max_concurrency", type=int)
    asked = parser.parse_args()
    {"vllm": start_vllm, "sglang": start_sglang}[asked.engine](asked.model, asked.max_concurrency)
