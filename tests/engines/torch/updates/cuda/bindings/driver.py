# SPDX-License-Identifier: MIT
"""As much of NVIDIA's module of this name as an engine needs that updates its graphs: functions return their error and results."""

import ctypes
import enum

_library = ctypes.CDLL("libcuda.so.1")


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910


class CUgraphExecUpdateResult(enum.IntEnum):
    CU_GRAPH_EXEC_UPDATE_SUCCESS = 0
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2


class _Info(ctypes.Structure):
    _fields_ = [("result", ctypes.c_int), ("errorNode", ctypes.c_void_p), ("errorFromNode", ctypes.c_void_p)]


class CUgraphExecUpdateResultInfo:
    def __init__(self, result):
        self.result = CUgraphExecUpdateResult(result)


def cuGraphExecUpdate(hGraphExec, hGraph):
    info = _Info()
    status = _library.cuGraphExecUpdate_v2(ctypes.c_void_p(hGraphExec), ctypes.c_void_p(hGraph), ctypes.byref(info))
    return CUresult(status), CUgraphExecUpdateResultInfo(info.result)
