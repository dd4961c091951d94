# SPDX-License-Identifier: MIT
"""Operations of PyTorch, one after another, each from an empty cache. test_torch_operations.py knows what they take."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import figures

CUDA = {"device": "cuda"}
HALF = {"device": "cuda", "dtype": torch.bfloat16}


def makers():
    """Tensors from nothing. Sizes are odd, so that rounding shows."""
    return {
        "one byte": lambda: torch.empty(1, dtype=torch.uint8, **CUDA),
        "512 bytes": lambda: torch.empty(512, dtype=torch.uint8, **CUDA),
        "513 bytes": lambda: torch.empty(513, dtype=torch.uint8, **CUDA),
        "nothing": lambda: torch.empty(0, **CUDA),
        "zeros of f64": lambda: torch.zeros(3, 5, 7, dtype=torch.float64, **CUDA),
        "ones of bool": lambda: torch.ones(1025, dtype=torch.bool, **CUDA),
        "arange": lambda: torch.arange(1000, **CUDA),
        "linspace": lambda: torch.linspace(0, 1, 999, **CUDA),
        "full": lambda: torch.full((33, 65), 7, dtype=torch.int32, **CUDA),
        "randn of bf16": lambda: torch.randn(1000, 999, **HALF),
        "randint": lambda: torch.randint(0, 9, (77, 77), **CUDA),
        "eye": lambda: torch.eye(100, **CUDA),
        "from a list": lambda: torch.tensor([1, 2, 3], **CUDA),
        "from the host": lambda: torch.zeros(1000, 500).to("cuda"),
        "complex": lambda: torch.zeros(300, dtype=torch.complex128, **CUDA),
        "float8": lambda: torch.zeros(1001, dtype=torch.float8_e4m3fn, **CUDA),
    }


def elementwise(a, h, m):
    """`a` is [1000, 999] of f32, `h` the same of bf16, `m` of bool."""
    out = torch.empty_like(a)
    return {
        "add": lambda: a + a,
        "add in place": lambda: a.add_(1),
        "broadcast": lambda: a[:, :1] + a[:1],
        "add two types": lambda: h + a,
        "compare": lambda: a < 1,
        "where": lambda: torch.where(m, a, 0.0),
        "to f32": lambda: h.float(),
        "to the same type": lambda: a.float(),
        "view": lambda: a.view(999, 1000),
        "transpose": lambda: a.t(),
        "contiguous transpose": lambda: a.t().contiguous(),
        "slice": lambda: a[100:200],
        "expand": lambda: a[:1].expand(4000, 999),
        "exp into a tensor": lambda: torch.exp(a, out=out),
        "clone": a.clone,
        "gelu": lambda: F.gelu(h),
        "silu and multiply": lambda: F.silu(h) * h,
        "dropout": lambda: F.dropout(h, 0.5),
        "softmax": lambda: h.softmax(-1),
        "softmax to f32": lambda: h.softmax(-1, dtype=torch.float32),
        "layer norm": lambda: F.layer_norm(h, (999,)),
        "copy to the host": a.cpu,
        "pinned": lambda: torch.empty(1000, 999, pin_memory=True),
    }


def moving(a, i):
    """`i` is [1000] of i64."""
    other = a.clone()
    return {
        "cat": lambda: torch.cat([a, a]),
        "stack": lambda: torch.stack([a[0]] * 3),
        "split": lambda: a.split(100),
        "chunk and clone": lambda: a.chunk(4)[0].clone(),
        "index select": lambda: a.index_select(0, i[:10]),
        "index by a tensor": lambda: a[i[:10]],
        "gather": lambda: a.gather(1, i[:999].view(1, -1)),
        "embedding": lambda: F.embedding(i, a),
        "scatter add in place": lambda: a.scatter_add_(1, i[:999].view(1, -1), other),
        "repeat": lambda: a[0].repeat(7, 3),
        "repeat interleave": lambda: a[:10].repeat_interleave(3, dim=0),
        "pad": lambda: F.pad(a, (1, 2, 3, 4)),
        "flip": lambda: a.flip(0),
        "roll": lambda: a.roll(3, 0),
        "one hot": lambda: F.one_hot(i % 9, 9),
        "lower triangle": a.tril,
        "cumulative sum": lambda: a.cumsum(1),
    }


def reducing(a, h):
    return {
        "sum of all": a.sum,
        "mean of rows": lambda: a.mean(1),
        "sum of columns": lambda: h.sum(0),
        "max of rows": lambda: a.max(1),
        "argmax": lambda: a.argmax(1),
        "deviation": lambda: a.std(1),
        "any": lambda: a.bool().any(),
        "norm": a.norm,
        "logsumexp": lambda: a.logsumexp(1),
        "sort": lambda: a.sort(1),
        "topk": lambda: a.topk(50),
        "cross entropy": lambda: F.cross_entropy(a, torch.zeros(1000, dtype=torch.long, **CUDA)),
        "multinomial": lambda: torch.multinomial(a.abs(), 4, replacement=True),
    }


def products():
    """The first product brings cuBLAS's workspace."""
    h = torch.randn(1024, 1024, **HALF)
    v = torch.randn(4, 8, 512, 64, **HALF)

    def attention(kind):
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(v, v, v, is_causal=True)

    return {
        "first product": lambda: h @ h,
        "product": lambda: h @ h,
        "product of batches": lambda: torch.bmm(h.view(4, 256, 1024), h.view(4, 1024, 256)),
        "matrix and vector": lambda: h @ h[0],
        "first linear with bias": lambda: F.linear(h, h, h[0]),
        "linear with bias": lambda: F.linear(h, h, h[0]),
        "addmm": lambda: torch.addmm(h, h, h),
        "einsum": lambda: torch.einsum("ij,kj->ik", h, h),
        "flash attention": lambda: attention(SDPBackend.FLASH_ATTENTION),
        "efficient attention": lambda: attention(SDPBackend.EFFICIENT_ATTENTION),
        "attention by products": lambda: attention(SDPBackend.MATH),
    }


