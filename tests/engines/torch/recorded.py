# SPDX-License-Identifier: MIT
"""What two observers are to agree about: recorded.py WAY FIGURES. Sums over storages are the program's own."""

import os
import sys

import torch
from torch.utils.checkpoint import checkpoint

import figures

WIDTH, LAYERS, ROWS = 1024, 6, 64


def bytes_of(tensors, block=1):
    sizes = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values()
    return sum(-(-size // block) * block for size in sizes)


def local(tensor):
    """What this process has of a tensor that several share."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def make():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS)))


def infer(model):
    with torch.no_grad():
        for _ in range(3):
            model(torch.zeros(ROWS, WIDTH, device="cuda"))
    return {}


def train(model, forward=None):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        (forward or model)(torch.zeros(ROWS, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
    state = bytes_of(local(value) for one in optimizer.state.values() for value in one.values() if value.is_cuda)
    return {"gradients": bytes_of(local(one.grad) for one in model.parameters()), "state": state}


def recompute(model):
    def forward(x):
        x.requires_grad_()
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
        return x
    return train(model, forward)


def capture(model):
    x = torch.zeros(ROWS, WIDTH, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        graph.replay()
    torch.cuda.synchronize()
    return {}


def pooled(model):
    """Memory in a pool of the program's own, the captures of two graphs, and one of the two gone."""
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        kept = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda")]
        del kept[:]
        kept.append(torch.empty(60 << 20, dtype=torch.uint8, device="cuda"))
    graphs = []
    with torch.no_grad():
        for rows in (1 << 20, 1 << 21):
            x = torch.zeros(rows, device="cuda")
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                x + 1
    torch.cuda.synchronize()
    pools = [tuple(graph.pool()) for graph in graphs]
    del graphs[0]
    kept.append(torch.empty(200 << 20, dtype=torch.uint8, device="cuda"))
    return {"graphs": [sum(one["total_size"] for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) == pool)
                       for pool in pools], "kept": len(kept), "layers": len(model)}


def run_out(model):
    try:
        return {"held": [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(1000)]}
    except torch.OutOfMemoryError:
        return {"layers": len(model)}


def until_refused(work):
    try:
        work()
    except torch.OutOfMemoryError:
        return {"refused": True}
    return {}


def run_out_in_backward(model):
    """A gradient of the input that is larger than the device has left."""
    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.sum()

        @staticmethod
        def backward(_, gradient):
            return torch.ops.aten.expand(gradient, [1 << 33]).contiguous()

    kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(16)]
    x = torch.zeros(1, device="cuda", requires_grad=True)
    return until_refused(lambda: Greedy.apply(model(torch.zeros(ROWS, WIDTH, device="cuda")) * x).backward()) | {"kept": len(kept)}


def run_out_in_capture(model):
    def work():
        with torch.no_grad(), torch.cuda.graph(torch.cuda.CUDAGraph()):
            kept.extend(torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(1000))
    kept = []
    return until_refused(work) | {"layers": len(model)}


def run_out_in_loading(_):
    """A model whose weights are more than the device has: transformers puts them there as it loads."""
    import tempfile
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(23)]
        small = torch.cuda.mem_get_info()[0] - (30 << 20)
        kept.append(torch.empty(small, dtype=torch.uint8, device="cuda"))
        return until_refused(lambda: AutoModelForCausalLM.from_pretrained(folder, device_map="cuda:0")) | {"kept": len(kept)}


def together(work):
    """Between joining the other rank and leaving it."""
    import torch.distributed as distributed
    distributed.init_process_group("nccl")
    said = work()
    distributed.destroy_process_group()
    return said


def rank(model):
    from torch.nn.parallel import DistributedDataParallel
    return together(lambda: train(DistributedDataParallel(model)))


def shard(model):
    """FSDP: what a rank keeps of each layer is its half."""
    from torch.distributed.fsdp import fully_shard

    def work():
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        return train(model) | {"weights": bytes_of(local(one) for one in model.parameters())}
    return together(work)


def compiled(model):
    """The part of the compiler that asks for memory; its own kernels want Triton."""
    return train(model, torch.compile(model, backend="aot_eager"))


def inductor(model):
    """With kernels of the compiler's own, where Triton is there."""
    return train(model, torch.compile(model))


def llama(**more):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=4096, bos_token_id=None, eos_token_id=None, pad_token_id=0, **more)
    return LlamaForCausalLM(config).eval()


def generate(_):
    """A cache of a fixed size, so that what it takes at the peak is what it takes at the end."""
    model = llama().cuda()
    prompt = torch.ones(2, 64, dtype=torch.long, device="cuda")
    done = model.generate(prompt, max_new_tokens=16, do_sample=False, cache_implementation="static", disable_compile=True,
                          return_dict_in_generate=True)
    # Newer versions keep the length on the device too, in PyTorch's smallest block.
    held = [one for layer in done.past_key_values.layers for one in vars(layer).values() if isinstance(one, torch.Tensor) and one.is_cuda]
    return {"kv": bytes_of(held, block=512), "weights": bytes_of(model.parameters())}


def dispatch(_):
    """Accelerate puts the layers of one model on two devices."""
    from accelerate import dispatch_model
    model = llama()
    places = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 1, "lm_head": 1}
    model = dispatch_model(model, places | {f"model.layers.{i}": i // 2 for i in range(4)})
    with torch.no_grad():
        model(torch.ones(1, 32, dtype=torch.long, device="cuda:0"))
    on = [[one for one in model.parameters() if one.device.index == number] for number in (0, 1)]
    return {"each": [bytes_of(one) for one in on]}


WAYS = {"infer": infer, "train": train, "recompute": recompute, "capture": capture, "run_out": run_out, "rank": rank, "shard": shard,
        "compiled": compiled, "inductor": inductor, "generate": generate, "dispatch": dispatch, "run_out_in_backward": run_out_in_backward,
        "run_out_in_capture": run_out_in_capture, "run_out_in_loading": run_out_in_loading, "pooled": pooled}
WITHOUT = ("generate", "dispatch", "run_out_in_loading")  # that make a model of their own


def main():
    way, number = sys.argv[1], int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(number)
    model = None if way in WITHOUT else make()
    said = {"weights": bytes_of(model.parameters())} if model else {}
    said |= WAYS[way](model)
    said |= {"reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated()}
    if "LOCAL_RANK" in os.environ:
        sys.argv[-1] += f".{number}"
    figures.write(said)


if __name__ == "__main__":
    main()
