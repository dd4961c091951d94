# SPDX-License-Identifier: MIT
"""Python reads this file when it starts, since `memtally run` and `memtally rehearse` put its folder on PYTHONPATH.

There it waits for PyTorch to be imported (watch.start, pretend.start); elsewhere, and where PyTorch never is, it does
nothing. What it loads has a name of its own, so that `import memtally` in the program is what it would be without
us: the package that is installed beside the program, of whatever version, or none. MEMTALLY_NO_HELPER in the environment has it do nothing either: what
it costs is the difference. The user's own sitecustomize, which this one hides, runs after it as it
would have run without us, and the path of imports is what it would have been.
"""

import os
import sys

HELPER = "_memtally_helper"


def _start():
    account = os.environ.get("MEMTALLY_REHEARSAL")
    recording = os.environ.get("MEMTALLY_WATCH")
    if not (account or recording) or os.environ.get("MEMTALLY_NO_HELPER"):
        return
    if not sys.platform.startswith("linux"):
        return
    try:
        if account:
            _load("pretend").start(account, recording)
        else:
            _load("watch").start([recording])
    except Exception:  # a run with less to tell is better than a program that does not start
        pass


def _load(name):
    """A part of our package, which goes without the package's own __init__."""
    from importlib import import_module

    if HELPER not in sys.modules:
        package = type(sys)(HELPER, "What memtally put into this program.")
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.realpath(__file__)))]
        sys.modules[HELPER] = package
    return import_module(HELPER + "." + name)


def _run_the_users_own():
    """The next sitecustomize on the path takes this one's place in sys.modules."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_run_the_users_own()
