# SPDX-License-Identifier: MIT
"""Small integer and boolean results, computed on the host.

Kernels do nothing in a rehearsal, but a program's loops and sizes may hang on a few small
integers: lengths, masks, whether all sequences have ended. A device's memory is memory of this
process there, so that an operation on such tensors is done a second time on the host, on the same
bytes. What comes from numbers that no kernel computed is assumed: a token that the model would
choose is number 3, experts are taken in turn, nothing is infinite. Where a value that was assumed
without reason decides a size or a branch, the trace says so and where. What else an operation reads
from the device while it runs, its own counts, is zeros, never what was there before.

It is a dispatch mode on the thread that starts CUDA and on those that start later. Engines that bring their own scheduler (vLLM,
SGLang) decide on the host already; there it stays off. What a graph captures is computed when it is replayed (replays.py).
"""

import ctypes
import os
import sys
import threading

from ..watch import hooks

from . import collectives, replays, sparse

MOST_BYTES = 1 << 20  # of a tensor's storage
MOST_DERIVED_BYTES = 256 << 20  # of integers that were computed here: who goes to which expert
MOST_MASK_BYTES = 64 << 20  # of masks: they seldom decide a size
MOST_FLOATS = 4096  # elements of a float that is computed too, where all that it hangs on is known
MOST_COPIED_BYTES = 64 << 10  # of a float that comes from the host
TOKEN = 3  # no tokenizer ends a sequence with it
CHOICES = {"topk", "argmax", "argmin", "multinomial"}
LEAST_VOCABULARY = 1024  # the best of more are tokens; of fewer, experts
KNOWN, ASSUMED, UNKNOWN = 0, 1, 2  # ASSUMED: any value would do as well
NOT_HIDDEN, HIDDEN, HIDDEN_BUT_TRUE = 0, 1, 2  # what the driver copies from a device; a byte alone is an answer
FLAG = "sizes here came from device values"
# What is made of values that no kernel computed, and which side that is on.
COUNTED = "what no kernel computed counts as none there, so that a run may take more"
READ = "no kernel computed them, so that a run may take more or less"
DECIDED = "the answer that no kernel computed is taken to be no, so that a run may take more or less"
MASKED = "whether a mask hides nothing is taken to be no, so that attention makes all of its mask: a run may take less"
MASKING = {"_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"}  # of transformers
BEAMS = "Tokens that score best were assumed, so that a search in beams goes on to its full length."

