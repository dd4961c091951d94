# SPDX-License-Identifier: MIT
"""A small Llama of transformers: what its weights, its cache and its logits take; generate() ends."""

import torch
import transformers

import figures

CONFIG = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16,
          "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 2048, "eos_token_id": None}
BATCH, PROMPT, NEW = 4, 512, 16
BEAMS, BEAM_PROMPT = 4, 32


def cached_bytes(cache):
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def main():
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).eval()
    said = {"transformers": int(transformers.__version__.split(".")[0]), "weights": figures.requested(), "allocated": torch.cuda.memory_allocated()}
    ids = torch.randint(5, 32000, (BATCH, PROMPT), device="cuda")
    with torch.no_grad():
        model(ids[:, :1], use_cache=False)  # brings the workspaces
        figures.settle()
        before = figures.requested()
        out = model(ids, use_cache=True)
        said["logits and cache"] = figures.requested() - before
        said["logits"] = list(out.logits.shape)
        cache, out = out.past_key_values, None
        said["cache"] = figures.requested() - before
        said["cached"] = cached_bytes(cache)
        cache = None
        said["left"] = figures.requested() - before
        made = model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, return_dict_in_generate=True,
                              pad_token_id=0)
        said["generated"] = list(made.sequences.shape)
        said["generated cache"] = cached_bytes(made.past_key_values)
        made = model.generate(ids[:, :BEAM_PROMPT], max_new_tokens=NEW, num_beams=BEAMS, do_sample=False, early_stopping=True,
                              return_dict_in_generate=True, eos_token_id=2, pad_token_id=0)
        said["searched"] = list(made.sequences.shape)
        said["searched cache"] = cached_bytes(made.past_key_values)
    figures.write(said)


if __name__ == "__main__":
    main()
