# SPDX-License-Identifier: MIT
"""A model of transformers on the CPU with random weights: on_host.py KIND DTYPE BATCH WAY FIGURES. Sums over storages are
the program's own. At its end it holds all of them and marks the moment."""

import ctypes
import gc
import os
import sys

import torch
import transformers

import figures

LARGE = bool(os.environ.get("LARGE"))
WIDTH = 1024 if LARGE else 256
LAYERS = 8 if LARGE else 4
WORDS = 32000 if LARGE else 1000
PROMPT, NEW = (256, 16) if LARGE else (48, 8)

COMMON = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 4}


def dense():
    return transformers.Qwen2Config(**COMMON, intermediate_size=4 * WIDTH, tie_word_embeddings=True)


def experts():
    return transformers.MixtralConfig(**COMMON, intermediate_size=WIDTH, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)


def sliding():
    return transformers.Gemma3TextConfig(**COMMON, intermediate_size=2 * WIDTH, head_dim=WIDTH // 8, sliding_window=32, sliding_window_pattern=2,
                                         layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2))


def state_space():
    return transformers.Mamba2Config(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, state_size=32, num_heads=8, n_groups=2,
                                     head_dim=WIDTH // 4, expand=2, chunk_size=32)


def hybrid():
    return transformers.JambaConfig(**COMMON, intermediate_size=2 * WIDTH, num_experts=2, num_experts_per_tok=1, mamba_d_state=16,
                                    mamba_dt_rank=16, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                                    use_mamba_kernels=False)


def parallel_hybrid():
    return transformers.FalconH1Config(**COMMON, intermediate_size=2 * WIDTH, mamba_d_ssm=WIDTH * 2, mamba_n_heads=8, mamba_d_head=WIDTH // 4,
                                       mamba_d_state=32, mamba_n_groups=1, mamba_chunk_size=32)


def encoder_decoder():
    return transformers.T5Config(vocab_size=WORDS, d_model=WIDTH, d_kv=WIDTH // 8, d_ff=4 * WIDTH, num_layers=LAYERS, num_heads=8,
                                 decoder_start_token_id=0)


def make(kind, dtype):
    config = globals()[kind]()
    auto = transformers.AutoModelForSeq2SeqLM if kind == "encoder_decoder" else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    return auto.from_config(config, dtype=getattr(torch, dtype))


def storages(tensors):
    """Each once, by its address."""
    found = {}
    for one in tensors:
        if one is not None and one.device.type == "cpu" and one.untyped_storage().data_ptr():
            found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return found


def tensors_of(value, depth=0):
    """All that is within a cache, whoever made it."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_of(part, depth + 1)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part, depth + 1)
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__") and depth < 6:
        yield from tensors_of(vars(value), depth + 1)


def parts_of_cache(cache):
    """Keys and values, and what is state of recurrent layers: by the names that the classes of transformers give them."""
    states = {}
    for name in ("conv_states", "ssm_states", "recurrent_states"):
        states.update(storages(tensors_of(getattr(cache, name, None))))
    for layer in getattr(cache, "layers", ()):
        for name in ("conv_states", "ssm_states", "recurrent_states"):
            states.update(storages(tensors_of(getattr(layer, name, None))))
    keys = {at: size for at, size in storages(tensors_of(cache)).items() if at not in states}
    return keys, states


def generate(model, batch, **options):
    model.eval()
    ids = torch.randint(1, WORDS, (batch, PROMPT))
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
                         pad_token_id=0, return_dict_in_generate=True, **options)
    cache = out.get("past_key_values")
    if cache is None:  # Mamba's is not given back
        with torch.no_grad():
            out = model(input_ids=ids, use_cache=True)
        cache = out.cache_params
    keys, states = parts_of_cache(cache)
    return {"kv_cache": sum(keys.values()), "recurrent_state": sum(states.values())}, (out, cache)


def midway(model, batch):
    """The cache is gone at the end; its sum is of a token in the middle."""
    cache, sums = transformers.DynamicCache(), []

    def after_token(ids, scores, **options):
        sums.append(sum(storages(tensors_of(cache)).values()))
        if len(sums) == NEW // 2:
            mark(b"midway")
        return torch.zeros(len(ids), dtype=torch.bool)

    generate(model, batch, past_key_values=cache, stopping_criteria=[after_token])
    return {"midway": sums[NEW // 2 - 1]}, (sums,)


def beams(model, batch):
    """A search in beams gives layers other tensors between two tokens; the sum is of the beginning of one in the middle."""
    cache, sums = transformers.DynamicCache(), []

    def before_token(*_):
        sums.append(sum(storages(tensors_of(cache)).values()))
        if len(sums) == NEW // 2:
            mark(b"midway")

    model.register_forward_pre_hook(before_token)
    generate(model, batch, past_key_values=cache, num_beams=2)
    return {"midway": sums[NEW // 2 - 1]}, (sums,)


def static(model, batch):
    return generate(model, batch, cache_implementation="static", disable_compile=True)


def has_its_block_again(parameter):
    """Empties and fills it, as FSDP does with what a rank does without for a while."""
    storage = parameter.untyped_storage()
    size, address = storage.nbytes(), storage.data_ptr()
    storage.resize_(0)
    storage.resize_(size)
    with torch.no_grad():
        parameter.fill_(0.01)
    return storage.data_ptr() == address


def train(model, batch):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(1, WORDS, (batch, PROMPT))
    for step in range(8):
        is_again = has_its_block_again(max(model.parameters(), key=torch.numel))
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        if step and is_again:
            break
    state = storages(value for one in optimizer.state.values() for value in one.values())
    gradients = storages(one.grad for one in model.parameters())
    return {"gradients": sum(gradients.values()), "optimizer state": sum(state.values())}, (optimizer, loss)


def load(model, batch):
    """The weights lie in the mapping of a file."""
    folder = sys.argv[5] + ".model"
    model.save_pretrained(folder)
    kind, dtype = type(model), model.dtype
    del model
    gc.collect()
    loaded = kind.from_pretrained(folder, dtype=dtype)
    said, held = generate(loaded, batch)
    return said | {"loaded": loaded}, held


def mark(name):
    try:
        ctypes.CDLL(None).memtally_hook_mark(name)
    except AttributeError:  # without the recorder
        pass


def kernel(name):
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith(name)).split()[1]) * 1024


def main():
    kind, dtype, batch, way, path = sys.argv[1:6]
    model = make(kind, dtype)
    said, held = globals()[way](model, int(batch))
    model = said.pop("loaded", model)
    gc.collect()  # of a model that was saved to be loaded modules hold each other
    said["weights"] = sum(storages(list(model.parameters()) + list(model.buffers())).values())
    mark(b"held")
    said["VmHWM"] = kernel("VmHWM")
    said["versions"] = [torch.__version__, transformers.__version__]
    assert held
    sys.argv[-1] = path
    figures.write(said)


if __name__ == "__main__":
    main()
