# SPDX-License-Identifier: MIT
"""Puts the parts together once PyTorch was imported."""

import sys

from . import allocator, caches, cpu, endings, figures, graphs, peaks, phases, tensors, workspaces


class Session:
    def __init__(self, watch, trace, torch):
        self.watch = watch
        self.trace = trace
        self.torch = torch
        self.history = allocator.History(trace, torch)
        self.tensors = tensors.Holders(trace, torch, self.history)
        self.peaks = peaks.Peaks(trace, torch)
        self.graphs = graphs.Graphs(trace, torch)
        self.history.before_drain = self.peaks.tell
        self.history.end_of_pool = self.graphs.end_of

    def finish(self):
        """The process is about to end."""
        self.peaks.tell()
        if self.history.finish() or self.tensors.labels:
            self.tensors.look()
        self.tensors.caches.look()
        self.trace.flush()


def _try(trace, what, call):
    try:
        call()
    except Exception as error:
        trace.failed(what, error)


def _on_cuda(session, parts):
    """CUDA has just been initialised in this process."""
    trace, torch = session.trace, session.torch
    trace.line("v", torch.__version__)
    _try(trace, "the allocator's history", session.history.start)
    if not session.history.pool:
        _try(trace, "peaks of the allocator", session.peaks.start)
    for what, call in parts.at_cuda:
        _try(trace, what, lambda call=call: call(session.watch, trace, torch))


def start(watch, trace, parts):
    torch = sys.modules["torch"]
    session = Session(watch, trace, torch)
    sys.modules[__package__].label = session.tensors.tell_anew
    endings.before(session.finish)
    phases.history = session.history
    phases.after = session.tensors.look_after_phase
    _try(trace, "versions", lambda: phases.tell_untried(trace, "torch"))
    _try(trace, "holders of tensors", session.tensors.start)
    _try(trace, "figures", lambda: figures.start(trace, parts.at_log))
    for what, call in parts.at_torch:
        _try(trace, what, lambda call=call: call(watch, trace))
    _try(trace, "graphs", lambda: phases.wrap_graphs(trace, torch))
    _try(trace, "graphs one by one", lambda: session.graphs.start(watch))
    watch.when_imported("transformers.cache_utils", session.tensors.wrap_caches)
    for wrap in (session.tensors.caches.wrap, lambda module: session.tensors.wrap_caches(module, "Cache")):
        watch.when_any_imported(caches.is_model, wrap)
    watch.when_imported("transformers.cache_utils", session.tensors.caches.wrap)
    if session.tensors.labels:
        steps = cpu.Steps(torch, session.tensors.caches)
        _try(trace, "steps on the host", lambda: steps.start(watch))
    buffers = workspaces.Workspaces(trace, torch, session.tensors.tell_anew)
    _try(trace, "workspaces of FlashInfer", lambda: buffers.start(watch))
    queue = getattr(torch.cuda, "_lazy_call", None)
    if queue:
        queue(lambda: _try(trace, "CUDA's start", lambda: _on_cuda(session, parts)))
