# SPDX-License-Identifier: MIT
"""Processes that share a device: a tensor that is sent is there once, and what ends gives its share back, however it
ends. Children fork before CUDA is used, as it asks for."""

import os
import signal
import time

import torch
import torch.multiprocessing as multiprocessing

import figures

MIB = figures.MIB
PATIENCE = 300  # seconds that parent and child wait for each other


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def child_of_context(child):
    """Takes a context and nothing else, then waits."""
    torch.cuda.init()
    torch.cuda.synchronize()
    child.box.put("there")
    child.go.wait()


def child_of_tensor(child):
    """Opens the tensor that it is sent, then waits."""
    torch.cuda.init()
    torch.cuda.synchronize()
    child.box.put("there")
    try:
        tensor = child.sent.get()
        child.box.put([tensor.numel(), torch.cuda.memory_allocated()])
    except RuntimeError as error:
        tensor = None
        child.box.put(str(error)[:200])
    child.go.wait()
    del tensor


def child_that_ends(how, child):
    """Takes 512 MiB and ends as told."""
    held = block(512)
    child.box.put(held.numel())
    child.go.wait()
    if how == "abort":
        os.abort()
    if how == "exit":
        os._exit(3)
    time.sleep(600)


class Child:
    """A child and what is said to it."""

    def __init__(self, context, target, *arguments):
        self.box, self.go = context.Queue(), context.Event()
        self.sent = context.SimpleQueue()
        self.process = context.Process(target=target, args=(*arguments, self), daemon=True)
        self.process.start()

    def end(self, is_killed=False):
        if is_killed:
            os.kill(self.process.pid, signal.SIGKILL)
        else:
            self.go.set()
        self.process.join(PATIENCE)
        return self.process.exitcode


def settled(at_most):
    """What the driver says, once that is `at_most` and stays so: who ends does not wait for who keeps count."""
    last = figures.used()
    for _ in range(100):
        time.sleep(0.1)
        now = figures.used()
        if now == last and now <= at_most:
            break
        last = now
    return last


def sent(plain, sharing):
    """A tensor that another process opens: what there is more, once it is made and once it is opened."""
    before = figures.used()
    tensor = block(256)
    said = {"made": figures.used() - before}
    try:
        sharing.sent.put(tensor)
        said["opened"] = sharing.box.get(timeout=PATIENCE)
    except RuntimeError as error:
        said["opened"] = str(error)[:200]
        sharing.process.kill()
    said["shared"] = figures.used() - before
    said["codes"] = [plain.end(), sharing.end()]
    del tensor
    figures.settle()
    return said


def endings(children):
    """How each child ends, and what there is less for it."""
    said = {}
    for how, child in children.items():
        before = figures.used()
        code = child.end(is_killed=how == "kill")
        said[how] = {"code": code, "given back": before - settled(before - 512 * MIB)}
    return said


def forked():
    """A child of a process that has used CUDA: PyTorch refuses there, and the parent keeps what it has."""
    held = block(64)
    before = figures.used()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            block(1)
            os.write(writer, b"allocated")
        except RuntimeError as error:
            os.write(writer, str(error)[:200].encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    words = os.read(reader, 1000).decode()
    time.sleep(0.2)  # for who would take a child's end for its parent's
    return {"words": words, "before": before, "after": figures.used(), "held": held.numel()}


def main():
    context = multiprocessing.get_context("fork")
    plain, sharing = Child(context, child_of_context), Child(context, child_of_tensor)
    doomed = {how: Child(context, child_that_ends, how) for how in ("exit", "abort", "kill")}
    block(1)
    figures.settle()
    for child in (plain, sharing):
        child.box.get(timeout=PATIENCE)
    said = {"taken": [child.box.get(timeout=PATIENCE) for child in doomed.values()]}
    said["all"], said["own of all"] = figures.used(), torch.cuda.memory_reserved()
    said["endings"] = endings(doomed)
    said["sent"] = sent(plain, sharing)
    said["alone"] = settled(said["all"] - 3 * 512 * MIB)
    said["own"] = torch.cuda.memory_reserved()
    said["forked"] = forked()
    figures.write(said)


if __name__ == "__main__":
    main()
