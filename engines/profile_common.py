# SPDX-License-Identifier: MIT
"""What the programs share that profile a model in a Python package: settings, events, prompts.

Each is called with its settings as JSON: model, prompt (null: one is made up), prompt_tokens, max_tokens,
batch_size, context (0: the engine's own), kv_type, dtype and device_map (null: not given), threads and
tensor_parallel (0: not given), repeats, pretended (the devices are not there). Standard output is one JSON event a line,
as node-llama-cpp.mjs has them on top; besides, "model" has device_map (module: device), and "run" has
peak_device_bytes."""

import json
import os
import sys
import time

FILLER = "The memory of a language model holds its weights, its cache and its scratch space. "
DTYPES = {"f16": "float16", "fp16": "float16", "bf16": "bfloat16", "f32": "float32", "fp32": "float32"}
FIRST_TOKEN = 5  # of a made-up prompt: those before it mostly begin or end a text
TOKENS = 1000  # of which one is made up

events = None


class UsageError(Exception):
    """Wrong settings are the user's error, and end the program with another status than a failure does."""


def take_output():
    """Keeps standard output for events: what the engine prints there goes to the log."""
    global events
    sys.stdout.flush()
    events = os.dup(1)
    os.dup2(2, 1)


def emit(event, **fields):
    line = (json.dumps({"event": event, **fields}) + "\n").encode()
    while line:
        line = line[os.write(events, line):]


def phase(name, run, at=None):
    at = at or time.monotonic_ns()
    emit("phase", name=name, run=run, time_ns=at)
    return at


def run_took(run, start, first, end, steps, peak_device_bytes=None):
    emit("run", run=run, latency_ms=(end - start) / 1e6, prefill_ms=(first - start) / 1e6, decode_ms=(end - first) / 1e6,
         steps=steps, peak_device_bytes=peak_device_bytes)


def done():
    emit("done", time_ns=time.monotonic_ns())


def config_of(model_dir):
    with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def dtype_of(settings):
    """The model's own type of weights unless another was said: "bfloat16"."""
    config = config_of(settings["model"])
    texts = [config] + [part for part in config.values() if isinstance(part, dict)]
    own = [text.get(key) for text in texts for key in ("dtype", "torch_dtype") if isinstance(text.get(key), str)]
    name = settings["dtype"] or (own[0] if own else "float32")
    name = DTYPES.get(name, name)
    if name not in DTYPES.values():
        raise UsageError(f"there are no weights of type {name}; --dtype knows bf16, f16 and f32")
    return name


def short(dtype):
    """The type as other engines write it: BF16."""
    return {long: name for name, long in DTYPES.items() if not name.startswith("fp")}[dtype].upper()


def weights_in(folder, dtype):
    """Parameters, and the bytes of one copy in this type; None, None where no safetensors file has them. What is of whole
    numbers is quantised, and stays as it is."""
    parameters = size = 0
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for tensor in [tensor for key, tensor in header.items() if key != "__metadata__"]:
            first, last = tensor["data_offsets"]
            n = 1
            for dimension in tensor["shape"]:
                n *= dimension
            parameters += n
            size += n * (4 if dtype == "float32" else 2) if tensor["dtype"] in ("F32", "F16", "BF16") else last - first
    return (parameters, size) if parameters else (None, None)


def tokenizer_of(settings):
    """The model's tokenizer, or None where it has none that is of use."""
    if not any(name.startswith("tokenizer") or name.endswith(".tiktoken") for name in os.listdir(settings["model"])):
        return None
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(settings["model"])
    except Exception as error:
        print(f"no tokenizer: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def prompt_tokens(settings, vocabulary):
    """The prompt of each sequence. Where only its length is given no two begin alike: what begins alike an engine
    may compute once."""
    tokenizer = tokenizer_of(settings)
    if settings["prompt"] is not None:
        if tokenizer is None:
            raise UsageError("the model's folder has no tokenizer to read a prompt with; give --prompt-tokens instead of --prompt")
        tokens = list(tokenizer(settings["prompt"])["input_ids"])
        return [tokens] * settings["batch_size"]
    tokens = list(tokenizer(FILLER)["input_ids"]) if tokenizer else []
    last = max(2, min(vocabulary, TOKENS))
    tokens = tokens or [token for token in range(min(FIRST_TOKEN, last - 1), last)]
    n = settings["prompt_tokens"]
    return [[tokens[(row + i) % len(tokens)] for i in range(n)] for row in range(settings["batch_size"])]


def version_of(package):
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise UsageError(f"{sys.executable} has no package {package}; name a Python that has it with --engine-path") from None


def main(profile):
    take_output()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        profile(json.loads(sys.argv[1]))
    except UsageError as error:
        emit("error", message=str(error), usage=True)
        sys.exit(2)
    except (Exception, SystemExit) as error:
        message = str(error).strip() or type(error).__name__
        emit("error", message=message.splitlines()[0])
        raise
