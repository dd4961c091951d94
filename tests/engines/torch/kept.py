# SPDX-License-Identifier: MIT
"""What else holds tensors: kept.py PLACE WAY,WAY… FIGURES. PLACE is "cpu" or "cuda". Sums over storages are the program's own; at its end it
holds all of them and marks the moment."""

import collections
import os
import sys

import torch

import figures
import on_host

MIB = 1 << 20
PLACE = sys.argv[1]
STATES = ("conv_states", "ssm_states", "recurrent_states")  # as the versions of transformers call them


def blocks():
    """What PyTorch's allocator gives out of devices: it rounds up, and leaves to a block what is too small for another."""
    if PLACE == "cpu":
        return {}
    segments = torch.cuda.memory_snapshot()
    return {block["address"]: block["size"] for segment in segments for block in segment["blocks"]}


def bytes_of(tensors):
    """Each storage once."""
    given, storages = blocks(), [one.untyped_storage() for one in tensors]
    return sum({one.data_ptr(): given.get(one.data_ptr(), one.nbytes()) for one in storages}.values())


def parts_of(tensor):
    """The plain tensors of one that is made of others."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    return [plain for name in flatten(tensor)[0] for plain in parts_of(getattr(tensor, name))]


class Halves:
    """A quantiser that needs no package: bytes, and a scale, in the form of hqq's."""

    @staticmethod
    def quantise(tensor):
        scale = tensor.abs().amax(dim=-1, keepdim=True) / 127 + 1e-6
        return (tensor / scale).to(torch.int8), {"scale": scale, "shape": tensor.shape, "axis": 0}

    @staticmethod
    def dequantise(packed):
        values, meta = packed
        return values * meta["scale"]


def made_layer():
    from transformers.cache_utils import QuantizedLayer

    class MadeLayer(QuantizedLayer):
        def _quantize(self, tensor, axis):
            return Halves.quantise(tensor)

        def _dequantize(self, packed):
            return Halves.dequantise(packed)

    return MadeLayer(residual_length=16)


def quantised():
    from transformers.cache_utils import Cache
    return generated(on_host.make("dense", "float32"), past_key_values=Cache(layers=[made_layer() for _ in range(on_host.LAYERS)]))


def of_package(backend):
    """With a package's quantiser, where it is installed."""
    def way():
        from transformers import QuantizedCache
        model = on_host.make("dense", "float32")
        return generated(model, past_key_values=QuantizedCache(backend, model.config, residual_length=16, q_group_size=32,
                                                               axis_key=1 if backend == "hqq" else 0, axis_value=1 if backend == "hqq" else 0))
    return way


def of(kind, **options):
    return lambda: generated(on_host.make(kind, "float32"), **options)


def generated(model, **options):
    """The prompt is longer than the window of what has one."""
    model = model.to(PLACE).eval()
    ids = torch.ones(2, 48, dtype=torch.long, device=PLACE)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0,
                         return_dict_in_generate=True, **options)
    layers = getattr(out.past_key_values, "layers", None)
    held = list(on_host.tensors_of([vars(one) for one in layers] if layers else out.past_key_values))
    states = [one for layer in layers or () for name in STATES
              for one in on_host.tensors_of(getattr(layer, name, None))]
    states += [one for name in STATES for one in on_host.tensors_of(getattr(out.past_key_values, name, None))]
    ids_of_states = {id(one) for one in states}
    keys = [plain for one in held if id(one) not in ids_of_states for plain in parts_of(one)]
    here = torch.device(PLACE).type
    return {"weights": bytes_of(model.parameters()), "kv_cache": bytes_of(one for one in keys if one.device.type == here),
            "recurrent_state": bytes_of(one for one in states if one.device.type == here)}, (model, out)


def pinned_and_shared():
    """Memory of the host, whichever the place. A pinned parameter that is gone leaves pinned memory."""
    shared = torch.nn.Linear(1024, 4096, bias=False).share_memory()
    own = torch.nn.Linear(1024, 2048, bias=False)
    others = torch.ones(8 * MIB, dtype=torch.uint8).share_memory_()
    weights = "weights" if PLACE == "cpu" else "on_host"
    said = {weights: bytes_of([shared.weight, own.weight]), "shared": others.untyped_storage().nbytes()}
    kept = [shared, own, others]
    if PLACE == "cuda":
        torch.cuda.init()
        gone, stays = torch.nn.Module(), torch.nn.Module()
        gone.weight = torch.nn.Parameter(torch.ones(4 * MIB, pin_memory=True))
        stays.weight = torch.nn.Parameter(torch.ones(2 * MIB, pin_memory=True))
        kept += [stays, torch.ones(32 * MIB, dtype=torch.uint8, pin_memory=True)]
        said[weights] += stays.weight.untyped_storage().nbytes()
        said["pinned"] = kept[-1].untyped_storage().nbytes() + gone.weight.untyped_storage().nbytes()
        del gone
    return said, kept


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((MIB,), index, dtype=torch.uint8)


def workers():
    """Two workers make batches of 2 MiB, which lie in memory that they share with this process."""
    batches = list(torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2))
    assert all(one.is_shared() for one in batches)
    return {"shared": bytes_of(batches)}, batches


def flashinfer():
    """Its package stands on the path; its buffers are its own, the program's, and one that it keeps for all."""
    import flashinfer
    given = torch.empty(16 * MIB, dtype=torch.uint8, device=PLACE)
    wrapper = flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(given)
    buffers = [given, wrapper._int_workspace_buffer, flashinfer.utils._get_cache_buf("topk", 4 * MIB, torch.device(PLACE))]
    return {"workspace": bytes_of(buffers), "pinned workspace": bytes_of([wrapper._pin_memory_int_workspace_buffer])}, (wrapper, buffers)


WAYS = {"quantised": quantised, "quanto": of_package("quanto"), "hqq": of_package("hqq"), "dynamic": of("dense"),
        "static": of("dense", cache_implementation="static", disable_compile=True),
        "sliding": of("sliding", cache_implementation="dynamic"), "hybrid": of("sliding", cache_implementation="hybrid", disable_compile=True),
        "state": of("parallel_hybrid"), "pinned_and_shared": pinned_and_shared, "workers": workers, "flashinfer": flashinfer}


def main():
    said, held = collections.Counter(), []
    for way in sys.argv[2].split(","):
        sums, kept = WAYS[way]()
        said.update(sums)
        held.append(kept)
    figures.write(said)
    on_host.mark(b"held")
    os._exit(0 if held else 1)  # with all of it


if __name__ == "__main__":
    main()
