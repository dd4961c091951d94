# SPDX-License-Identifier: MIT
"""Loads a model in vLLM and generates from it, for `memtally profile`; see profile_common.py.

usage: python profile_vllm.py SETTINGS

The engine is stepped by hand, so that the first token of every sequence is seen. What is left out is vLLM's own default."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
import profile_common as common
import rehearse_vllm as rehearsed
from rehearse_common import rehearsal_folder
from rehearse_stand_ins import complete


def arguments_of(settings, model):
    has_weights = any(name.endswith((".safetensors", ".bin")) for name in os.listdir(settings["model"]))
    if not has_weights and not settings["pretended"]:
        raise common.UsageError(f"{settings['model']} has no weights; they are not needed on devices that are not there (--on)")
    arguments = {"model": model, "dtype": common.dtype_of(settings), "skip_tokenizer_init": True,
                 "load_format": "auto" if has_weights else "dummy"}
    if settings["context"]:
        arguments["max_model_len"] = settings["context"]
    if settings["tensor_parallel"] > 1:
        arguments["tensor_parallel_size"] = settings["tensor_parallel"]
    if settings["kv_type"]:
        arguments["kv_cache_dtype"] = {"f16": "float16", "bf16": "bfloat16"}.get(settings["kv_type"], settings["kv_type"])
    return arguments


def check_devices(torch):
    if not torch.cuda.device_count():
        raise common.UsageError("vllm found no device; name one that is not there with --on")


def describe(engine, settings, arguments):
    config = engine.llm_engine.vllm_config
    model, text = config.model_config, config.model_config.hf_text_config
    parameters, size_bytes = common.weights_in(settings["model"], arguments["dtype"])
    common.emit("model", name=os.path.basename(settings["model"]), architecture=text.model_type, dtype=common.short(arguments["dtype"]),
                parameters=parameters, size_bytes=size_bytes, layers=getattr(text, "num_hidden_layers", None),
                trained_context_tokens=getattr(text, "max_position_embeddings", None))
    kv_type = str(config.cache_config.cache_dtype)
    kv_type = common.short(arguments["dtype"]).lower() if kv_type == "auto" else kv_type
    return model.max_model_len, config.scheduler_config.max_num_batched_tokens, kv_type[:15]


def generate(engine, prompts, settings, run):
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    wanted = settings["max_tokens"]
    sampling = SamplingParams(max_tokens=wanted, min_tokens=wanted, temperature=0, ignore_eos=True, detokenize=False)
    engine.reset_prefix_cache()
    start, first, written = common.phase("prefill", run), None, {}
    for number, tokens in enumerate(prompts):
        engine.llm_engine.add_request(f"{run}-{number}", TokensPrompt(prompt_token_ids=tokens), sampling)
    while engine.llm_engine.has_unfinished_requests():
        for output in engine.llm_engine.step():
            written[output.request_id] = len(output.outputs[0].token_ids)
        if first is None and len(written) == len(prompts):
            first = common.phase("decode", run)
    end = common.phase("idle", run)
    if first is None:
        raise RuntimeError("vllm generated nothing")
    common.run_took(run, start, first, end, max(written.values()))


def profile(settings):
    version = common.version_of("vllm")
    common.phase("start", 0)
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # one process less to start
    import torch

    common.emit("engine", name="vllm", version=version, binding=f"torch {torch.__version__}")
    if not settings["pretended"]:
        check_devices(torch)
    rehearsed.look_at_models_here()
    model = complete(settings["model"], rehearsal_folder()) if settings["pretended"] else settings["model"]
    arguments = arguments_of(settings, model)
    common.phase("load", 0)
    from vllm import LLM

    engine = LLM(**arguments)
    context, batch, kv_type = describe(engine, settings, arguments)
    vocabulary = engine.llm_engine.vllm_config.model_config.get_vocab_size()
    prompts = common.prompt_tokens(settings, vocabulary)
    n_prompt = len(prompts[0])
    if n_prompt + settings["max_tokens"] > context:
        raise common.UsageError(f"prompt and output take {n_prompt + settings['max_tokens']} tokens and the context is for {context}: "
                                "raise --context, or lower --max-tokens or the prompt")
    common.emit("settings", context_tokens=context, batch=batch, threads=None, prompt_tokens=n_prompt, kv_type_k=kv_type, kv_type_v=kv_type)
    for run in range(settings["repeats"] + 1):
        generate(engine, prompts, settings, run)
    common.done()


if __name__ == "__main__":
    common.main(profile)
