# SPDX-License-Identifier: MIT
"""Loads a model in transformers and generates from it, for `memtally profile`; see profile_common.py.

usage: python profile_transformers.py SETTINGS

On devices that are not there a folder without weights will do: a file of theirs without values is made."""

import importlib.util
import json
import os
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
import profile_common as common
import rehearse_transformers as rehearsed
from rehearse_common import rehearsal_folder


class Steps:
    """Counts tokens and ends by counting: what a device that is not there computes ends nothing."""

    def __init__(self, wanted, run, settle):
        self.wanted, self.run, self.settle = wanted, run, settle
        self.written = 0
        self.first = None

    def __call__(self, input_ids, scores, **_):
        import torch

        self.written += 1
        if self.first is None:
            self.settle()
            self.first = common.phase("decode", self.run)
        if self.written >= self.wanted:
            raise rehearsed.Written
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class Devices:
    """The devices of PyTorch, of which there may be none."""

    def __init__(self, torch):
        self.cuda = torch.cuda
        self.n = torch.cuda.device_count() if torch.cuda.is_available() else 0

    def settle(self):
        for device in range(self.n if self.cuda.is_initialized() else 0):
            self.cuda.synchronize(device)

    def forget_peaks(self):
        for device in range(self.n):
            self.cuda.reset_peak_memory_stats(device)

    def peak_bytes(self):
        return sum(self.cuda.max_memory_reserved(device) for device in range(self.n)) if self.n else None


def read_map(text):
    """--device-map: "auto", or a file."""
    if text == "auto":
        return text
    try:
        with open(text, encoding="utf-8") as file:
            made = json.load(file)
    except (OSError, ValueError) as error:
        raise common.UsageError(f"--device-map: {text} cannot be read as JSON: {error}") from None
    if not isinstance(made, dict) or not all(isinstance(device, (str, int)) for device in made.values()):
        raise common.UsageError(f"--device-map: {text} is no JSON object of modules and devices, as {{\"model.layers.0\": 0}}")
    return made


def placement(settings, devices):
    """The arguments of from_pretrained, and the device that the model is moved to then, or None."""
    if settings["device_map"]:
        common.version_of("accelerate")
        return {"device_map": read_map(settings["device_map"])}, None
    if settings["tensor_parallel"] > 1:
        return {"tp_plan": "auto"}, None
    return {}, "cuda:0" if devices.n else None


def load(model_dir, dtype, settings, devices):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir)
    arguments, device = placement(settings, devices)
    model = rehearsed.class_of(config).from_pretrained(model_dir, **rehearsed.typed(dtype), **arguments)
    return (model.to(device) if device else model).eval()


def device_name(device):
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def device_map(model, n_sharing):
    """Module, device pairs; the model itself is called "model" where it is not divided by modules."""
    if n_sharing > 1:
        return {"model": ", ".join(device_name(device) for device in range(n_sharing))}
    mapped = getattr(model, "hf_device_map", None)
    if not mapped or list(mapped) == [""]:
        return {"model": device_name(next(model.parameters()).device)}
    return {name: device_name(device) for name, device in mapped.items()}


def bytes_of(tensors):
    """The bytes of one copy of them: what two names share is there once, and what devices share counts whole."""
    sizes = {}
    for tensor in tensors:
        here = getattr(tensor, "_local_tensor", tensor)
        storage = here.untyped_storage()
        sizes[here.device, storage.data_ptr()] = storage.nbytes() if here is tensor else tensor.numel() * tensor.element_size()
    return sum(sizes.values())


def describe(model, dtype, n_sharing):
    config = model.config.get_text_config()
    tensors = [*model.parameters(), *model.buffers()]
    common.emit(
        "model", name=getattr(model.config, "name_or_path", None) and os.path.basename(model.config.name_or_path),
        architecture=model.config.model_type, dtype=dtype, parameters=sum(one.numel() for one in model.parameters()),
        size_bytes=bytes_of(tensors), layers=getattr(config, "num_hidden_layers", None),
        trained_context_tokens=getattr(config, "max_position_embeddings", None), device_map=device_map(model, n_sharing))


def generate(model, prompts, settings, run, devices):
    import torch

    n = settings["max_tokens"]
    devices.settle()
    devices.forget_peaks()
    steps = Steps(n, run, devices.settle)
    start = common.phase("prefill", run)
    try:
        with torch.no_grad():
            model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                           num_beams=1, pad_token_id=0, stopping_criteria=[steps])
    except rehearsed.Written:
        pass
    devices.settle()
    end = common.phase("idle", run)
    if steps.first is None:
        raise RuntimeError("transformers generated nothing")
    common.run_took(run, start, steps.first, end, steps.written, devices.peak_bytes())


def profile(settings):
    version = common.version_of("transformers")
    common.version_of("torch")
    name = common.dtype_of(settings)
    common.phase("start", 0)
    import torch

    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    common.emit("engine", name="transformers", version=version, binding=f"torch {torch.__version__}")
    devices = Devices(torch)
    model_dir = settings["model"]
    if not rehearsed.has_weights(model_dir):
        if not settings["pretended"]:
            raise common.UsageError(f"{model_dir} has no weights; they are not needed on devices that are not there (--on)")
        model_dir = rehearsed.make_model_dir(model_dir, rehearsal_folder(), getattr(torch, name))
    common.phase("load", 0)
    model = load(model_dir, getattr(torch, name), settings, devices)
    describe(model, common.short(name), settings["tensor_parallel"])
    prompts = common.prompt_tokens(settings, model.config.get_text_config().vocab_size)
    n_prompt = len(prompts[0])
    common.emit("settings", context_tokens=n_prompt + settings["max_tokens"], batch=None, threads=torch.get_num_threads(),
                prompt_tokens=n_prompt, kv_type_k=common.short(name).lower(), kv_type_v=common.short(name).lower())
    prompts = torch.tensor(prompts, dtype=torch.long).to(model.device)
    for run in range(settings["repeats"] + 1):
        generate(model, prompts, settings, run, devices)
    common.done()
    if settings["tensor_parallel"] > 1:
        torch.distributed.destroy_process_group()


def become_ranks(settings):
    """One process for each of the devices that share the layers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.execv(sys.executable, [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(settings["tensor_parallel"]),
        "--master-addr", "127.0.0.1", "--master-port", str(port), os.path.abspath(__file__), sys.argv[1]])


if __name__ == "__main__":
    has_torch = importlib.util.find_spec("torch") is not None  # where there is none the profile says what to do
    if has_torch and json.loads(sys.argv[1])["tensor_parallel"] > 1 and "LOCAL_RANK" not in os.environ:
        become_ranks(json.loads(sys.argv[1]))
    if os.environ.get("LOCAL_RANK", "0") != "0":
        os.dup2(2, 1)  # the first tells of all
    common.main(profile)
