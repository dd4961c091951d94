# SPDX-License-Identifier: MIT
"""As much of NVIDIA's module of the driver as a program here asks: numbers of attributes, by CUDA's documentation."""

import enum


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
