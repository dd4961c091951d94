# SPDX-License-Identifier: MIT
"""Loads a model in SGLang and generates from it, for `memtally profile`; see profile_common.py.

usage: python profile_sglang.py SETTINGS

What is left out is SGLang's own default."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
import profile_common as common
import rehearse_sglang as rehearsed
from rehearse_common import rehearsal_folder
from rehearse_stand_ins import complete


def arguments_of(settings, model):
    has_weights = any(name.endswith((".safetensors", ".bin")) for name in os.listdir(settings["model"]))
    if not has_weights and not settings["pretended"]:
        raise common.UsageError(f"{settings['model']} has no weights; they are not needed on devices that are not there (--on)")
    arguments = {"model_path": model, "dtype": common.dtype_of(settings), "skip_tokenizer_init": True, "log_level": "info",
                 "load_format": "auto" if has_weights else "dummy"}
    if settings["context"]:
        arguments["context_length"] = settings["context"]
    if settings["tensor_parallel"] > 1:
        arguments["tp_size"] = settings["tensor_parallel"]
    if settings["kv_type"]:
        arguments["kv_cache_dtype"] = rehearsed.KV_TYPES.get(settings["kv_type"], settings["kv_type"])
    return rehearsed.without_a_compiler(arguments)


def steps_in(chunk, n):
    """How many tokens of which sequence a chunk of the answer brings along: index, tokens."""
    return chunk.get("index", 0) if n > 1 else 0, chunk["meta_info"]["completion_tokens"]


def generate(engine, prompts, settings, run):
    wanted = settings["max_tokens"]
    sampling = {"max_new_tokens": wanted, "temperature": 0, "ignore_eos": True}
    engine.flush_cache()
    start, first, written = common.phase("prefill", run), None, {}
    tokens = prompts if len(prompts) > 1 else prompts[0]
    for chunk in engine.generate(input_ids=tokens, sampling_params=sampling, stream=True):
        index, n = steps_in(chunk, len(prompts))
        written[index] = max(n, written.get(index, 0))
        if first is None and len(written) == len(prompts):
            first = common.phase("decode", run)
    end = common.phase("idle", run)
    if first is None:
        raise RuntimeError("sglang generated nothing")
    common.run_took(run, start, first, end, max(written.values()))


def describe(engine, settings, arguments):
    config = common.config_of(settings["model"])
    text = config.get("text_config") or config
    parameters, size_bytes = common.weights_in(settings["model"], arguments["dtype"])
    common.emit("model", name=os.path.basename(settings["model"]), architecture=text.get("model_type"),
                dtype=common.short(arguments["dtype"]), parameters=parameters, size_bytes=size_bytes, layers=text.get("num_hidden_layers"),
                trained_context_tokens=text.get("max_position_embeddings"))
    said = engine.get_server_info()
    kv_type = settings["kv_type"] or common.short(arguments["dtype"]).lower()
    context = settings["context"] or said.get("context_length") or text.get("max_position_embeddings")
    return context, said.get("chunked_prefill_size"), kv_type, text.get("vocab_size") or common.TOKENS


def run_engine(settings, arguments):
    import sglang

    engine = sglang.Engine(**arguments)
    left = set()
    try:
        few = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        engine.generate(input_ids=[10, 11, 12], sampling_params=few)  # versions of 2025 say nothing of themselves before
        context, batch, kv_type, vocabulary = describe(engine, settings, arguments)
        prompts = common.prompt_tokens(settings, vocabulary)
        n_prompt = len(prompts[0])
        common.emit("settings", context_tokens=context, batch=batch, threads=None, prompt_tokens=n_prompt,
                    kv_type_k=kv_type, kv_type_v=kv_type)
        for run in range(settings["repeats"] + 1):
            generate(engine, prompts, settings, run)
        common.done()
    finally:
        left.update(rehearsed.made_since(there, rehearsed.SHARED))
        rehearsed.shut_down(engine)
        rehearsed.remove(left)


there = set()  # the shared memory of others


def profile(settings):
    version = common.version_of("sglang")
    common.phase("start", 0)
    import torch

    common.emit("engine", name="sglang", version=version, binding=f"torch {torch.__version__}")
    if not settings["pretended"] and not torch.cuda.device_count():
        raise common.UsageError("sglang found no device; name one that is not there with --on")
    there.update(rehearsed.files_in(rehearsed.SHARED))
    model = complete(settings["model"], rehearsal_folder()) if settings["pretended"] else settings["model"]
    common.phase("load", 0)
    run_engine(settings, arguments_of(settings, model))


# SGLang's processes are spawned, and read this file again under another name.
if __name__ == "__main__":
    common.main(profile)
