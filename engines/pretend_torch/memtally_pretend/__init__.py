# SPDX-License-Identifier: MIT
"""What happens in a rehearsed program's Python: who allocated what, and when.

Writes torch-PID.trace into the rehearsal's folder (docs/FORMATS.md has the lines). Nothing here
may raise into the program: what fails says so once in the trace and is left alone from then on.
Modules that need PyTorch are imported when the program has imported it.
"""

import os
import sys


def start(account_path):
    """Watches for imports. Costs a look into a dictionary for each of them."""
    from . import bindings, endings, features, hooks, lengths, libraries, tables, trace

    endings.start()
    writer = trace.Trace(os.path.dirname(account_path))
    watch = hooks.Watch(writer)
    watch.when_imported("torch", lambda module: _start_torch(watch, writer))
    libraries.start(watch, account_path)
    lengths.start(watch)
    features.start(watch)
    for row in tables.phases():
        watch.when_imported(row.module, _phase_maker(watch, writer, row))
    sys.meta_path.insert(0, watch.finder)
    bindings.start(writer)


def _start_torch(watch, writer):
    from . import session

    session.start(watch, writer)


def _phase_maker(watch, writer, row):
    def wrap(module):
        from . import phases

        phases.wrap(watch, writer, module, row)

    return wrap
