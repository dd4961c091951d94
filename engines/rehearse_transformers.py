# SPDX-License-Identifier: MIT
"""Loads a model in transformers and has it write some tokens. `memtally rehearse MODEL --engine
transformers` runs it on pretended devices; what it holds is read off there.

usage: python rehearse_transformers.py MODEL_DIR SETTINGS

SETTINGS is a JSON object with some of: version, context_tokens, sequences, weight_type, kv_offload, n_devices,
device_map.
Where MODEL_DIR has no weights, a file of theirs without values is made in the rehearsal's folder: the
shapes are those of the model's own code, and the file is a hole."""

import json
import logging
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
from rehearse_common import check_version, read_arguments, rehearsal_folder, tell, version_of
from rehearse_stand_ins import write_tie

NEW_TOKENS = 8
DEFAULT_CONTEXT = 4096
DTYPES = {"f16": "float16", "fp16": "float16", "bf16": "bfloat16", "f32": "float32", "fp32": "float32"}
SAFETENSORS_TYPES = {
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


log = logging.getLogger("rehearse_transformers")  # its lines are figures of the rehearsal


def check_packages(wanted, n_devices):
    """This Python has transformers, and what divides a model over several devices where that is wanted."""
    check_version("transformers", wanted)
    if n_devices > 1 and not version_of("accelerate"):
        sys.exit(
            "this Python has no accelerate, by which transformers divides a model over several devices; "
            "install it there, or name one device"
        )


def has_weights(model_dir):
    return any(name.endswith((".safetensors", ".bin")) for name in os.listdir(model_dir))


def tensors_of(model):
    """Name, tensor pairs of a model's file: a tensor that two names share is there once."""
    seen = {}
    tied = set(getattr(model, "_tied_weights_keys", None) or [])
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        if name in tied and getattr(model.config, "tie_word_embeddings", False):
            continue
        seen[id(tensor)] = name
        yield name, tensor


def write_hole(model, path):
    """A safetensors file whose header says what the model has, and which has no values in it."""
    header, at = {}, 0
    for name, tensor in tensors_of(model):
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": SAFETENSORS_TYPES[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def class_of(config):
    """The class that the model's own config names, where it writes text: one that sees or hears as well is none of
    those for text alone."""
    import transformers

    for name in config.architectures or []:
        named = getattr(transformers, name, None)
        if named is not None and getattr(named, "can_generate", bool)():
            return named
    return transformers.AutoModelForCausalLM


def say_what_is_not_sent(config):
    """Only text is sent."""
    senses = [name for name in ("vision", "audio") if getattr(config, name + "_config", None) is not None]
    if senses:
        tell("The model was sent text alone: what its encoder of %s takes for one comes on top." %
             " and ".join({"vision": "images", "audio": "sounds"}[name] for name in senses))


def make_model_dir(model_dir, folder, dtype):
    """A folder with a file of weights, which is the model's own where it has one."""
    if has_weights(model_dir):
        return model_dir
    import torch
    from transformers import AutoConfig

    made = os.path.join(folder, "model")
    shutil.copytree(model_dir, made)
    write_tie(made, AutoConfig.from_pretrained(made))
    config = AutoConfig.from_pretrained(made)
    kind = class_of(config)
    make = getattr(kind, "_from_config", None) or kind.from_config
    with torch.device("meta"):
        model = make(config, **typed(dtype))
    write_hole(model, os.path.join(made, "model.safetensors"))
    return made


def dtype_of(model_dir, settings):
    import torch

    with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config") or {}
    name = settings.get("weight_type") or config.get("dtype") or config.get("torch_dtype")
    name = name or text.get("dtype") or text.get("torch_dtype") or "float32"
    dtype = getattr(torch, DTYPES.get(name, name), None)
    if not isinstance(dtype, torch.dtype):
        sys.exit(f"rehearse_transformers: transformers has no weights of type {name}")
    return dtype


def typed(dtype):
    """The argument for the type of weights, whose name changed in transformers 4.56."""
    import transformers

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": dtype}


def load(model_dir, dtype, n_devices, device_map, folder):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir)
    say_what_is_not_sent(config)
    kind = class_of(config)
    if device_map:
        return kind.from_pretrained(model_dir, device_map=device_map, offload_folder=os.path.join(folder, "disk"), **typed(dtype))
    if n_devices > 1:
        return kind.from_pretrained(model_dir, device_map="auto", **typed(dtype))
    model = kind.from_pretrained(model_dir, **typed(dtype))
    return model.to("cuda") if n_devices else model


class Written(Exception):
    """As many tokens as were wanted are there."""


def stop_after(n):
    """Ends by counting: whether a sequence has ended is what a device would have computed."""
    import torch
    from transformers import StoppingCriteria

    class Counted(StoppingCriteria):
        written = 0

        def __call__(self, input_ids, scores, **_):
            self.written += 1
            if self.written >= n:
                raise Written
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    return Counted()


def kept_on_host(settings):
    """The argument that keeps the cache of all layers but one on the host."""
    return {"cache_implementation": "offloaded"} if settings.get("kv_offload") else {}


def generate(model, settings):
    import torch

    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None) or DEFAULT_CONTEXT
    context = settings.get("context_tokens") or min(longest, DEFAULT_CONTEXT)
    new = min(NEW_TOKENS, max(1, context - 1))
    sequences = settings.get("sequences", 1)
    log.info("%d sequences of %d tokens", sequences, context)
    prompts = torch.full((sequences, max(1, context - new)), 5, dtype=torch.long)
    prompts = prompts.to(model.device)
    try:
        with torch.no_grad():
            model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                pad_token_id=0,
                stopping_criteria=[stop_after(new)],
                **kept_on_host(settings),
            )
    except Written:
        pass


def main():
    log.setLevel(logging.INFO)
    log.addHandler(logging.NullHandler())
    model_dir, settings, version = read_arguments()
    check_packages(version, settings.get("n_devices", 0))
    folder = rehearsal_folder()
    dtype = dtype_of(model_dir, settings)
    log.info("%d bytes of a weight", dtype.itemsize)
    made = make_model_dir(model_dir, folder, dtype)
    model = load(made, dtype, settings.get("n_devices", 0), settings.get("device_map"), folder).eval()
    generate(model, settings)


if __name__ == "__main__":
    main()
