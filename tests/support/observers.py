# SPDX-License-Identifier: MIT
"""Two observers of one program on pretended devices: the recorder, and the driver's account under it. They know nothing of
each other. `disagreements` holds all that the one wrote of devices against all that the other wrote.

The raw words of both are kept (`Account`, `Recording`), so that a test can plant a lie in either."""

import collections
import copy
import glob
import json
import os
import struct
import subprocess
import tempfile

import memtally

LINEAR, MANAGED, POOLED, PHYSICAL = 1, 2, 3, 4  # enum mt_device_kind
DRIVERS_OWN = ("context", "kernels", "graph nodes", "memory pool")  # what the account calls the driver's shares
POOL = "memory pool"
PAGE = 2 << 20  # in which cudaMalloc takes memory of a device from SMALL on; the recorder has what was asked for
SMALL = 1 << 20

Event = collections.namedtuple("Event", "word pid place size thing name")


def lines_of(what, path):
    program = os.environ.get("CUDA_OBSERVERS") or os.path.join(os.environ["BUILD_DIR"], "tests", "cuda", "cuda_observers")
    done = subprocess.run([program, what, path], capture_output=True, text=True, check=True, timeout=300)
    return [line.split(" ", 5) for line in done.stdout.splitlines()]


def is_shared(thing):
    """Whether an identity is that of memory that several processes hold (MT_ACCOUNT_SHARED)."""
    return int(thing, 16) >> 63 == 1


class Account:
    """What the driver wrote."""

    def __init__(self, path):
        self.used_before, self.events = {}, []
        for word, *fields in lines_of("account", path):
            if word == "device":
                self.used_before[int(fields[0])] = int(fields[1]) - int(fields[2])
            elif int(fields[1]) >= 0 or word == "end":
                self.events.append(Event(word, int(fields[0]), int(fields[1]), int(fields[2]), fields[3], "".join(fields[4:])))

    def held(self):
        """Each event with what is there by process, place and name after it. What several processes hold is of process 0, and
        there once."""
        sizes, holders, sums = {}, collections.defaultdict(set), collections.Counter()

        def drop(pid, place, thing):
            owner = 0 if thing in holders else pid
            if owner == 0:
                holders[thing].discard(pid)
                if holders[thing]:
                    return
                del holders[thing]
            name, size = sizes.pop((owner, place, thing), ("", 0))
            sums[owner, place, name] -= size

        for event in self.events:
            pid, place, thing = event.pid, event.place, event.thing
            if event.word == "alloc":
                owner = 0 if is_shared(thing) else pid
                if owner == 0:
                    holders[thing].add(pid)
                if (owner, place, thing) not in sizes:
                    sizes[owner, place, thing] = event.name, event.size
                    sums[owner, place, event.name] += event.size
            elif event.word == "free":
                drop(pid, place, thing)
            elif event.word == "end":
                for key in [key for key in sizes if key[0] == pid or pid in holders.get(key[2], ())]:
                    drop(pid, *key[1:])
            yield event, sums

    def changes(self):
        """{(process, place): bytes that came and went}. Of what has no address of its own nothing. Memory that a process gives
        others to hold stays its own: the account has it then as given back and taken anew."""
        changes, sizes, shared, given = {}, {}, set(), {}
        for event in self.events:
            key = event.pid, event.place, event.thing
            if event.word == "alloc" and is_shared(event.thing):
                if event.thing not in shared:
                    shared.add(event.thing)
                    sizes[key] = event.size
                    at = given.pop((event.pid, event.place, event.size), None)
                    if at is not None:
                        del changes[key[:2]][at]
            elif event.word == "alloc" and event.name not in DRIVERS_OWN:
                sizes[key] = event.size
                changes.setdefault(key[:2], []).append(event.size)
            elif event.word == "free" and key in sizes:
                size = sizes.pop(key)
                changes.setdefault(key[:2], []).append(-size)
                given = {(event.pid, event.place, size): len(changes[key[:2]]) - 1}
        return changes

    def refusals(self):
        said = {}
        for event in self.events:
            if event.word == "refuse":
                said.setdefault((event.pid, event.place), []).append(event.size)
        return said

    def states(self):
        """{place: what was used after each event}."""
        states = {place: [used] for place, used in self.used_before.items()}
        for event, sums in self.held():
            for place in states if event.word == "end" else [event.place]:
                states[place].append(self.used_before[place] + sum(size for key, size in sums.items() if key[1] == place))
        return states

    def pools(self):
        """{(process, place): what pools had after each event that changed it}."""
        states = {}
        for event, sums in self.held():
            key = event.pid, event.place
            said = states.setdefault(key, [0]) if event.word != "end" else [sums[key + (POOL,)]]
            if sums[key + (POOL,)] != said[-1]:
                said.append(sums[key + (POOL,)])
        return {key: said for key, said in states.items() if len(said) > 1}