def libraries(a):
    """What other libraries of CUDA compute: their results are tensors of PyTorch's, whatever they need beside."""
    im, kernel = torch.randn(2, 16, 56, 56, **CUDA), torch.randn(32, 16, 3, 3, **CUDA)
    square = a[:128, :128].contiguous()
    return {
        "convolution": lambda: F.conv2d(im, kernel, padding=1),
        "pooling": lambda: F.avg_pool2d(im, 2),
        "interpolation": lambda: F.interpolate(im, scale_factor=2),
        "batch norm": lambda: F.batch_norm(im, None, None, training=True),
        "fourier transform": lambda: torch.fft.fft(square),
        "real fourier transform": lambda: torch.fft.rfft(square),
        "cholesky": lambda: torch.linalg.cholesky_ex(square)[0],
    }


def training():
    """One step of two layers with AdamW and of one with momentum."""
    said = {}
    layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False, **CUDA) for _ in range(2)])
    x = torch.randn(256, 1024, **CUDA)
    adam = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    said["forward"], loss = figures.measure(lambda: layers(x).pow(2).mean())
    said["backward"], _ = figures.measure(loss.backward)
    del loss
    said["first step"], _ = figures.measure(adam.step)
    said["second step"], _ = figures.measure(adam.step)
    said["zero grad"], _ = figures.measure(adam.zero_grad)
    momentum = torch.optim.SGD(layers.parameters(), lr=1e-3, momentum=0.9)
    layers(x).sum().backward()
    said["step with momentum"], _ = figures.measure(momentum.step)
    return said


