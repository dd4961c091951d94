# SPDX-License-Identifier: MIT
"""Sparse tensors whose number of values is counted on the device: they are made on the host.

What decides the number are the places of values, or the values of a dense tensor that becomes
sparse. Where these are known (integers.py) the operation is done on the host alone, and its result
is put on the device; what a true device takes beside for a while is then not counted.
"""

# Their result has as many values as a device counts.
COUNTED = {"_coalesce", "sparse_mask", "_sparse_mask_projection", "_sparse_sparse_matmul", "_sparse_sum"}
COUNTED_IF_ALL_ARE_SPARSE = {"mm", "addmm", "mul", "add", "sub"}
NOTE = "Sparse tensors were counted on the host; what a device needs beside for a while is not in the figures."


def made_on_host(results, func, kind, inputs, args, kwargs):
    """The result on the device; None where the device's own operation is to run."""
    is_counted = kind.name in COUNTED or kind.name.startswith("_to_sparse")
    is_counted |= kind.name in COUNTED_IF_ALL_ARE_SPARSE and all(map(_is_sparse, inputs))
    if kind.is_view or not is_counted or not any(one.is_cuda for one in inputs) or results.is_capturing():
        return None
    if not all(_is_placed(results, one) for one in inputs):
        results.flag_counted()
        return None
    dense = inputs[0].shape[inputs[0].sparse_dim():] if kind.name == "_coalesce" else ()
    if not dense and sum(_value_bytes(one) for one in inputs) > results.most_bytes:
        return None
    there = {key: _on_host(results, value, ()) for key, value in kwargs.items()}
    result = func(*[_on_host(results, value, dense) for value in args], **there)
    if result.layout is results.torch.strided:
        return None  # the device's own operation reads no count
    results.trace.say(NOTE)
    return _to_device(results, result, inputs[0].device, dense)


def follow(results, inputs, outs):
    """After the device's own operation: places that are as many as before are those of before; others are zeros."""
    known = [part for one in inputs if _is_sparse(one) for part in _parts(one)[0] if results.has_values(part)]
    for out in outs:
        if not out.is_cuda:
            continue
        for part in _parts(out)[0] if _is_sparse(out) else [out]:
            if not results.is_integers(part) or not part.numel():
                continue
            same = [one for one in known if one.shape == part.shape and one.dtype == part.dtype] if _is_sparse(out) else []
            here = results.on_host(same[0]) if same else results.torch.zeros(part.shape, dtype=part.dtype)
            results.store(part, here, 0 if same else 2)


def _parts(tensor):
    """What says where the values of a sparse tensor are, and the values."""
    name = str(tensor.layout)
    if name == "torch.sparse_coo":
        return [tensor._indices()], tensor._values()
    if name in ("torch.sparse_csr", "torch.sparse_bsr"):
        return [tensor.crow_indices(), tensor.col_indices()], tensor.values()
    return [tensor.ccol_indices(), tensor.row_indices()], tensor.values()


def _is_sparse(tensor):
    return str(tensor.layout).startswith("torch.sparse")


def _is_placed(results, tensor):
    if not _is_sparse(tensor):
        return results.has_values(tensor)
    return all(results.has_values(part) for part in _parts(tensor)[0])


def _value_bytes(tensor):
    values = _parts(tensor)[1] if _is_sparse(tensor) else tensor
    return values.numel() * values.element_size()


def _on_host(results, value, dense):
    """The same on the host; values that no kernel computed are ones, and parts of size `dense` are of one number."""
    torch = results.torch
    if isinstance(value, (list, tuple)):
        return type(value)(_on_host(results, part, dense) for part in value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, torch.Tensor):
        return value
    if not _is_sparse(value):
        return results.on_host(value)
    places, values = _parts(value)
    places = [results.on_host(part) for part in places]
    shape = value.shape
    if dense:
        values = torch.ones(values.shape[:1] + (1,) * len(dense), dtype=values.dtype)
        shape = shape[: value.sparse_dim()] + (1,) * len(dense)
    else:
        values = results.on_host(values) if results.has_values(values) else torch.ones(values.shape, dtype=values.dtype)
    return _joined(torch, value, places, values, shape)


def _joined(torch, like, places, values, shape):
    if like.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(places[0], values, shape, is_coalesced=like.is_coalesced(), check_invariants=False)
    return torch.sparse_compressed_tensor(*places, values, shape, layout=like.layout, check_invariants=False)


def _to_device(results, result, device, dense):
    torch = results.torch
    places, values = _parts(result)
    places = [results.to_device(part, device) for part in places]
    shape = result.shape
    if dense:
        shape = shape[: result.sparse_dim()] + tuple(dense)
        values = torch.empty(values.shape[:1] + tuple(dense), dtype=values.dtype, device=device)
    elif values.dtype.is_floating_point or values.dtype.is_complex:
        values = torch.empty(values.shape, dtype=values.dtype, device=device)
    else:
        values = results.to_device(values, device)
    return _joined(torch, result, places, values, shape)