class Process:
    """What the events of a process come to, by the rules of docs/FORMATS.md and not by the library's reader of them."""

    def __init__(self):
        self.changes, self.refused, self.used, self.pools = {}, {}, {}, {}
        self.size, self.handles, self.mapped, self.reserved = {}, {}, {}, {}
        self.pages = []  # [place, bytes given out, small allocations in it]

    def add(self, place, thing, size):
        """What is below SMALL shares a page with others."""
        self.size[thing], self.handles[thing] = (place, 0 if size < SMALL else (size + PAGE - 1) // PAGE * PAGE), 1
        said = self.changes.setdefault(place, [])
        if size >= SMALL:
            said.append(self.size[thing][1])
            return
        size = (size + 511) // 512 * 512
        page = next((page for page in self.pages if page[0] == place and page[1] + size <= PAGE), None)
        if not page:
            page = [place, 0, set()]
            self.pages.append(page)
            said.append(PAGE)
        page[1] += size
        page[2].add(thing)

    def drop(self, thing):
        place, size = self.size.pop(thing)
        for page in [page for page in self.pages if thing in page[2]]:
            page[2].remove(thing)
            if not page[2]:
                self.pages.remove(page)
                size = PAGE
        if size:
            self.changes[place].append(-size)

    def drop_if_unheld(self, thing):
        if not self.handles.get(thing) and thing not in self.mapped.values():
            self.drop(thing)

    def take(self, word, fields):
        if word == "DEVICE_ALLOC" and fields[1] in (LINEAR, MANAGED, PHYSICAL):
            self.add(fields[0], fields[2], fields[3])
        elif word == "DEVICE_FREE" and fields[1] in self.size:
            self.handles[fields[1]] -= 1
            self.drop_if_unheld(fields[1])
        elif word == "DEVICE_MAP" and fields[2] in self.size:
            self.mapped[fields[0]] = fields[2]
        elif word == "DEVICE_UNMAP" and fields[0] in self.mapped:
            self.drop_if_unheld(self.mapped.pop(fields[0]))
        elif word == "DEVICE_HELD" and fields[0] in self.size:
            self.handles[fields[0]] += 1
        elif word == "DEVICE_RESET":
            for thing, (place, _) in list(self.size.items()):
                if place == fields[0]:
                    self.drop(thing)
        elif word == "DEVICE_USED":
            self.used.setdefault(fields[0], []).append(fields[1])
        elif word == "DEVICE_REFUSED":
            self.refused.setdefault(fields[0], []).append(fields[2])
        elif word == "DEVICE_POOL":
            self.reserved[fields[0], fields[1]] = fields[2]
            total = sum(size for (place, _), size in self.reserved.items() if place == fields[0])
            self.pools.setdefault(fields[0], []).append(total)


class Recording:
    """What the recorder wrote: events of each image of each process."""

    def __init__(self, folder):
        self.images = []  # (process, [(word, fields)])
        for path in sorted(glob.glob(os.path.join(folder, "*.mtz")) + glob.glob(os.path.join(folder, "*.mtr"))):
            if not os.path.basename(path).startswith("watch"):
                events = [(word, [int(field) for field in " ".join(fields).split()]) for word, *fields in lines_of("recording", path)]
                self.images.append((pid_of(path), events))

    def processes(self):
        """[(process, Process)], one for each image."""
        for pid, events in self.images:
            process = Process()
            for word, fields in events:
                process.take(word, fields)
            yield pid, process

    def said(self, what):
        """{(process, place): a list}, of all images of a process one after the other."""
        said = {}
        for pid, process in self.processes():
            for place, values in getattr(process, what).items():
                if values:
                    said.setdefault((pid, place), []).extend(values)
        return said


def pid_of(path):
    """The process of a recording's file: mt_file_header.pid follows the magic, version, byte order, sizes, flags and kind."""
    with open(path, "rb") as file:
        return struct.unpack_from("<I", file.read(64), 32)[0]


def in_order(values, states):
    """The first of `values` that `states` do not have in this order, or None."""
    rest = iter(states)
    for value in values:
        if not any(state == value for state in rest):
            return value
    return None


def without_repeats(values):
    return [value for index, value in enumerate(values) if not index or values[index - 1] != value]


def wrong_words(account, recording):
    """Words of the driver that the recorder wrote and that the account was not at, or in another order. Where several
    processes have a device, their order among each other is not looked at."""
    states, wrong = account.states(), []
    said = recording.said("used")
    alone = collections.Counter(place for _, place in said)
    for (pid, place), values in said.items():
        if alone[place] == 1:
            bad = in_order(without_repeats(values), without_repeats(states[place]))
        else:
            bad = next((value for value in values if value not in set(states[place])), None)
        if bad is not None:
            wrong.append(f"process {pid} was told {bad} used of device {place}, which it never was then")
    for place, total in ((place, max(used)) for place, used in states.items()):
        most = max((max(values) for (_, where), values in said.items() if where == place), default=None)
        if most is not None and most != total:
            wrong.append(f"device {place}: at most {total}, and {most} was seen")
    return wrong


def wrong_pools(account, recording):
    wrong, states = [], account.pools()
    said = recording.said("pools")
    for key in sorted(set(states) | set(said)):
        values = without_repeats([0] + said.get(key, []))
        if in_order(values, states.get(key, [0])) is not None or max(values) != max(states.get(key, [0])):
            wrong.append(f"pools of {key}: {states.get(key)} and {values}")
    return wrong


def first_difference(one, other):
    for index, pair in enumerate(zip(one, other)):
        if pair[0] != pair[1]:
            return index
    return min(len(one), len(other))


def wrong_lists(what, one, other):
    for key in sorted(set(one) | set(other)):
        here, there = one.get(key, []), other.get(key, [])
        if here != there:
            at = first_difference(here, there)
            yield f"{what} of {key}: {len(here)} and {len(there)}, from {at} on {here[at:at + 4]} and {there[at:at + 4]}"


def disagreements(account, recording):
    """Sentences; none where the two say the same of every event."""
    return [
        *wrong_lists("changes", account.changes(), recording.said("changes")),
        *wrong_lists("refusals", account.refusals(), recording.said("refused")),
        *wrong_words(account, recording),
        *wrong_pools(account, recording),
    ]


# A lie in an event of the recorder: the field that is told too large, or that the event is left out.
LIES = {"DEVICE_ALLOC": (3, None), "DEVICE_FREE": (None,), "DEVICE_MAP": (None,), "DEVICE_UNMAP": (None,), "DEVICE_HELD": (None,),
        "DEVICE_USED": (1,), "DEVICE_REFUSED": (2, None), "DEVICE_RESET": (None,), "DEVICE_POOL": (2,)}


def with_lies(account, recording):
    """(word, account, recording) for each lie in the first event of its kind, in either of the two."""
    for word in ("alloc", "free", "refuse"):
        for at, event in enumerate(account.events):
            if event.word == word and event.name not in DRIVERS_OWN:
                for lie in ([], [event._replace(size=event.size + PAGE)] if word != "free" else []):
                    liar = copy.copy(account)
                    liar.events = account.events[:at] + lie + account.events[at + 1:]
                    yield word, liar, recording
                break
    for number, (pid, events) in enumerate(recording.images):
        first = {word: at for at, (word, fields) in reversed(list(enumerate(events))) if counts(word, fields)}
        for word, at in first.items():
            for field in LIES[word]:
                told = [(word, [value + PAGE * (i == field) for i, value in enumerate(events[at][1])])] if field else []
                liar = copy.copy(recording)
                liar.images = [*recording.images[:number], (pid, events[:at] + told + events[at + 1:]), *recording.images[number + 1:]]
                yield word, account, liar


def counts(word, fields):
    """Whether an event is of memory of a device that has an address: what pools give out is told by their size alone."""
    kind = {"DEVICE_ALLOC": 1, "DEVICE_FREE": 0}.get(word)
    return word in LIES and (kind is None or fields[kind] in (LINEAR, MANAGED, PHYSICAL))


Observed = collections.namedtuple("Observed", "done account recording report")


def run_on(devices, *words, options=(), **more):
    """Runs a program on pretended devices. Its account, which goes with the run, is kept under a second name by the program."""
    with tempfile.TemporaryDirectory() as folder:
        kept, path = os.path.join(folder, "kept"), os.path.join(folder, "recording")
        environment = dict(more.pop("env", None) or os.environ, TMPDIR=folder)
        done = memtally.run("run", "-q", "--on", devices, "-o", path, *options, "--", "sh", "-c",
                            'ln -- "$MEMTALLY_REHEARSAL" "$0" && exec "$@"', kept, *words, env=environment, **more)
        assert os.path.exists(kept), (done.returncode, done.stderr[-3000:])
        report = json.loads(memtally.must("report", "--json", path).stdout)
        return Observed(done, Account(kept), Recording(path), report)
