# SPDX-License-Identifier: MIT
"""Uses cuda.bindings.runtime as libraries in Python do, and prints what came of it as JSON."""

import array
import json

from cuda.bindings import runtime

MIB = 1 << 20


def known(result):
    """What a call returned without its error, which must not be one."""
    assert result[0] == runtime.cudaError_t.cudaSuccess, result
    return result[1] if len(result) == 2 else result[1:]


def copied(pointer):
    there, back = array.array("i", range(8)), array.array("i", [0] * 8)
    known(runtime.cudaMemcpy(pointer, there, 32, runtime.cudaMemcpyKind.cudaMemcpyHostToDevice))
    known(runtime.cudaMemcpy(back, pointer, 32, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
    return list(back)


def main():
    attribute = runtime.cudaDeviceAttr
    said = {"devices": known(runtime.cudaGetDeviceCount())}
    known(runtime.cudaSetDevice(1))
    said["device"] = known(runtime.cudaGetDevice())
    said["processors"] = known(runtime.cudaDeviceGetAttribute(attribute.cudaDevAttrMultiProcessorCount, 0))
    said["capability"] = known(runtime.cudaDeviceGetAttribute(attribute.cudaDevAttrComputeCapabilityMajor, 0))
    free, total = known(runtime.cudaMemGetInfo())
    pointer = known(runtime.cudaMalloc(100 * MIB))
    said["taken"], said["total"] = free - known(runtime.cudaMemGetInfo())[0], total
    said["where"] = known(runtime.cudaPointerGetAttributes(pointer)).device
    said["copied"] = copied(pointer)
    said["handle"] = len(known(runtime.cudaIpcGetMemHandle(pointer)).reserved)
    error, nothing = runtime.cudaMalloc(1 << 60)
    said["refused"] = [error.name, nothing, runtime.cudaGetErrorName(error)[1].decode()]
    stream = known(runtime.cudaStreamCreate())
    said["capturing"] = known(runtime.cudaStreamIsCapturing(stream)).name
    known(runtime.cudaStreamDestroy(stream))
    said["has graphs"] = hasattr(runtime, "cudaGraphCreate")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
