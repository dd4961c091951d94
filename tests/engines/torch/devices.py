# SPDX-License-Identifier: MIT
"""Two devices of 2 GiB: each has its own memory, runs out by itself, and grows by expandable segments where told to."""

import torch

import figures

MIB = figures.MIB


def block(mib, device=0):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=f"cuda:{device}")


def both():
    """Allocations on one device are not the other's, and a copy takes the same there."""
    torch.cuda.init()
    start = [figures.used(0), figures.used(1)]
    x = block(100, 0)
    said = {"on the first": [torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)]}
    y = x.to("cuda:1")
    said["copied"] = [torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)]
    with torch.cuda.device(1):
        z = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    said["by the current device"] = torch.cuda.memory_allocated(1)
    said["driver"] = [figures.used(0) - start[0], figures.used(1) - start[1]]
    said["peer"] = torch.cuda.can_device_access_peer(0, 1)
    said["where"] = [str(x.device), str(y.device), str(z.device)]
    small = torch.tensor([5, 6, 7], device="cuda:0").to("cuda:1")
    said["values"] = small.tolist()
    return said


def out_of_memory():
    """Fills the first device by pieces of 256 MiB; what the error says, and what is there before and after."""
    figures.settle()
    free, total = torch.cuda.mem_get_info(0)
    kept, message = [], ""
    try:
        while True:
            kept.append(block(256))
    except torch.OutOfMemoryError as error:
        message = str(error)
    said = {"free": free, "total": total, "pieces": len(kept), "message": message,
            "free then": torch.cuda.mem_get_info(0)[0], "count": torch.cuda.memory_stats(0)["num_ooms"]}
    kept[0] = None
    said["after a free"] = bool(block(256) is not None)
    kept.clear()
    figures.settle()
    said["free at last"] = torch.cuda.mem_get_info(0)[0]
    cached = block(100)
    del cached
    kept.append(block(torch.cuda.mem_get_info(0)[0] // MIB + 50))
    said["cache given up for room"] = [torch.cuda.memory_reserved(0), kept[0].numel()]
    kept.clear()
    figures.settle()
    torch.cuda.set_per_process_memory_fraction(0.25, 0)
    try:
        block(768)
        said["fraction"] = "no error"
    except torch.OutOfMemoryError as error:
        said["fraction"] = str(error)
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    return said


def grown():
    """100 MiB, freed, then 150 MiB: [reserved, driver] after each."""
    figures.settle()
    start = figures.used(0)
    said, x = [], None
    for mib in (100, 150):
        x = None
        x = block(mib)
        said.append([torch.cuda.memory_reserved(0), figures.used(0) - start])
    x = None
    figures.settle()
    said.append([torch.cuda.memory_reserved(0), figures.used(0) - start])
    return said


def pool():
    """A pool of the program's own: its segments are told apart."""
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        x = block(30)
    sizes = [one["total_size"] for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) == tuple(own.id)]
    return {"sizes": sizes, "held": x.numel()}


def main():
    said = {"both": both(), "out of memory": out_of_memory(), "by segments": grown(), "pool": pool()}
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    said["by expandable segments"] = grown()
    figures.write(said)


if __name__ == "__main__":
    main()
