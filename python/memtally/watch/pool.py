# SPDX-License-Identifier: MIT
"""The history of libmemtally-pool.so, where a program has it in the place of PyTorch's allocator."""

import ctypes

LIBRARY = "libmemtally-pool.so"
ROOM = 65536  # events that are taken at a time


class Event(ctypes.Structure):
    """struct memtally_pool_event."""

    _fields_ = [
        ("time_ns", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("kind", ctypes.c_int32),
    ]


class Pool:
    def __init__(self, library):
        self.library = library
        library.memtally_pool_history_count.restype = ctypes.c_uint64
        library.memtally_pool_history_take.restype = ctypes.c_size_t
        library.memtally_pool_history_take.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self.events = (Event * ROOM)()

    def count(self):
        return self.library.memtally_pool_history_count()

    def take(self):
        """The lines of what happened since the last time, and the addresses of blocks that were given back."""
        lines, freed = [], []
        n = ROOM
        while n == ROOM:
            n = self.library.memtally_pool_history_take(self.events, ROOM)
            for event in self.events[:n]:
                kind = chr(event.kind)
                fields = "%s %d %d %x" % (kind, event.device, event.time_ns, event.address)
                lines.append(fields + " %d" % event.bytes if kind in "as" else fields)
                if kind == "f":
                    freed.append(event.address)
        return lines, freed


def _path():
    """The path of the library, if it is loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            path = line.partition("/")
            if path[2].rstrip().endswith(LIBRARY):
                return "/" + path[2].rstrip()
    return None


def opened(torch):
    """The pool that is PyTorch's allocator, with its history begun; None where it is not."""
    backend = getattr(torch.cuda.memory, "get_allocator_backend", None)
    if not backend or backend() != "pluggable":
        return None
    path = _path()
    library = ctypes.CDLL(path) if path else None
    if not library or library.memtally_pool_history_begin() != 0:
        return None
    return Pool(library)
