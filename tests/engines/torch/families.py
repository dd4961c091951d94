# SPDX-License-Identifier: MIT
"""Small models of transformers, of families that do something of their own: a forward pass, generate() in three ways, a
step of training. Weights are random, the configurations are all there is of them."""

import gc
import threading

import torch
import transformers

import figures

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 2048, "max_position_embeddings": 1024}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
          "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
FAMILIES = {
    "Qwen3Moe": {**SHAPE, **EXPERTS, "head_dim": 64, "num_experts": 8},
    "DeepseekV3": {**SHAPE, **EXPERTS, **LATENT},
    "Gemma2": {**SHAPE, "head_dim": 64, "sliding_window": 16},  # a cache of two kinds
    "Mamba": {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 2048},
    "T5": {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4, "vocab_size": 2048, "decoder_start_token_id": 0},
}
BATCH, PROMPT, NEW = 2, 24, 6


def weights(model):
    """Bytes of all that the model holds, once where two names have the same."""
    tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def generated(model, inputs):
    ways = {"best": {}, "sampled": {"do_sample": True, "top_k": 20, "top_p": 0.9}, "in beams": {"num_beams": 3}}
    return {name: list(model.generate(**inputs, max_new_tokens=NEW, min_new_tokens=NEW, **{"do_sample": False, **way}).shape)
            for name, way in ways.items()}


def train(model, inputs):
    """With autocast, a scale of the loss and a limit of the gradient. Returns what the optimizer holds beside."""
    model.train()
    model.float()
    adam, scaler = torch.optim.AdamW(model.parameters(), fused=True), torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**inputs, labels=inputs["input_ids"]).loss
    scaler.scale(loss).backward()
    scaler.unscale_(adam)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    before = figures.requested()
    scaler.step(adam)
    states = figures.requested() - before
    scaler.update()
    parameters = [one.numel() for one in model.parameters() if one.grad is not None]
    return {"norm": list(norm.shape), "states": states, "parameters": parameters}


def family(name, settings):
    torch.manual_seed(0)
    kind = "ForConditionalGeneration" if name == "T5" else "ForCausalLM"
    figures.settle()
    before = figures.requested()
    model = getattr(transformers, name + kind)(getattr(transformers, name + "Config")(**settings, **TOKENS)).eval()
    model = model.to("cuda", torch.bfloat16)
    said = {"shapes": weights(model), "weights": figures.requested() - before}
    inputs = {"input_ids": torch.randint(5, 2000, (BATCH, PROMPT)), "attention_mask": torch.ones(BATCH, PROMPT, dtype=torch.int64)}
    inputs["attention_mask"][0, :5] = 0
    inputs = {key: value.to("cuda") for key, value in inputs.items()}
    with torch.no_grad():
        labels = {"labels": inputs["input_ids"]} if name == "T5" else {}
        said["logits"] = list(model(**inputs, **labels).logits.shape)
        said["generated"] = generated(model, inputs)
    said["trained"] = train(model, inputs)
    return said


def in_a_thread():
    """As servers generate that stream what they have so far."""
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SHAPE, **TOKENS, num_local_experts=8)).to("cuda")
    ids, shapes = torch.randint(5, 2000, (BATCH, PROMPT), device="cuda"), []
    thread = threading.Thread(target=lambda: shapes.append(list(model.generate(ids, max_new_tokens=NEW).shape)), daemon=True)
    thread.start()
    thread.join(60)
    return shapes


def routed():
    """How many tokens each expert of a layer gets of 4096, two experts for each of them. Up to transformers 4 experts are
    modules of their own; from 5 on their weights lie in one, which is told who goes where."""
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SHAPE, **TOKENS, num_local_experts=8))
    model, tokens = model.to("cuda", torch.bfloat16), []
    layer = model.model.layers[1]
    if hasattr(layer, "block_sparse_moe"):
        for expert in layer.block_sparse_moe.experts:
            expert.register_forward_hook(lambda module, args, out: tokens.append(args[0].shape[0]))
    else:
        layer.mlp.experts.register_forward_hook(lambda module, args, out: tokens.extend(torch.bincount(args[1].flatten()).tolist()))
    with torch.no_grad():
        model(torch.randint(5, 2000, (1, 4096), device="cuda"))
    return tokens


def main():
    torch.zeros(1, device="cuda")
    said = {}
    for name, settings in FAMILIES.items():
        said[name] = family(name, settings)
        gc.collect()
    said["routed"] = routed()
    said["in a thread"] = in_a_thread()
    figures.write(said)


if __name__ == "__main__":
    main()
