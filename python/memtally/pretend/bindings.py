# SPDX-License-Identifier: MIT
"""NVIDIA's module for CUDA's runtime in Python, cuda.bindings.runtime, has that runtime linked into it, which talks to the
real driver only. In a rehearsal this one stands in its place where the package is there: the same functions with the
same results, called in the look-alike of the runtime that the program has, by its public interface.

Functions that are not in the table are not there: what wants one goes without, and the trace says so.
"""

import ctypes
import enum
import importlib.machinery
import sys
import types

# Names of modules: this one, and its older name.
NAMES = ("cuda.bindings.runtime", "cuda.cudart")
MISSING = "cuda.bindings.runtime has no %s in a rehearsal: what asked for it goes without"

# Function: what C takes, in its order. A name that begins with > is a result, of which a pointer is passed; in Python the
# rest are the arguments and the results follow the error.
FUNCTIONS = {
    "cudaDeviceCanAccessPeer": ">int int int",
    "cudaDeviceDisablePeerAccess": "int",
    "cudaDeviceEnablePeerAccess": "int uint",
    "cudaDeviceGetAttribute": ">int int int",
    "cudaDeviceGetLimit": ">size int",
    "cudaDeviceSetLimit": "int size",
    "cudaDeviceSynchronize": "",
    "cudaDriverGetVersion": ">int",
    "cudaEventCreate": ">event",
    "cudaEventCreateWithFlags": ">event uint",
    "cudaEventDestroy": "pointer",
    "cudaEventElapsedTime": ">float pointer pointer",
    "cudaEventQuery": "pointer",
    "cudaEventRecord": "pointer pointer",
    "cudaEventSynchronize": "pointer",
    "cudaFree": "pointer",
    "cudaFreeAsync": "pointer pointer",
    "cudaFreeHost": "pointer",
    "cudaGetDevice": ">int",
    "cudaGetDeviceCount": ">int",
    "cudaGetLastError": "",
    "cudaHostAlloc": ">pointer size uint",
    "cudaHostGetDevicePointer": ">pointer pointer uint",
    "cudaHostRegister": "pointer size uint",
    "cudaHostUnregister": "pointer",
    "cudaInitDevice": "int uint uint",
    "cudaIpcCloseMemHandle": "pointer",
    "cudaIpcGetMemHandle": ">handle pointer",
    "cudaIpcOpenMemHandle": ">pointer handle uint",
    "cudaMalloc": ">pointer size",
    "cudaMallocAsync": ">pointer size pointer",
    "cudaMallocHost": ">pointer size",
    "cudaMallocManaged": ">pointer size uint",
    "cudaMemGetInfo": ">size >size",
    "cudaMemcpy": "pointer pointer size int",
    "cudaMemcpyAsync": "pointer pointer size int pointer",
    "cudaMemset": "pointer int size",
    "cudaMemset2DAsync": "pointer size int size size pointer",
    "cudaMemsetAsync": "pointer int size pointer",
    "cudaPeekAtLastError": "",
    "cudaRuntimeGetVersion": ">int",
    "cudaSetDevice": "int",
    "cudaStreamBeginCapture": "pointer int",
    "cudaStreamCreate": ">stream",
    "cudaStreamCreateWithFlags": ">stream uint",
    "cudaStreamCreateWithPriority": ">stream uint int",
    "cudaStreamDestroy": "pointer",
    "cudaStreamIsCapturing": "pointer >capturing",
    "cudaStreamQuery": "pointer",
    "cudaStreamSynchronize": "pointer",
    "cudaStreamWaitEvent": "pointer pointer uint",
}
CONSTANTS = {
    "cudaHostAllocDefault": 0, "cudaHostAllocPortable": 1, "cudaHostAllocMapped": 2, "cudaHostAllocWriteCombined": 4,
    "cudaHostRegisterDefault": 0, "cudaHostRegisterPortable": 1, "cudaHostRegisterMapped": 2,
    "cudaEventDefault": 0, "cudaEventBlockingSync": 1, "cudaEventDisableTiming": 2, "cudaEventInterprocess": 4,
    "cudaStreamDefault": 0, "cudaStreamNonBlocking": 1, "cudaStreamLegacy": 1, "cudaStreamPerThread": 2,
    "cudaIpcMemLazyEnablePeerAccess": 1, "cudaMemAttachGlobal": 1, "cudaMemAttachHost": 2,
}
ENUMS = {
    "cudaMemcpyKind": {f"cudaMemcpy{name}": n for n, name in enumerate(
        ("HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default"))},
    "cudaMemoryType": {f"cudaMemoryType{name}": n for n, name in enumerate(("Unregistered", "Host", "Device", "Managed"))},
    "cudaLimit": {f"cudaLimit{name}": n for n, name in enumerate(
        ("StackSize", "PrintfFifoSize", "MallocHeapSize", "DevRuntimeSyncDepth", "DevRuntimePendingLaunchCount",
         "MaxL2FetchGranularity", "PersistingL2CacheSize"))},
    "cudaStreamCaptureMode": {f"cudaStreamCaptureMode{name}": n for n, name in enumerate(
        ("Global", "ThreadLocal", "Relaxed"))},
    "cudaStreamCaptureStatus": {f"cudaStreamCaptureStatus{name}": n for n, name in enumerate(
        ("None", "Active", "Invalidated"))},
}
HANDLE_BYTES = 64  # of memory that processes share
MOST_ERRORS = 1000