def segments():
    """How PyTorch's allocator cuts what it gets from the driver, by sizes asked for one after another."""
    def of(*sizes):
        return figures.measure(lambda: [torch.empty(size, dtype=torch.uint8, **CUDA) for size in sizes])[0]

    mib = figures.MIB
    return {
        "one small": of(1), "two small": of(mib, mib), "three small": of(mib, mib, mib),
        "just large": of(mib + 1), "two large": of(9 * mib, 9 * mib), "three large": of(9 * mib, 9 * mib, 9 * mib),
        "10 MiB": of(10 * mib), "a byte more": of(10 * mib + 1), "15 MiB": of(15 * mib), "100.5 MiB": of(100 * mib + mib // 2),
    }


def cache():
    """Freed memory stays reserved until it is given back, and another stream does not get it."""
    figures.settle()
    start, start_used = torch.cuda.memory_reserved(), figures.used()
    def now():
        return [torch.cuda.memory_reserved() - start, figures.used() - start_used]

    said = {}
    x = torch.empty(64 << 20, dtype=torch.uint8, **CUDA)
    said["held"] = now()
    del x
    said["freed"] = now()
    y = torch.empty(32 << 20, dtype=torch.uint8, **CUDA)
    said["used again"] = now()
    with torch.cuda.stream(torch.cuda.Stream()):
        z = torch.empty(32 << 20, dtype=torch.uint8, **CUDA)
    said["on another stream"] = now()
    del y, z
    figures.settle()
    said["given back"] = now()
    return said


def graphs():
    """Two captures that share a pool: [segments, bytes] of the pool after each, and what the driver gave."""
    layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False, **HALF) for _ in range(4)])
    x = torch.randn(512, 2048, **HALF)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        layers(x)
    torch.cuda.current_stream().wait_stream(side)
    figures.settle()
    start, pool, kept, said = figures.used(), None, [], {}
    for rows in (512, 64):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=pool):
            kept.append((graph, layers(x[:rows])))
        pool = graph.pool()
        own = [one["total_size"] for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) == tuple(pool)]
        said[str(rows)] = {"segments": len(own), "bytes": sum(own), "driver": figures.used() - start}
    for graph, _ in kept:
        graph.replay()
    torch.cuda.synchronize()
    said["replayed"] = {"driver": figures.used() - start}
    kept.clear()
    del graph
    figures.settle()
    said["given back"] = {"driver": figures.used() - start}
    return said


def values():
    """What is copied to the device and back is the same."""
    small = torch.tensor([3, 1, 4, 1, 5], **CUDA)
    return {"list": small.tolist(), "item": small[2].item(), "view": small.view(5, 1)[1:3].flatten().tolist()}


def card():
    about = torch.cuda.get_device_properties(0)
    return {"name": about.name, "capability": [about.major, about.minor], "processors": about.multi_processor_count,
            "total": about.total_memory, "asked": torch.cuda.mem_get_info(0)[1], "count": torch.cuda.device_count()}


def operations():
    """All by name. Their tensors lie in a pool of their own, so that what an operation takes starts from nothing."""
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        a, h = torch.randn(1000, 999, **CUDA), torch.randn(1000, 999, **HALF)
        m, i = torch.zeros(1000, 999, dtype=torch.bool, **CUDA), torch.zeros(1000, dtype=torch.long, **CUDA)
        return makers() | elementwise(a, h, m) | moving(a, i) | reducing(a, h) | products() | libraries(a)


def load_kernels():
    """Runs some eighty operations: the code of a kernel takes its share of the device when it first runs. Products are
    left out, whose first is measured."""
    a, h = torch.randn(1000, 999, **CUDA), torch.randn(1000, 999, **HALF)
    m, i = torch.zeros(1000, 999, dtype=torch.bool, **CUDA), torch.zeros(1000, dtype=torch.long, **CUDA)
    with torch.no_grad():
        for run in (makers() | elementwise(a, h, m) | moving(a, i) | reducing(a, h)).values():
            run()


def main():
    said = {"torch": [int(part) for part in torch.__version__.split(".")[:2]], "card": card(), "values": values(), "segments": segments(), "cache": cache(), "operations": {}}
    load_kernels()
    with torch.no_grad():
        for name, run in operations().items():
            try:
                said["operations"][name] = figures.measure(run)[0]
            except RuntimeError as problem:
                said["operations"][name] = {"error": str(problem)[:300]}
    said["training"], said["graphs"] = training(), graphs()
    said["at the end"] = {"reserved": figures.most_reserved(), "driver": figures.used()}
    figures.write(said)


if __name__ == "__main__":
    main()
