# SPDX-License-Identifier: MIT
"""PyTorch on the driver's stream-ordered pool, which it is told to use by PYTORCH_CUDA_ALLOC_CONF."""

import torch

import figures


def main():
    torch.empty(1, device="cuda")
    figures.settle()
    start = figures.used()
    x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    said = {"backend": torch.cuda.get_allocator_backend(), "held": figures.used() - start,
            "allocated": torch.cuda.memory_allocated()}
    del x
    torch.cuda.synchronize()
    said["freed"] = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    said["given back"] = figures.used() - start
    said["free"] = torch.cuda.mem_get_info()[0]
    kept = []
    try:
        while True:
            kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        said["message"] = str(error)
    said["pieces"] = len(kept)
    figures.write(said)


if __name__ == "__main__":
    main()
