# SPDX-License-Identifier: MIT
"""What stands in, within a rehearsed program's Python, for what a pretended GPU does not do; `watch` tells what happens."""

import os
import sys


def start(account_path, recording=None):
    from .. import watch
    from . import bindings

    _write_lines(account_path)
    folders = [os.path.dirname(account_path)] + ([recording] if recording else [])
    writer = watch.start(folders, lambda imports, trace, parts: _prepare(imports, parts, account_path))
    bindings.start(writer)


def _prepare(imports, parts, account_path):
    from . import features, lengths, libraries

    libraries.start(imports, account_path)
    lengths.start(imports)
    features.start(imports)
    parts.at_log.append(features.look)
    parts.at_torch.append(("what stands in", _start_torch))
    parts.at_cuda.append(("small results", _start_cuda))


def _start_torch(imports, trace):
    from . import buckets, kernels, tuners

    for name, module in (("autotuners", tuners), ("buckets", buckets), ("kernels", kernels)):
        try:
            module.start(imports, trace)
        except Exception as error:
            trace.failed(name, error)


def _start_cuda(imports, trace, torch):
    """Engines that bring their own scheduler decide on the host; small results are not computed for them."""
    if any(name in sys.modules for name in ("vllm", "sglang")) or os.environ.get("MEMTALLY_NO_SMALL_RESULTS"):
        return
    from . import integers

    integers.start(imports, trace, torch)
    imports.when_imported("torch._dynamo.trace_rules", integers.hide_from_compiler)


def _write_lines(account_path):
    """What the program prints is shown while it runs: line by line as on a terminal, although it goes to a file."""
    try:
        shown = os.stat(os.path.join(os.path.dirname(account_path), "output"))
        if os.path.samestat(os.fstat(1), shown):
            sys.stdout.reconfigure(line_buffering=True)
    except (OSError, AttributeError):
        pass
