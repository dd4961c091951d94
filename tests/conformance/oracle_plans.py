# SPDX-License-Identifier: MIT
"""Plans points of the oracle by rehearsing a build of llama.cpp."""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'support'))

import rehearsal  # noqa: E402


def plan(command, devices, rules, flags=(), preload=None):
    """`rules`: the build by which devices behave; `flags`: further ones of the rehearsal; `preload`: a library for the program."""
    flags = ['--engine', f'llama.cpp@{rules}', '--requests', '0', *flags]
    more = {'env': {**os.environ, 'LD_PRELOAD': str(preload)}} if preload else {}
    rows = rehearsal.places(rehearsal.run(command, devices, flags=flags, **more))
    return {place: {'weights': row.get('weights', 0), 'compute': row['activations'],
                    'cache': sum(row.get(part, 0) for part in rehearsal.CACHE)} for place, row in rows.items()}


def plan_all(points, command, rules, flags=(), preload=None):
    """The plan of each point in order, or why there is none, as an exception."""
    def one(point):
        try:
            return plan(command(point), point.devices, rules, flags, preload)
        except (rehearsal.Failed, OSError, ValueError, KeyError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, points))
