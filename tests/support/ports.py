# SPDX-License-Identifier: MIT
"""Ports for servers of tests."""

import contextlib
import random
import socket


def _given():
    """Those that the kernel gives to sockets that ask for none of their own."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = map(int, file.read().split())
    except OSError:
        low, high = 32768, 60999
    return range(low, high + 1)


def free_port():
    """A port that nobody has, and that nobody gets by chance until the server has it."""
    given = _given()
    others = [port for port in range(10000, 65536) if port not in given]
    for port in [*random.sample(others, len(others)), 0]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise AssertionError("no port is free")
