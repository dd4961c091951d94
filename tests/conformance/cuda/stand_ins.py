# SPDX-License-Identifier: MIT
"""What the points' models that see pictures lack beside their config.json, as `memtally rehearse MODEL` makes it."""

import os
import pathlib
import sys


def sees(settings, name):
    """Whether the model of the settings, whose folder is called `name` there, takes pictures."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "engines"))
    from rehearse_stand_ins import read_config

    return os.path.isdir(settings[name]) and "vision_config" in read_config(settings[name])


def completed(settings, name):
    """The settings with the model's folder replaced by one that has stand-ins."""
    from rehearse_common import rehearsal_folder
    from rehearse_stand_ins import complete

    return {**settings, name: complete(settings[name], rehearsal_folder())}
