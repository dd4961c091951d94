# SPDX-License-Identifier: MIT
"""Programs that end in other ways than at their last line: ends.py WAY. Each has 48 MiB of weights on a device, or its children
have."""

import multiprocessing
import os
import signal
import sys
import threading
import time

MIB = 1 << 20


def take():
    import torch
    model = torch.nn.Linear(3 * 1024, 4 * 1024, bias=False, device="cuda")
    torch.cuda.synchronize()
    return model


def fails():
    model = take()
    raise ValueError(f"a script of {sum(one.nbytes for one in model.parameters())} bytes fails")


def fails_to_import():
    """PyTorch registers what is to be done at the end, which is no more possible in a thread once the main one is done."""
    main = threading.current_thread()

    def work():
        main.join()
        take()
    threading.Thread(target=work).start()


def ends_in_a_thread():
    """The main thread is done before the other takes memory."""
    import torch
    main = threading.current_thread()

    def work():
        main.join()
        assert torch.cuda.is_available()
        take()
    threading.Thread(target=work).start()


def exits_in_a_thread():
    def work():
        take()
        os._exit(7)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def becomes_another():
    kept = take()
    if "again" not in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    del kept


def is_told(trace):
    """What it is for, and that the allocator gave it out."""
    if not os.path.exists(trace):
        return False
    with open(trace, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return any(" weights " in line for line in lines) and any(line.startswith("a ") for line in lines)


def ends_by(number):
    """Once what it has was told: of its last tenth of a second nobody knows."""
    kept = take()
    trace = os.path.join(os.environ["MEMTALLY_WATCH"], f"torch-{os.getpid()}.trace")
    while not is_told(trace):
        time.sleep(0.05)
    os.kill(os.getpid(), number)
    del kept


def is_killed():
    ends_by(signal.SIGKILL)


def aborts():
    ends_by(signal.SIGABRT)


def child(barrier):
    model = take()
    barrier.wait()
    del model


def have_children(method):
    context = multiprocessing.get_context(method)
    barrier = context.Barrier(2)
    children = [context.Process(target=child, args=(barrier,)) for _ in range(2)]
    for one in children:
        one.start()
    for one in children:
        one.join()
        assert one.exitcode == 0, one.exitcode


WAYS = {"fails": fails, "fails_to_import": fails_to_import, "ends_in_a_thread": ends_in_a_thread, "exits_in_a_thread": exits_in_a_thread, "becomes_another": becomes_another,
        "is_killed": is_killed, "aborts": aborts}

if __name__ == "__main__":
    if sys.argv[1] in WAYS:
        WAYS[sys.argv[1]]()
    else:
        have_children(sys.argv[1])
