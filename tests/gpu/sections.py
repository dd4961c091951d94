# SPDX-License-Identifier: MIT
"""The sections of the script: each asks one thing of the driver in a process of its own."""

ALL = {}


def section(**documented):
    """A function that answers a dictionary; `documented` are those answers that CUDA's documentation
    gives for every card, so that they can be wrong where there is no card to compare with."""

    def register(function):
        ALL[function.__name__] = (function, documented)
        return function

    return register