# What they make does not hang on what is in their input.
FILLS = {
    "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zeros", "ones", "full", "arange",
    "zero_", "fill_", "scalar_tensor", "eye", "linspace", "tril_indices", "triu_indices",
}
ZEROS = {"zeros", "zero_", "zeros_like", "new_zeros"}
# What their result has room for hangs on it, or it is no tensor.
SIZED = {
    "nonzero", "masked_select", "_unique2", "_unique", "unique_dim", "unique_consecutive", "repeat_interleave",
    "bincount", "nonzero_numpy", "argwhere", "equal", "mode",
}
# They take masks in place of indices.
INDEXING = {"index", "_unsafe_index"}
PUTTING = {"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
# What a program reads.
READS = {"_local_scalar_dense", "is_nonzero", "_to_copy", "copy_", "item", "allclose"}
# They read their arguments on the host.
READERS = {"_ctc_loss", "_use_cudnn_ctc_loss", "_cudnn_ctc_loss"}
# They go on if a check says that all their numbers are finite.
CHECKED = {"linalg_eig", "linalg_eigvals", "_linalg_eigvals"}
WHOLE = {"zero_", "fill_", "copy_"}


_kept = []  # PyTorch's stack of modes borrows them


class Unreachable(Exception):
    """A device that is not pretended."""


class Kind:
    """What there is to know of an operation."""

    __slots__ = ("name", "is_ours", "is_random", "is_fill", "is_sized", "is_read", "is_masked", "is_put", "is_c10d",
                 "is_collective", "is_view", "hides")

    def __init__(self, func, torch):
        space, _, name = func._schema.name.partition("::")
        tags = getattr(func, "tags", ())
        self.name = name
        self.is_ours = space in ("aten", "prims")
        self.is_c10d = space == "c10d"
        self.is_collective = space in collectives.SPACES
        self.is_random = getattr(torch.Tag, "nondeterministic_seeded", None) in tags
        self.is_fill = name in FILLS
        self.is_sized = name in SIZED
        self.is_read = name in READS
        self.is_put = name in PUTTING
        self.is_masked = self.is_put or name in INDEXING
        self.is_view = any(out.alias_info and not out.alias_info.is_write for out in func._schema.returns)
        self.hides = HIDDEN_BUT_TRUE if name in CHECKED else HIDDEN
        if self.is_read or name in READERS or not self.is_ours:
            self.hides = NOT_HIDDEN


def start(watch, trace, torch):
    """Turns it on; it goes off again at the first tensor of a device where it cannot be."""
    kind = make(trace, torch)
    enter(kind)
    hooks.replace(threading.Thread, "_bootstrap_inner", lambda run: followed(run, kind))
    kind.results.replays.start()
    hooks.replace(torch, "ctc_loss", without_mode)
    watch.when_imported("torch.distributed.distributed_c10d", lambda module: collectives.follow_objects(module, kind.results))
    hooks.replace(torch._C, "_dynamo.guards._empty_strided_cuda", kind.results.emptied)


def enter(kind):
    mode = kind()
    _kept.append(mode)
    mode.__enter__()
    return mode


def followed(run, kind):
    """A program may generate in one thread what it sends from another."""

    def run_in_mode(thread):
        if not kind.results.is_on:
            return run(thread)
        mode = enter(kind)
        try:
            return run(thread)
        finally:
            mode.__exit__(None, None, None)
            _kept.remove(mode)

    return run_in_mode


def without_mode(function):
    """PyTorch moves lengths to the device where it sees a mode."""
    from torch.utils._python_dispatch import _disable_current_modes

    def call(*args, **kwargs):
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def hide_from_compiler(rules):
    """torch.compile would compile what runs here, too; `rules` is torch._dynamo.trace_rules."""
    rules.SKIP_DIRS.append(os.path.abspath(__file__))
    rules._recompile_re()


def can_reach(address, size):
    """Whether a device's memory is memory of this process: the kernel is asked, which answers with
    an error where there is none. No memory of the device is taken to find out."""
    size = min(size, 16)
    values = (ctypes.c_char * size)()
    local = (ctypes.c_size_t * 2)(ctypes.addressof(values), size)
    remote = (ctypes.c_size_t * 2)(address, size)
    return ctypes.CDLL(None).process_vm_readv(os.getpid(), local, 1, remote, 1, 0) == size


def driver_calls():
    """Functions of the pretended driver: hiding what it would copy from a device, saying that bytes were stored there,
    and setting bytes."""
    library = ctypes.PyDLL(None)
    try:
        calls = library.pretend_cuda_hide, library.pretend_cuda_wrote, library.cuMemsetD8_v2
    except AttributeError:
        return (lambda *_: None,) * 3
    calls[1].argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    calls[2].argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t]
    return calls


