# SPDX-License-Identifier: MIT
"""The most that was held on two devices: on the first one 1 GiB is gone before the last of what stays is made, on the
second one the program starts PyTorch's count anew."""

import torch

import figures


def most(device):
    return [torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)]


def come_and_go():
    layer = torch.nn.Linear(4096, 4096, bias=False).cuda(0)
    passing = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
    del passing
    # The last of these is in a segment of its own, which is when most is taken from the driver.
    layer.register_buffer("within", torch.zeros(64 * figures.MIB, dtype=torch.uint8, device="cuda:0"))
    layer.register_buffer("late", torch.zeros(1000, device="cuda:0"))
    return layer


def count_anew():
    passing = torch.empty(300 * figures.MIB, dtype=torch.uint8, device="cuda:1")
    del passing
    before = most(1)
    torch.cuda.reset_peak_memory_stats(1)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(1)
    passing = torch.empty(100 * figures.MIB, dtype=torch.uint8, device="cuda:1")
    return before, most(1), passing


def main():
    layer = come_and_go()
    before, after, passing = count_anew()
    figures.write({"first": most(0), "before": before, "after": after})
    del layer, passing


if __name__ == "__main__":
    main()
