#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""schedule_proof.py TEST_SCHEDULE: of made sets of programs whose order takes over 1.10 of our own lower bound, says what an exact
solver knows: a better bound, and the best order that it found. It rounds what is needed and how long it takes down, so that no order
is shorter than its bound. Needs OR-tools in this Python (pip install ortools); 14 seconds a set."""

import math
import subprocess
import sys

from ortools.sat.python import cp_model

MIB = 1 << 20
PER_S = 100
SECONDS = 14


def sets(text):
    for part in text.strip().split("\n\n"):
        lines = [line.split() for line in part.split("\n")]
        number, ours, least, jobs = lines[0]
        items = [(float(line[0]), int(line[1]), [int(word) for word in line[2:]]) for line in lines[2:]]
        yield int(number), float(ours), float(least), int(jobs), [int(word) for word in lines[1]], items


def solve(ours, jobs, room, items):
    """The solver's bound and the best that it found, or None, in seconds."""
    model, latest = cp_model.CpModel(), math.ceil(ours * PER_S)
    runs, ends, needs = [], [], [[] for _ in room]
    for seconds, any_bytes, each in items:
        length = max(1, math.floor(seconds * PER_S))
        start, end = model.new_int_var(0, latest, ""), model.new_int_var(0, latest, "")
        runs.append(model.new_interval_var(start, length, end, ""))
        ends.append(end)
        for place, need in enumerate(each):
            needs[place].append((runs[-1], need // MIB))
        if any_bytes:
            chosen = [model.new_bool_var("") for _ in room[1:]]
            for place, is_here in enumerate(chosen, 1):
                needs[place].append((model.new_optional_interval_var(start, length, end, is_here, ""), any_bytes // MIB))
            model.add_exactly_one(chosen)
    for has, need in zip(room, needs, strict=True):
        model.add_cumulative([run for run, _ in need], [mib for _, mib in need], -(-has // MIB))
    if jobs:
        model.add_cumulative(runs, [1] * len(runs), jobs)
    whole = model.new_int_var(0, latest, "")
    model.add_max_equality(whole, ends)
    model.minimize(whole)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 2
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver.best_objective_bound / PER_S, solver.objective_value / PER_S if found else None


def main():
    text = subprocess.run([sys.argv[1], "worse"], stdout=subprocess.PIPE, text=True, check=True).stdout
    n = within = 0
    for number, ours, least, jobs, room, items in sets(text):
        bound, best = solve(ours, jobs, room, items)
        bound = max(bound, least)
        n, within = n + 1, within + (ours <= 1.1 * bound)
        found = f"{best:.2f}" if best is not None else "none"
        print(f"set {number}: {len(items)} programs, {ours:.2f} s, our bound {least:.2f}, a bound {bound:.2f}, found {found}", flush=True)
        assert best is None or ours <= 1.1 * best, "an order is shorter by a tenth"
    print(f"{n} sets above 1.10 of our bound, {within} of them within 1.10 of the better one")


main()
