# SPDX-License-Identifier: MIT
from flashinfer.comm.allreduce import create_allreduce_fusion_workspace