def make(trace, torch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class SmallResults(TorchDispatchMode):
        results = Results(trace, torch)

        @classmethod
        def is_infra_mode(cls):
            return True

        @classmethod
        def ignore_compile_internals(cls):
            return True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return self.results.call(func, args, kwargs or {})

    return SmallResults


class Results:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.is_on = True
        self.is_reached = False
        self.kinds = {}
        # Address of a storage: which one it is, KNOWN …, and whether it was computed here; another one there is UNKNOWN.
        self.taints = {}
        self.lent = {}  # while a graph is replayed, storages that stand for those of the program: the same of each
        self.replays = replays.Replays(self, torch)
        self.most_host_bytes = MOST_BYTES
        self.collectives = collectives.Collectives(self)
        self.hide, self.wrote, self.set_bytes = driver_calls()
        self.weak_reference = torch.multiprocessing.reductions.StorageWeakRef
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.is_capturing = torch.cuda.is_current_stream_capturing

    def call(self, func, args, kwargs):
        if not self.is_on:
            return func(*args, **kwargs)
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = Kind(func, self.torch)
        inputs = self._tensors(args, [])
        self._tensors(kwargs.values(), inputs)
        if inputs and not any(tensor.is_cuda for tensor in inputs):
            if not self._goes_to_cuda(kwargs):
                return func(*args, **kwargs)
        if not inputs and not self._goes_to_cuda(kwargs):
            return func(*args, **kwargs)
        if self.collectives.awaited:
            self.collectives.settle(kind)
        if kind.is_collective:
            return self.collectives.call(func, kind, args, kwargs)
        if any(type(tensor) not in self.plain or tensor.is_nested for tensor in inputs):
            return func(*args, **kwargs)
        if any(tensor.layout is not self.torch.strided for tensor in inputs) or kind.name.startswith("_to_sparse"):
            return self._run_sparse(func, kind, inputs, args, kwargs)
        return self._run(func, kind, inputs, args, kwargs)

    def _tensors(self, values, found):
        tensor_type = self.torch.Tensor
        for value in values:
            if isinstance(value, tensor_type):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                self._tensors(value, found)
        return found

    def _goes_to_cuda(self, kwargs):
        device = kwargs.get("device")
        return device is not None and "cuda" in str(device)

    def _run(self, func, kind, inputs, args, kwargs):
        before = None
        try:
            if kind.is_sized or (kind.is_masked and self._has_mask(args)):
                sized = self._sized(func, kind, inputs, args, kwargs)
                if sized is not None:
                    return sized
            before = self._taint_of(inputs)
        except Exception as error:
            self._give_up(error)
        out = self._call_device(func, kind, inputs, args, kwargs)
        try:
            if before is not None and self.is_on:
                self._after(func, kind, inputs, args, kwargs, out, before)
        except Exception as error:
            self._give_up(error)
        return out

    def _run_sparse(self, func, kind, inputs, args, kwargs):
        try:
            made = sparse.made_on_host(self, func, kind, inputs, args, kwargs)
            if made is not None:
                return made
        except Exception as error:
            self._give_up(error)
        out = self._call_device(func, kind, inputs, args, kwargs)
        try:
            if not kind.is_view and not self.is_capturing():
                sparse.follow(self, inputs, self._tensors([out], []))
        except Exception as error:
            self._give_up(error)
        return out

    def _call_device(self, func, kind, inputs, args, kwargs):
        """The operation itself. No kernel computes what it counts on the device, so that it reads zeros there."""
        hides = kind.hides
        if kind.is_read and not all(self._has_values(one) for one in inputs if one.is_cuda):
            hides = HIDDEN
        if not hides or not self.is_on:
            return func(*args, **kwargs)
        self.hide(hides)
        try:
            return func(*args, **kwargs)
        finally:
            self.hide(0)

    def _give_up(self, error):
        """What fails for one operation may do for the next."""
        self.is_on = not isinstance(error, Unreachable)
        self.trace.failed("small results", error)

    # What is known of tensors.

    def _is_small(self, tensor):
        return tensor.is_cuda and tensor.untyped_storage().nbytes() <= MOST_BYTES

    def _is_followed(self, tensor):
        most = MOST_DERIVED_BYTES if self._is_whole_number(tensor) else MOST_BYTES
        most = MOST_MASK_BYTES if tensor.dtype == self.torch.bool else most
        return tensor.is_cuda and tensor.untyped_storage().nbytes() <= most

    def _is_whole_number(self, tensor):
        return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)

    def _has_values(self, tensor):
        """Whether the bytes of a tensor are what they would be, or what was assumed."""
        if tensor.layout is not self.torch.strided:
            return False
        if not tensor.is_cuda:
            is_wide = tensor.dtype in (self.torch.int64, self.torch.bool)  # tokens and masks, never weights
            return tensor.numel() * tensor.element_size() <= (MOST_MASK_BYTES if is_wide else self.most_host_bytes)
        if not self._is_followed(tensor):
            return False
        if self._is_whole_number(tensor):
            return self._is_small(tensor) or self._known(tensor)[1]
        return self._taint(tensor) < UNKNOWN

    def _known(self, tensor):
        """KNOWN …, and whether its storage was computed here."""
        storage = tensor.untyped_storage()
        if self.lent and storage._cdata in self.lent:
            return self.lent[storage._cdata]
        of, taint, is_computed = self.taints.get(storage.data_ptr(), (None, UNKNOWN, False))
        return (taint, is_computed) if of is not None and of.cdata == storage._cdata else (UNKNOWN, False)

    def _taint(self, tensor):
        return self._known(tensor)[0] if tensor.is_cuda else KNOWN

    def _taint_of(self, tensors):
        return max((self._taint(tensor) for tensor in tensors), default=KNOWN)

    def _set_taint(self, tensor, taint, is_computed=True):
        storage = tensor.untyped_storage()
        if self.lent and storage._cdata in self.lent:
            del self.lent[storage._cdata]  # the last one that was written comes last
            self.lent[storage._cdata] = (taint, is_computed)
        else:
            self.taints[storage.data_ptr()] = (self.weak_reference(storage), taint, is_computed)

    def emptied(self, make):
        """Compiled code asks for memory without any operation; integers that its kernels would compute are zeros."""

        def made(size, stride, dtype):
            tensor = make(size, stride, dtype)
            try:
                if self.is_on and self.is_integers(tensor) and self._is_small(tensor) and not self.is_capturing():
                    self._store(tensor, self.torch.zeros(tensor.shape, dtype=dtype))
                    self._set_taint(tensor, UNKNOWN)
            except Exception as error:
                self._give_up(error)
            return tensor

        return made

    def _store(self, there, here):
        """Values of the host into a tensor of the device."""
        target = self._on_host(there)
        if target.data_ptr() != here.data_ptr():
            target.copy_(here)
        storage = there.untyped_storage()
        self.wrote(storage.data_ptr(), storage.nbytes())

    def _on_host(self, tensor):
        """The same bytes as a tensor of the host."""
        if not tensor.is_cuda:
            return tensor
        storage = tensor.untyped_storage()
        n = storage.nbytes() // tensor.element_size()
        if not n or not tensor.numel():
            return self.torch.empty(tensor.shape, dtype=tensor.dtype)
        if not self.is_reached and not can_reach(storage.data_ptr(), storage.nbytes()):
            raise Unreachable("the device's memory is not this process's")
        self.is_reached = True
        memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        flat = self.torch.frombuffer(memory, dtype=tensor.dtype, count=n)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _all_on_host(self, value):
        if isinstance(value, self.torch.Tensor):
            return self._on_host(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._all_on_host(part) for part in value)
        return value

    def _compute(self, func, kind, args, kwargs):
        there = {key: self._all_on_host(value) for key, value in kwargs.items()}
        if there.get("device") is not None:
            there["device"] = self.torch.device("cpu")
        there.pop("pin_memory", None)
        there.pop("generator", None)
        if kind.name == "histc" and self._is_whole_number(args[0]):  # the host has it for floats alone
            return func(self._on_host(args[0]).double(), *args[1:], **there).to(args[0].dtype)
        if not kind.is_random:
            return func(*self._all_on_host(args), **there)
        with self.torch.random.fork_rng(devices=[]):  # the host's own numbers stay what they are
            return func(*self._all_on_host(args), **there)

    def flag_counted(self):
        self.flag(COUNTED)

    # For collectives.

    def tensors(self, values):
        return self._tensors(values, [])

    def doubt_of(self, tensors):
        return self._taint_of([tensor for tensor in tensors if self._is_whole_number(tensor)])

    def follow(self, tensor, taint):
        """What came into a tensor; None: not what is there."""
        self._set_taint(tensor, UNKNOWN if taint is None else taint, taint is not None or self._is_small(tensor))

    def give_up(self, error):
        self._give_up(error)

    # For graphs that are replayed.

    def lend(self, storages):
        """What is known of the program's storages is known of those that stand for them: {(address, bytes): storage}."""
        for (address, _), storage in storages.items():
            of, taint, is_computed = self.taints.get(address, (None, UNKNOWN, False))
            there = of is not None and not of.expired()
            self.lent[storage._cdata] = (taint, is_computed) if there else (UNKNOWN, False)

    def compute_again(self, func, kind, args, kwargs, outs):
        inputs = self._tensors(args, [])
        self._tensors(kwargs.values(), inputs)
        self._after(func, kind, inputs, args, kwargs, outs, self._taint_of(inputs))

    def take_back(self, storages):
        addresses = {storage._cdata: address for (address, _), storage in storages.items()}
        for cdata, known in self.lent.items():
            of = self.taints.get(addresses[cdata], (None,))[0]
            if of is not None and not of.expired():
                self.taints[addresses[cdata]] = (of, *known)
        self.lent = {}

    # For what makes sparse tensors.

    most_bytes = MOST_DERIVED_BYTES

    def has_values(self, tensor):
        return self._has_values(tensor)

    def on_host(self, tensor):
        return self._on_host(tensor)

    def to_device(self, tensor, device):
        return self._to_device(tensor, device, KNOWN)

    def store(self, there, here, taint):
        self._store(there, here)
        self._set_taint(there, taint)

    def is_integers(self, tensor):
        return self._is_whole_number(tensor) and self._is_followed(tensor)

    # After an operation ran and did nothing.

    def _after(self, func, kind, inputs, args, kwargs, out, taint):
        outs = self._tensors([out] if isinstance(out, self.torch.Tensor) else out if isinstance(out, (list, tuple)) else [], [])
        if kind.is_read and not self.is_capturing():
            self._read(inputs, outs, taint)
        if kind.name.startswith("lift_fresh"):  # torch.tensor() has copied it
            taint = KNOWN
            self._set_taint(outs[0], taint)
        cuda = [one for one in outs if one.is_cuda and type(one) in self.plain and not one.is_nested]
        wanted = [one for one in cuda if one.layout is self.torch.strided and self._is_followed(one)]
        if wanted and all(self._shares(tensor, inputs) and not func._schema.is_mutable for tensor in wanted):
            return  # a view
        if self.is_capturing():
            self._keep_for_replays(func, kind, inputs, args, kwargs, outs, wanted)
            return
        if not wanted:
            return
        computed = self._try(func, kind, inputs, args, kwargs, outs)
        if computed:
            self._mark(wanted, inputs, kind, ASSUMED if kind.is_random else KNOWN if kind.is_fill else taint)
            return
        if kind.name == "topk" and inputs[0].dim() and inputs[0].shape[-1] > LEAST_VOCABULARY:
            self._assume_best(wanted)
            return
        for tensor in wanted:
            is_assumed = self._is_whole_number(tensor) and (self._is_small(tensor) or kind.name in CHOICES)
            taint = self._assume(kind, inputs, args, tensor) if is_assumed else UNKNOWN
            self._set_taint(tensor, taint, is_assumed)

    def _keep_for_replays(self, func, kind, inputs, args, kwargs, outs, wanted):
        """Nothing runs while a graph is captured: what there was is there still, and what is made is not there yet."""
        is_kept = (wanted or kind.is_read) and self.replays.add(func, kind, args, kwargs, outs)
        for tensor in wanted:
            if not is_kept or not self._shares(tensor, inputs):
                self._set_taint(tensor, UNKNOWN, self._is_small(tensor))

    def _shares(self, tensor, inputs):
        address = tensor.untyped_storage().data_ptr()
        return any(one.is_cuda and one.untyped_storage().data_ptr() == address for one in inputs)

    def _mark(self, outs, inputs, kind, taint):
        for tensor in outs:
            old = self._taint(tensor) if self._shares(tensor, inputs) else KNOWN
            is_whole = kind.name in WHOLE and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            if is_whole:
                rest = [one for one in inputs if one is not tensor]
                self._set_taint(tensor, self._taint_of(rest))
            else:
                self._set_taint(tensor, max(taint, old) if old < UNKNOWN else taint)

    def _try(self, func, kind, inputs, args, kwargs, outs):
        """Computes the results where that can be done; whether it was."""
        if not kind.is_ours or kind.name.startswith(("empty", "new_empty", "_efficient", "cudnn")):
            return False
        if any(t.is_cuda and not self._is_whole_number(t) and self._is_large_float(kind, t) for t in outs):
            return False
        if not kind.is_fill and not all(self._has_values(tensor) for tensor in inputs):
            return False
        if kind.name in ZEROS and all(self._is_whole_number(tensor) for tensor in outs):
            return all(self._set_zeros(tensor) for tensor in outs)
        if (kind.is_random or kind.is_fill) and not all(self._is_followed(tensor) for tensor in outs):
            return False
        if kind.is_random and not all(self._is_small(tensor) for tensor in outs):
            return False
        try:
            result = self._compute(func, kind, args, kwargs)
        except Unreachable:
            raise
        except Exception:  # no such operation on the host, or an index out of range
            return False
        results = self._tensors([result] if isinstance(result, self.torch.Tensor) else result if isinstance(result, (list, tuple)) else [], [])
        if len(results) != len(outs):
            return False
        for there, here in zip(outs, results):
            if not there.is_cuda or there.shape != here.shape:
                continue
            if self._is_followed(there):
                self._store(there, here)
        return True

    def _is_large_float(self, kind, tensor):
        if kind.is_read:
            return tensor.numel() * tensor.element_size() > MOST_COPIED_BYTES
        return tensor.numel() > MOST_FLOATS

    def _set_zeros(self, tensor):
        """The driver has zeros without any memory of the host's. Whether it could be done so."""
        if not self._is_followed(tensor) or not tensor.numel():
            return False
        if tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes():
            self.set_bytes(tensor.untyped_storage().data_ptr(), 0, tensor.untyped_storage().nbytes())
            return True
        if not self._has_values(tensor):
            return False
        self._on_host(tensor).zero_()
        return True

    def _assume(self, kind, inputs, args, tensor):
        """Values in place of such as no kernel computed; how far they are to be trusted."""
        host = self._on_host(tensor)
        if not tensor.numel():
            return KNOWN
        name = kind.name
        n = inputs[0].shape[-1] if inputs and inputs[0].dim() else 1
        if name in ("argmax", "argmin", "multinomial"):
            host.fill_(min(TOKEN, max(n - 1, 0)))
            return ASSUMED
        if name in ("topk", "sort", "argsort", "msort"):
            width = host.shape[-1] if host.dim() else 1
            spread = self.torch.arange(host.numel()) if name == "topk" else self.torch.arange(width).repeat(max(host.numel() // max(width, 1), 1))
            host.copy_((spread % max(n, 1)).reshape(host.shape).to(host.dtype))
            return UNKNOWN
        host.zero_()
        if host.dtype == self.torch.bool and name in ("ne", "eq", "isfinite", "isnan", "isinf"):
            return self._assume_finite(kind, args, host)
        return UNKNOWN

    def _assume_best(self, outs):
        """The tokens of a search in beams: none ends a sequence, and all are as likely."""
        self.trace.say(BEAMS)
        for tensor in outs:
            if tensor.numel():
                self._on_host(tensor).fill_(TOKEN if self._is_whole_number(tensor) else -1)
            self._set_taint(tensor, ASSUMED)

    def _assume_finite(self, kind, args, host):
        """x == x and abs(x) != inf are how PyTorch asks whether numbers are finite."""
        other = args[1] if len(args) > 1 else None
        is_same = other is not None and args[0] is other
        is_inf = isinstance(other, float) and other in (float("inf"), float("-inf"))
        if not (is_same or is_inf or kind.name.startswith("is")):
            return UNKNOWN
        host.fill_(kind.name == "isfinite" or (kind.name == "eq" and is_same) or (kind.name == "ne" and is_inf))
        return ASSUMED

    # Operations whose result has the size that the values say.

    def _is_mask(self, index):
        return index is not None and index.dtype in (self.torch.bool, self.torch.uint8)

    def _has_mask(self, args):
        return len(args) > 1 and any(self._is_mask(index) for index in args[1])

    def _sized(self, func, kind, inputs, args, kwargs):
        """The result on the device, of the size that was computed; None where it was not."""
        deciding = [args[1]] if kind.name == "masked_select" else args[1] if kind.is_masked else inputs
        deciding = [tensor for tensor in deciding if tensor is not None]
        if not any(tensor.is_cuda for tensor in deciding):
            return None
        if self._taint_of(deciding) == UNKNOWN:
            self.flag(COUNTED)
        if self.is_capturing():
            return None
        if kind.name == "masked_select":
            tensor, mask = self.torch.broadcast_tensors(args[0], args[1])
            return self._indexed(self.torch.ops.aten.index.Tensor, (tensor, [mask]), {})
        if kind.is_masked:
            return self._indexed(func, args, kwargs)
        if not all(self._has_values(tensor) for tensor in deciding):
            return None
        result = self._compute(func, kind, args, kwargs)
        taint = self._taint_of(inputs)
        return self._to_device(result, inputs[0].device, taint)

    def _indexed(self, func, args, kwargs):
        """Indexes by what PyTorch makes of masks, and follows that."""
        kind = Kind(func, self.torch)
        n_wanted = args[2].shape[0] if kind.is_put and args[2].dim() else 1
        args = (args[0], self._indices(args[0], args[1], n_wanted), *args[2:])
        inputs = self._tensors(args, [])
        before = self._taint_of(inputs)
        out = func(*args, **kwargs)
        self._after(func, kind, inputs, args, kwargs, out, before)
        return out

    def _to_device(self, result, device, taint):
        if isinstance(result, (list, tuple)):
            return type(result)(self._to_device(part, device, taint) for part in result)
        if not isinstance(result, self.torch.Tensor):
            return result
        there = self.torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=device)
        if there.numel():
            self._store(there, result)
            self._set_taint(there, taint)
        return there

    def _indices(self, tensor, indices, n_wanted):
        """Masks as the indices that PyTorch makes of them, on the device. A mask that is not known is of zeros, or has
        as many places as there are values for it."""
        made = []
        for index in indices:
            if not self._is_mask(index):
                made.append(index)
                continue
            if self._has_values(index):
                found = self._on_host(index).nonzero()
            else:
                found = self.torch.empty(0, index.dim(), dtype=self.torch.int64)
            if n_wanted > 1 and len(found) != n_wanted and self._taint(index) == UNKNOWN:
                places = self.torch.arange(n_wanted).clamp(max=max(index.numel() - 1, 0))
                found = self.torch.stack(self.torch.unravel_index(places, index.shape), 1)
            made += [self._to_device(column.contiguous(), tensor.device, self._taint(index)) for column in found.unbind(1)]
        return made

    # What the program reads.

    def _read(self, inputs, outs, taint):
        numbers = [t for t in inputs if t.is_cuda and self._is_whole_number(t)]
        to_host = not outs or any(not t.is_cuda for t in outs)
        if not numbers or not to_host:
            return
        if any(self._taint(t) == UNKNOWN for t in numbers):
            is_decision = all(t.dtype == self.torch.bool and t.numel() == 1 for t in numbers)
            self.flag((MASKED if is_called_in(MASKING) else DECIDED) if is_decision else READ)
        for out in outs:  # a copy that was too large to be done
            if not out.is_cuda and self._has_values(numbers[0]) and out.shape == numbers[0].shape:
                out.copy_(self._on_host(numbers[0]))

    def flag(self, what):
        """Once for each way in which values were not there."""
        self.trace.say("%s: %s (%s)" % (FLAG, where(), what), once=FLAG + what)


def is_called_in(names):
    """Whether one of these functions is running."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame is not None


def where():
    """The line of the program that is running: the innermost that is not a library's."""
    frame = sys._getframe(1)
    innermost = None
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    library = os.path.dirname(os.path.abspath(sys.modules["torch"].__file__)) + os.sep
    while frame:
        path = frame.f_code.co_filename
        if not path.startswith(("<", here, library)):
            innermost = innermost or frame
            if "/site-packages/" not in path:
                return "%s:%d" % (path, frame.f_lineno)
        frame = frame.f_back
    return "%s:%d" % (innermost.f_code.co_filename, innermost.f_lineno) if innermost else "unknown"