class Number(int):
    """A handle of the runtime's, as an object of a type of its own."""

    def __new__(cls, value=0):
        return super().__new__(cls, int(value))

    def getPtr(self):
        self._cell = ctypes.c_void_p(int(self))
        return ctypes.addressof(self._cell)


class MemoryHandle:
    """What another process opens memory by."""

    def __init__(self, address=0):
        self._bytes = (ctypes.c_char * HANDLE_BYTES)()
        if address:
            ctypes.memmove(self._bytes, int(address), HANDLE_BYTES)

    def getPtr(self):
        return ctypes.addressof(self._bytes)

    @property
    def reserved(self):
        return self._bytes.raw

    @reserved.setter
    def reserved(self, value):
        self._bytes.raw = bytes(value)[:HANDLE_BYTES].ljust(HANDLE_BYTES, b"\0")


class PointerAttributes(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("devicePointer", ctypes.c_void_p),
                ("hostPointer", ctypes.c_void_p), ("reserved", ctypes.c_long * 8)]


class SharedMemory(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * HANDLE_BYTES)]


C_TYPES = {"int": ctypes.c_int, "uint": ctypes.c_uint, "size": ctypes.c_size_t, "float": ctypes.c_float,
           "pointer": ctypes.c_void_p, "stream": ctypes.c_void_p, "event": ctypes.c_void_p, "capturing": ctypes.c_int,
           "handle": SharedMemory}


def address_of(value):
    """The address of a pointer as callers give it: a number, something with an address, or a buffer of the host's."""
    if value is None:
        return 0
    try:
        return int(value)
    except (TypeError, ValueError):
        view = memoryview(value)
        kind = ctypes.c_char * view.nbytes
        return ctypes.addressof(kind.from_buffer(view) if not view.readonly else kind.from_buffer_copy(view))


def to_c(kind, value):
    if kind == "handle":
        return C_TYPES[kind].from_buffer_copy(ctypes.string_at(value.getPtr(), HANDLE_BYTES))
    if kind == "float":
        return ctypes.c_float(value)
    return C_TYPES[kind](address_of(value) if kind == "pointer" else int(value))


