# SPDX-License-Identifier: MIT
"""Operations whose sizes come from values, on a device and on the host: shapes, and the values of integers. Before each
of them freed memory of the device is full of sevens, so that what nobody computed shows."""

import torch
import torch.nn.functional as F

import figures

LARGE = 60000


def numbers(n):
    """Tensors of the host: integers, masks, and few floats."""
    made = torch.Generator().manual_seed(1)
    return {
        "i": torch.randint(0, 10, (n,), generator=made),
        "rows": torch.randint(0, 5, (n // 6, 6), generator=made),
        "mask": torch.rand(n, generator=made) < 0.3,
        "lengths": torch.randint(1, 7, (20,), generator=made),
        "places": torch.randint(0, 12, (2, n), generator=made),
        "f": torch.randn(60, generator=made),
        "wide": torch.randn(n, 4, generator=made),
    }


def routed(t, n_experts=8, n_each=2):
    """As models of experts do: who goes where, and how many there are of each."""
    ids = torch.arange(len(t["i"]) * n_each, device=t["i"].device).view(-1, n_each) % n_experts
    mask = F.one_hot(ids, n_experts).permute(2, 1, 0)
    hit = (mask.sum(dim=(-1, -2)) > 0).nonzero()
    counts = torch.bincount(ids.flatten(), minlength=n_experts)
    return [counts, counts.cumsum(0), hit, [torch.where(mask[int(one)])[1] for one in hit]]


def coo(t, values):
    return torch.sparse_coo_tensor(t["places"], values, (12, 12, *values.shape[1:]))


def scattered(t):
    """A mask in place of indices, once with a value and once with as many as it has places."""
    made = t["i"].clone()
    made[t["mask"]] = 11
    made[t["mask"]] = t["i"][t["mask"]] + 1
    return made


OPERATIONS = {
    "nonzero": lambda t: t["rows"].nonzero(),
    "masked select": lambda t: t["i"].masked_select(t["mask"]),
    "a mask as index": lambda t: [t["i"][t["mask"]], t["wide"][t["mask"]]],
    "a mask to be filled": scattered,
    "unique": lambda t: torch.unique(t["i"], return_inverse=True, return_counts=True),
    "unique rows": lambda t: torch.unique(t["rows"], dim=0),
    "unique in a row": lambda t: torch.unique_consecutive(t["i"], return_counts=True),
    "repeated": lambda t: t["wide"][:20].repeat_interleave(t["lengths"], dim=0),
    "counted": lambda t: torch.bincount(t["i"]),
    "sums up": lambda t: t["i"].cumsum(0),
    "sorted": lambda t: t["i"].sort(stable=True),
    "searched": lambda t: torch.searchsorted(torch.arange(0, 10, 2, device=t["i"].device), t["i"]),
    "most frequent": lambda t: t["i"].mode()[0],
    "equal": lambda t: [torch.equal(t["i"], t["i"].clone()), torch.equal(t["i"], t["i"] + 1)],
    "in documents": lambda t: torch.repeat_interleave(torch.arange(20, device=t["i"].device), t["lengths"]),
    "experts": routed,
    "a sparse sum": lambda t: coo(t, t["i"]).coalesce().values(),
    "sparse places": lambda t: coo(t, t["wide"]).coalesce().indices(),
    "sparse wide values": lambda t: coo(t, t["wide"]).coalesce().values(),
    "made sparse": lambda t: t["rows"].to_sparse().indices(),
    "rows of few floats": lambda t: [t["f"].view(10, 6).relu().to_sparse_csr().crow_indices()],
    "two sparse ones": lambda t: (coo(t, t["i"]) + coo(t, t["i"])).coalesce().indices(),
    "a sparse gradient": lambda t: sparse_gradient(t).coalesce().indices(),
}


def sparse_gradient(t):
    table = t["wide"].clone().requires_grad_()
    F.embedding(t["i"], table, sparse=True).sum().backward()
    return table.grad


# What a device alone has.
ON_THE_DEVICE = {
    "eigenvalues": lambda t: torch.linalg.eig(t["f"][:36].view(6, 6)),
    "inverse": lambda t: torch.linalg.inv(torch.stack([t["wide"][:4]] * 3)),
    "least squares": lambda t: torch.linalg.lstsq(t["wide"][:8], t["wide"][:8])[0],
    "singular values": lambda t: torch.linalg.svd(t["wide"][:8])[1],
    "few are positive": lambda t: (t["wide"] > 0).nonzero(),
    "positive ones": lambda t: t["wide"][t["wide"] > 0],
    "positive ones are set": lambda t: t["wide"].index_put((t["wide"] > 0,), t["wide"].flatten()[:5]),
    "different floats": lambda t: torch.unique(t["wide"]),
    "a loss": lambda t: t["wide"].pow(2).mean().item(),
    "labels of known lengths": lambda t: labelled(t["wide"].device),
    "compiled": lambda t: torch._C._dynamo.guards._empty_strided_cuda((8,), (1,), torch.int64),
}


def labelled(device):
    """Lengths lie on the host, as speech models have them."""
    scores = torch.zeros(50, 4, 20, device=device).log_softmax(2).requires_grad_()
    labels = torch.ones(4, 10, dtype=torch.int64, device=device)
    F.ctc_loss(scores, labels, torch.full((4,), 50), torch.full((4,), 10)).backward()
    return scores.grad


def decisions():
    """Whether a mask hides nothing, as transformers asks: of 40 x 8000 tokens, more than a MiB of integers. Of
    those of four bytes so many are not followed, since weights are such."""
    import inspect

    from transformers.masking_utils import _ignore_causal_mask_sdpa as hides_nothing

    known = {"query_length": 8000, "q_length": 8000, "kv_length": 8000, "kv_offset": 0, "q_offset": 0}
    known = {name: value for name, value in known.items() if name in inspect.signature(hides_nothing).parameters}
    whole = torch.ones(40, 8000, dtype=torch.int64)
    padded = whole.clone()
    padded[-1, 0] = 0
    masks = {"whole": whole, "padded": padded, "of int32": whole.int(), "of bool": whole.bool(), "padded of bool": padded.bool()}
    said = {name: bool(hides_nothing(mask.to("cuda"), **known)) for name, mask in masks.items()}
    said["of tokens"] = bool(hides_nothing((whole * 5).to("cuda") != 0, **known))
    return said


def litter():
    """Freed memory of all small sizes that is full of sevens."""
    held = [torch.full((n,), 7, dtype=torch.int64, device="cuda") for n in (1, 64, 128, 1000, 8000, 60000) for _ in range(3)]
    held.clear()


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_floating_point() or value.is_complex():
        return list(value.shape)
    return [list(value.shape), value.tolist()]


def done(operations, on_host, device):
    said = {}
    for name, operation in operations.items():
        t = {key: value.to(device) for key, value in on_host.items()}
        if device == "cuda":
            litter()
        try:
            said[name] = plain(operation(t))
        except (RuntimeError, TypeError) as error:
            said[name] = str(error)
    return said


def main():
    torch.zeros(1, device="cuda")
    said = {}
    for size, n in (("small", 60), ("large", LARGE)):
        on_host = numbers(n)
        host, device = done(OPERATIONS, on_host, "cpu"), done(OPERATIONS, on_host, "cuda")
        said[size] = {name: {"same": host[name] == device[name], "host": str(host[name])[:200], "device": str(device[name])[:200]}
                      for name in OPERATIONS}
    said["device"] = done(ON_THE_DEVICE, numbers(LARGE), "cuda")
    said["decisions"] = decisions()
    figures.write(said)


if __name__ == "__main__":
    main()
