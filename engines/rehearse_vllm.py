# SPDX-License-Identifier: MIT
"""Loads a model in vLLM as its server would, with weights of the right shapes and no values, and
sends it as much as it takes at a time. `memtally rehearse MODEL --engine vllm` runs it on pretended
devices; what it holds is read off there, and nothing is printed here.

usage: python rehearse_vllm.py MODEL_DIR SETTINGS

SETTINGS is a JSON object with some of: version, context_tokens, sequences, batched_tokens, memory_share,
kv_type, weight_type, tensor_parallel, pipeline_parallel, eager, block_size. What is left out is
vLLM's own default for a server."""

import gc
import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
from rehearse_common import check_version, largest_batch, read_arguments, rehearsal_folder
from rehearse_stand_ins import complete, senses

# vLLM's names of settings by ours. A server's defaults depend on who asks, so that vLLM's own
# parser of a server's flags is given them, not the class for programs.
FLAGS = {
    "context_tokens": "--max-model-len",
    "sequences": "--max-num-seqs",
    "batched_tokens": "--max-num-batched-tokens",
    "memory_share": "--gpu-memory-utilization",
    "kv_type": "--kv-cache-dtype",
    "weight_type": "--dtype",
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "block_size": "--block-size",
}
DTYPES = {"f16": "half", "fp16": "half", "bf16": "bfloat16", "f32": "float", "fp32": "float"}
QUANTIZED = {"fp8": "fp8"}
# What each worker needs of vLLM and PyTorch, in the versions that have it.
SHARED = ("vllm.v1.worker.gpu_worker", "vllm.v1.executor.multiproc_executor", "torch._inductor.compile_fx")


def flags_of(model, settings, reads_text=False):
    """The flags of a server that loads no values, and needs no tokenizer unless it takes more than text."""
    flags = ["--model", model, "--load-format", "dummy"] + ([] if reads_text else ["--skip-tokenizer-init"])
    for key, value in settings.items():
        if key == "eager":
            flags += ["--enforce-eager"] if value else []
        elif key == "weight_type" and value in QUANTIZED:
            flags += ["--quantization", QUANTIZED[value]]
        elif key == "weight_type":
            flags += ["--dtype", DTYPES.get(value, value)]
        elif key == "kv_type":
            flags += ["--kv-cache-dtype", {"f16": "auto", "bf16": "auto"}.get(value, value)]
        elif key in FLAGS:
            flags += [FLAGS[key], str(value)]
        else:
            sys.exit(f"rehearse_vllm: no such setting: {key}")
    return flags


def make_engine(flags):
    """An engine for programs with the settings of a server."""
    import dataclasses

    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs

    try:
        from vllm.utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    args = EngineArgs.from_cli_args(EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(flags))
    if not start_as_server():
        for name, value in server_limits(args).items():
            if getattr(args, name) is None:
                setattr(args, name, value)
    told = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
    return LLM(**{name: value for name, value in told.items() if value != getattr(EngineArgs, name, None)})


def start_as_server():
    """Has the class for programs say that a server asks; whether that can be done."""
    from vllm import LLM
    from vllm.usage.usage_lib import UsageContext

    engine = LLM.__init__.__globals__.get("LLMEngine")
    make = getattr(engine, "from_engine_args", None)
    if make is None or hasattr(LLM, "get_engine_class"):  # before 0.8 the class is chosen later
        return False

    def from_engine_args(engine_args, usage_context=None, **rest):
        return make(engine_args, usage_context=UsageContext.OPENAI_API_SERVER, **rest)

    engine.from_engine_args = from_engine_args
    return True


def server_limits(args):
    """How many tokens and sequences a server takes at a time, which vLLM chooses by who asks. Takes as
    long as the start of an engine's configuration."""
    from vllm.usage.usage_lib import UsageContext

    config = args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    scheduler = config.scheduler_config
    return {
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
    }


def send(engine):
    """One batch as large as it may be, then some tokens one by one."""
    from vllm import SamplingParams

    try:
        from vllm.inputs import TokensPrompt
    except ImportError:
        TokensPrompt = lambda prompt_token_ids: {"prompt_token_ids": prompt_token_ids}
    config = engine.llm_engine.vllm_config if hasattr(engine.llm_engine, "vllm_config") else engine.llm_engine
    longest = config.model_config.max_model_len
    at_a_time = config.scheduler_config.max_num_batched_tokens
    most = config.scheduler_config.max_num_seqs
    n, length = largest_batch(longest, at_a_time, most)
    prompts = [TokensPrompt(prompt_token_ids=[5] * length) for _ in range(n)]
    engine.generate(
        prompts, SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, detokenize=False), use_tqdm=False
    )


def look_at_models_here():
    """vLLM looks at a model's class in a process of its own, lest that should start CUDA; it would
    import everything once more. Where CUDA is started here, vLLM spawns its workers by itself."""
    from vllm.model_executor.models import registry

    apart = getattr(registry, "_run_in_subprocess", None)

    def look_here(look):
        try:
            return look()
        except Exception:
            return apart(look)

    if apart:
        registry._run_in_subprocess = look_here


def share_imports():
    """What is imported before workers are forked is there once, and takes its time once."""
    for name in SHARED:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    gc.collect()
    gc.freeze()  # a collection in a worker would write to each object, and so copy its page


def main():
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    # The engine in this very process: another one takes as long again to start.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    model, settings, version = read_arguments()
    check_version("vllm", version)
    look_at_models_here()
    if settings.get("tensor_parallel", 1) * settings.get("pipeline_parallel", 1) > 1:
        share_imports()
    model = complete(model, rehearsal_folder())
    engine = make_engine(flags_of(model, settings, senses(model)))
    send(engine)


if __name__ == "__main__":
    main()
