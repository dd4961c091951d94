# SPDX-License-Identifier: MIT
"""One of two processes of torchrun, each with a device: what integers, bytes and objects each collective brings it."""

import os
import sys

import torch
import torch.distributed as dist

import figures

PARTS = [[1, 2], [3, 4]]  # what each rank sends to each


def integers(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype, device="cuda")


def room(n, dtype=torch.int64):
    return torch.full((n,), -1 if dtype.is_signed else 99, dtype=dtype, device="cuda")


def brought(out, collective, *args, **kwargs):
    collective(out, *args, **kwargs)
    return out.tolist()


def reduced(rank):
    """What comes of 7 and 250 on the first, of 9 and -3 on the second."""
    own = integers(*((7, 250) if rank == 0 else (9, -3)))
    said = {str(op).rsplit(".", 1)[-1].rsplit("_")[-1]: brought(own.clone(), dist.all_reduce, op=op)
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX, dist.ReduceOp.MIN)}
    said["bytes"] = brought(integers(*((200, 3) if rank == 0 else (100, 5)), dtype=torch.uint8), dist.all_reduce)
    said["greatest byte"] = brought(integers(200 if rank == 0 else 100, dtype=torch.uint8), dist.all_reduce,
                                    op=dist.ReduceOp.MAX)
    said["any"] = brought(integers(rank == 1, dtype=torch.bool), dist.all_reduce, op=dist.ReduceOp.MAX)
    said["to the second"] = brought(own.clone(), dist.reduce, dst=1)
    said["scattered"] = brought(room(2), dist.reduce_scatter_tensor, integers(*range(10 * rank, 10 * rank + 4)))
    return said


def gathered(rank):
    said = {"in a row": brought(room(4), dist.all_gather_into_tensor, integers(rank, rank + 5))}
    parts = [room(2), room(2)]
    dist.all_gather(parts, integers(rank, -rank, dtype=torch.int64))
    said["in a list"] = [part.tolist() for part in parts]
    parts = [room(2), room(2)] if rank == 1 else None
    dist.gather(integers(rank, 8), parts, dst=1)
    said["by the second"] = parts and [part.tolist() for part in parts]
    part = room(2)
    dist.scatter(part, [integers(4, 5), integers(6, 7)] if rank == 1 else None, src=1)
    said["of the second"] = part.tolist()
    said["broadcast"] = brought(integers(rank, 3 * rank + 1, dtype=torch.int32), dist.broadcast, src=1)
    return said


def swapped(rank):
    """As experts are told apart: counts first, then what was counted."""
    counts = integers(*PARTS[rank])
    theirs = room(2)
    dist.all_to_all_single(theirs, counts)
    tokens = integers(*range(100 * rank, 100 * rank + sum(PARTS[rank])))
    got = room(int(theirs.sum()))
    dist.all_to_all_single(got, tokens, theirs.tolist(), counts.tolist())
    wide = torch.empty(sum(theirs.tolist()), 1024, device="cuda")
    dist.all_to_all_single(wide, torch.empty(sum(PARTS[rank]), 1024, device="cuda"), theirs.tolist(), counts.tolist())
    parts = [room(1), room(1)]
    dist.all_to_all(parts, [integers(rank), integers(rank + 10)])
    return {"counts": theirs.tolist(), "tokens": got.tolist(), "wide": list(wide.shape),
            "parts": [part.tolist() for part in parts]}


def sent(rank):
    """The first sends twice; then both send and receive at once."""
    other = 1 - rank
    said = {}
    if rank == 0:
        dist.send(integers(5, 6), 1)
        dist.send(integers(7, dtype=torch.uint8), 1)
    else:
        first, second = room(2), room(1, torch.uint8)
        dist.recv(first, 0)
        dist.recv(second, 0)
        said["in turn"] = [first.tolist(), second.tolist()]
    there = room(2)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, there, other),
                                        dist.P2POp(dist.isend, integers(rank, rank + 20), other)]):
        work.wait()
    said["at once"] = there.tolist()
    return said


def objects(rank):
    own = {"rank": rank, "text": "x" * (1000 + rank)}
    all_of, lists = [None, None], [[own], [None]]
    dist.all_gather_object(all_of, own)
    shared = lists[0] if rank == 0 else lists[1]
    dist.broadcast_object_list(shared, src=0)
    large = [b"y" * 3_000_000 if rank == 0 else None]
    dist.broadcast_object_list(large, src=0)
    post = [own if rank == 0 else None]
    if rank == 0:
        dist.send_object_list(post, dst=1)
    else:
        dist.recv_object_list(post, src=0)
    return {"all": [[one["rank"], len(one["text"])] for one in all_of], "broadcast": shared[0]["rank"],
            "large": len(large[0]), "sent": post[0]["rank"]}


def pieces(rank):
    """Half a MiB, and a little: more than the driver copies at once."""
    n = 70_001
    own = torch.arange(n, dtype=torch.int64, device="cuda") + rank
    total = own.clone()
    dist.all_reduce(total)
    both = room(2 * n)
    dist.all_gather_into_tensor(both, own)
    there = room(n)
    dist.all_to_all_single(there, own, [n - 1, 1] if rank == 0 else [1, n - 1], [n - 1, 1] if rank == 0 else [1, n - 1])
    return {"sum": [int(total[0]), int(total[-1])], "both": [int(both[n - 1]), int(both[n]), int(both[-1])],
            "swapped": [int(there[0]), int(there[-1])]}


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    said = {}
    for of in (reduced, gathered, swapped, sent, objects, pieces):
        said[of.__name__] = of(rank)
    sys.argv[-1] += f".{rank}"
    figures.write(said)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
