# SPDX-License-Identifier: MIT
"""Knowing when a module is imported, and wrapping functions of it."""

import functools
import importlib
import inspect
import os
import sys


OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Watch:
    """Calls what was asked for right after a module's own code has run."""

    def __init__(self, trace):
        self.trace = trace
        self.wanted = {}
        self.wanted_by_name = []  # (what says of a name whether it is wanted, call)
        self.finder = _Finder(self)

    def when_imported(self, name, call):
        if _is_ready(sys.modules.get(name)):
            self._call(sys.modules[name], [call])
        else:
            self.wanted.setdefault(name, []).append(call)

    def when_any_imported(self, is_wanted, call):
        """The same for each module whose name `is_wanted` says yes to."""
        for name, module in list(sys.modules.items()):
            if is_wanted(name) and _is_ready(module):
                self._call(module, [call])
        self.wanted_by_name.append((is_wanted, call))

    def is_wanted(self, name):
        return name in self.wanted or any(is_wanted(name) for is_wanted, _ in self.wanted_by_name)

    def imported(self, name, module):
        calls = [call for is_wanted, call in self.wanted_by_name if is_wanted(name)]
        self._call(module, self.wanted.pop(name, []) + calls)

    def _call(self, module, calls):
        for call in calls:
            try:
                call(module)
            except Exception as error:
                self.trace.failed("module " + module.__name__, error)


def _is_ready(module):
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


class _Finder:
    """Asks the finders behind it, and looks over the shoulder of the loader that they name. The
    loader stays what it is: programs look at its type."""

    def __init__(self, watch):
        self.watch = watch

    def find_spec(self, name, path=None, target=None):
        if not self.watch.is_wanted(name):
            return None
        spec = self._from_others(name, path, target)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is None:
            return spec
        watch = self.watch

        def exec_module(module):
            try:
                del spec.loader.exec_module
            except AttributeError:
                pass
            try:
                run(module)
            except BaseException as error:
                leave_out_own_frames(error)
                raise
            watch.imported(name, module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:  # a loader that is a class or has slots
            pass
        return spec

    def _from_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def invalidate_caches(self):
        pass


def find(module, path):
    """The holder of "Class.method" or "function" in a module and its last name; None if absent."""
    holder = module
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part, None)
    has = name in vars(holder) if inspect.isclass(holder) else hasattr(holder, name)
    return (holder, name) if holder is not None and has else None


def compiling(torch):
    """What says whether torch.compile() looks on. Some versions before 2.3 cannot tell."""
    return getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def plain(method):
    """A function that calls a bound method. torch.compile() looks at all that a function encloses, and knows no objects of ours."""

    def call(*args):
        return method(*args)

    return call


def leave_out_own_frames(error):
    """Takes our frames out of an exception that passes through us, which is then raised again as if it had come without us."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
        trace = trace.tb_next
    error.__traceback__ = trace


def followed(function, is_compiling, call):
    """A function after which call(result, arguments...) is made, but in compiled code. `call` is no method; see plain()."""

    def do_and_call(*args, **kwargs):
        if is_compiling():
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            leave_out_own_frames(error)
            raise
        call(result, *args, **kwargs)
        return result

    return do_and_call


def _unseen(function):
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            leave_out_own_frames(error)
            raise

    return call


def _keep_for_scripts(old, new):
    """TorchScript compiles calls of functions that it knows by the very object, such as torch.autograd.grad."""
    builtins = sys.modules.get("torch.jit._builtins")
    known = getattr(builtins, "_builtin_ops", [])
    for operator in [operator for function, operator in known if function is old]:
        known.append((new, operator))
        if getattr(builtins, "_builtin_table", None) is not None:
            builtins._builtin_table[id(new)] = operator


def replace(module, path, make, unseen=False):
    """Puts make(function) in a function's place, below classmethod and staticmethod. Returns
    whether it is there. Coroutines and generators do their work later and are left alone. Of an exception that
    comes through what is `unseen` nobody sees that it did."""
    found = find(module, path)
    if not found:
        return False
    holder, name = found
    old = inspect.getattr_static(holder, name)
    inner = old.__func__ if isinstance(old, (classmethod, staticmethod)) else old
    if inspect.iscoroutinefunction(inner) or inspect.isgeneratorfunction(inner) or not callable(inner):
        return False
    new = make(inner)
    new = functools.wraps(inner)(_unseen(new) if unseen else new)
    if isinstance(old, (classmethod, staticmethod)):
        new = type(old)(new)
    setattr(holder, name, new)
    _keep_for_scripts(old, new)
    return True


def replace_when_imported(watch, table, make):
    """The same for functions of modules, {module: paths}, each as its module is imported."""
    for name, paths in table.items():
        watch.when_imported(name, functools.partial(_replace_all, paths, make))


def _replace_all(paths, make, module):
    for path in paths:
        replace(module, path, make)


def load(name):
    """A module of ours that needs PyTorch."""
    return importlib.import_module("." + name, __package__)