def function_of(module, library, name):
    """The function of the library as Python's module has it."""
    call = getattr(library, name)
    kinds = FUNCTIONS[name].split()
    wraps = {"stream": module.cudaStream_t, "event": module.cudaEvent_t, "capturing": module.cudaStreamCaptureStatus}

    def from_c(kind, result):
        if kind == "handle":
            return module.cudaIpcMemHandle_t(ctypes.addressof(result))
        return wraps.get(kind, lambda number: number)(result.value or 0)

    def function(*args, **kwargs):
        given = iter((*args, *kwargs.values()))
        passed = [C_TYPES[kind[1:]]() if kind[0] == ">" else to_c(kind, next(given)) for kind in kinds]
        status = call(*[ctypes.byref(one) if kind[0] == ">" else one for kind, one in zip(kinds, passed)])
        results = [(kind[1:], one) for kind, one in zip(kinds, passed) if kind[0] == ">"]
        return (module.cudaError_t(status), *(None if status else from_c(*result) for result in results))

    function.__name__ = function.__qualname__ = name
    return function


def errors_of(library):
    """The numbers of errors by their names, as the library tells them."""
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    names = {}
    for number in range(MOST_ERRORS):
        name = library.cudaGetErrorName(number).decode()
        if name.startswith("cuda"):
            names[name] = number
    return names


class Attributes(type):
    """Attributes of devices have the driver's numbers, and its names in another spelling."""

    def __getattr__(cls, name):
        try:
            from cuda.bindings import driver
        except ImportError:
            from cuda import cuda as driver

        for one in driver.CUdevice_attribute:
            if name.lower() == "cudadevattr" + one.name[len("CU_DEVICE_ATTRIBUTE_"):].replace("_", "").lower():
                return int(one)
        raise AttributeError(name)


def fill(module, library):
    """Everything of the module that there is."""
    module.cudaError_t = enum.IntEnum("cudaError_t", errors_of(library))
    for name, members in ENUMS.items():
        setattr(module, name, enum.IntEnum(name, members))
    vars(module).update(CONSTANTS)
    for name in ("cudaStream_t", "cudaEvent_t", "cudaKernel_t", "cudaLibrary_t", "cudaGraph_t", "cudaGraphExec_t"):
        setattr(module, name, type(name, (Number,), {}))
    module.cudaIpcMemHandle_t = type("cudaIpcMemHandle_t", (MemoryHandle,), {})
    module.cudaDeviceAttr = Attributes("cudaDeviceAttr", (), {})
    for name in FUNCTIONS:
        if hasattr(library, name):
            setattr(module, name, function_of(module, library, name))
    success = module.cudaError_t(0)
    module.cudaGetErrorName = lambda error: (success, library.cudaGetErrorName(int(error)))
    module.cudaGetErrorString = lambda error: (success, library.cudaGetErrorString(int(error)))
    module.getLocalRuntimeVersion = getattr(module, "cudaRuntimeGetVersion", None)

    def cudaPointerGetAttributes(pointer):
        there = PointerAttributes()
        status = library.cudaPointerGetAttributes(ctypes.byref(there), ctypes.c_void_p(address_of(pointer)))
        if status:
            return module.cudaError_t(status), None
        said = types.SimpleNamespace(type=module.cudaMemoryType(there.type), device=there.device,
                                     devicePointer=there.devicePointer or 0, hostPointer=there.hostPointer or 0)
        return success, said

    module.cudaPointerGetAttributes = cudaPointerGetAttributes


def loaded_library():
    """The look-alike of the version that PyTorch is of, else the one that is there."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    majors = [version.partition(".")[0]] if version else ["13", "12"]
    for major in majors:
        try:
            return ctypes.CDLL("libcudart.so." + major)
        except OSError:
            pass
    raise ImportError("no look-alike of CUDA's runtime is loaded")


class Loader:
    def __init__(self, trace):
        self.trace = trace

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        fill(module, loaded_library())

        def missing(name):
            if name.startswith("cuda"):
                self.trace.say(MISSING % name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = missing


class Finder:
    """Is asked before the finder that knows the package, and asks that whether it is there."""

    def __init__(self, trace):
        self.loader = Loader(trace)

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        if importlib.machinery.PathFinder.find_spec(name, path) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self.loader)


def start(trace):
    sys.meta_path.insert(0, Finder(trace))
