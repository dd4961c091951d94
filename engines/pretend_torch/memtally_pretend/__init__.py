# SPDX-License-Identifier: MIT
"""What happens in a rehearsed program's Python: who allocated what, and when.

Writes torch-PID.trace into the rehearsal's folder (docs/FORMATS.md has the lines). Nothing here
may raise into the program: what fails says so once in the trace and is left alone from then on.
Modules that need PyTorch are imported when the program has imported it.
"""

import os
import sys

say = None  # tells the reader a sentence, once there is a trace


def start(account_path):
    """Watches for imports. Costs a look into a dictionary for each of them."""
    from . import bindings, endings, features, hooks, lengths, libraries, tables, trace

    _write_lines(account_path)
    endings.start()
    global say
    writer = trace.Trace(os.path.dirname(account_path))
    say = writer.say
    watch = hooks.Watch(writer)
    watch.when_imported("torch", lambda module: _start_torch(watch, writer))
    libraries.start(watch, account_path)
    lengths.start(watch)
    features.start(watch)
    for row in tables.phases():
        watch.when_imported(row.module, _phase_maker(watch, writer, row))
    sys.meta_path.insert(0, watch.finder)
    bindings.start(writer)


def _write_lines(account_path):
    """What the program prints is shown while it runs: line by line as on a terminal, although it goes to a file."""
    try:
        shown = os.stat(os.path.join(os.path.dirname(account_path), "output"))
        if os.path.samestat(os.fstat(1), shown):
            sys.stdout.reconfigure(line_buffering=True)
    except (OSError, AttributeError):
        pass


def _start_torch(watch, writer):
    from . import session

    session.start(watch, writer)


def _phase_maker(watch, writer, row):
    def wrap(module):
        from . import phases

        phases.wrap(watch, writer, module, row)

    return wrap
