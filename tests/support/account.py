# SPDX-License-Identifier: MIT
"""The account of a rehearsal, for tests and for looking into one: makes an account, runs a program
with the pretended devices preloaded, and reads what was written. The structures are those of
src/rehearse/account.h.

    account.py [--device 24GiB,24GiB] [--host 64GiB] OBJECT COMMAND …   runs it and prints the events
"""

import argparse
import ctypes as c
import os
import subprocess
import sys
import tempfile

HOST = 255
PLANNED, MAPPED = 4, 1
FORMAT = 11
DEVICES_MAX = 64
ERAS_MAX = 32
SEEN_MAX = 96
EVENTS_MAX = 262144
SHARED_MAX = 4096
PROCESSES = 512
KINDS = ["none", "alloc", "free", "usage", "refuse", "mark", "note", "end"]
CATEGORIES = ["none", "weights", "kv_cache", "recurrent_state", "activations", "graphs", "workspace",
              "communication", "context", "cached", "runtime", "training"]


class Rules(c.Structure):
    _fields_ = [(name, c.c_char * size) for name, size in
                (("kind", 16), ("generation", 16), ("registry", 16), ("device_prefix", 16), ("host_buffer", 32))]
    _fields_ += [(name, c.c_uint64) for name in
                 ("alignment", "host_alignment", "row_padding", "offload_batch", "buffer_bytes_max")]
    _fields_ += [(name, c.c_uint32) for name in
                 ("has_events", "has_async", "has_split_buffers", "is_unified", "flash_attention", "build",
                  "capability", "granule_bytes", "graph_dependencies", "flash_types", "host_extra_bytes",
                  "is_reordered", "perhaps_dependencies", "is_of_vendor", "is_generation_assumed",
                  "is_unconfirmed")]


class Era(c.Structure):
    _fields_ = [("since", c.c_uint64), ("rules", Rules)]


class Seen(c.Structure):
    _fields_ = [(name, c.c_uint32) for name in ("build", "ggml", "api_version")]


class Builds(c.Structure):
    _fields_ = [(name, c.c_uint32) for name in ("is_told", "n_eras", "n_seen")]
    _fields_ += [("era", Era * ERAS_MAX), ("seen", Seen * SEEN_MAX), ("ggml_version", c.c_char * 24)]
    _fields_ += [(name, c.c_uint32) for name in ("low", "high", "doubts", "doubts_met", "generations_differ")]


class Gpu(c.Structure):
    _fields_ = [("name", c.c_char * 64)]
    _fields_ += [(name, c.c_uint32) for name in
                 ("capability", "multiprocessors", "shared_bytes", "shared_block_bytes", "threads_most", "blocks_most",
                  "l2_bytes", "clock_khz", "memory_clock_khz", "memory_bus_bits", "link", "is_ecc")]
    _fields_ += [(name, c.c_uint64) for name in ("context_bytes", "module_bytes", "communication_bytes", "communication_many_bytes",
                                                 "graph_node_bytes")]


class Cuda(c.Structure):
    _fields_ = [(name, c.c_uint32) for name in
                ("driver_version", "copy_bytes_most", "n_contexts", "n_missing", "n_private", "n_read_back", "n_askings")]


class Device(c.Structure):
    _fields_ = [("name", c.c_char * 32), ("description", c.c_char * 64)]
    _fields_ += [(name, c.c_uint64) for name in
                 ("total_bytes", "free_bytes", "used_bytes", "peak_bytes", "held_bytes")]
    _fields_ += [("gpu", Gpu)]


class Event(c.Structure):
    _fields_ = [("kind", c.c_uint32), ("place", c.c_uint8), ("category", c.c_uint8), ("flags", c.c_uint16),
                ("pid", c.c_uint32), ("tid", c.c_uint32)]
    _fields_ += [(name, c.c_uint64) for name in ("time_ns", "object", "bytes", "free_bytes")]
    _fields_ += [("name", c.c_char * 48), ("detail", c.c_char * 96)]


class Shared(c.Structure):
    _fields_ = [("bytes", c.c_uint64)]
    _fields_ += [(name, c.c_uint32) for name in ("holders", "generation", "place")]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint32), ("padding", c.c_uint32)]
    _fields_ += [("image", c.c_uint64), ("host_used_bytes", c.c_uint64)]
    _fields_ += [(name, c.c_uint64 * DEVICES_MAX) for name in ("used_bytes", "held_bytes")]


class Account(c.Structure):
    _fields_ = [("magic", c.c_char * 8), ("format", c.c_uint32), ("n_devices", c.c_uint32)]
    _fields_ += [("start_ns", c.c_uint64), ("host_bytes", c.c_uint64), ("rules", Rules), ("builds", Builds),
                 ("cuda", Cuda), ("device", Device * DEVICES_MAX)]
    _fields_ += [(name, c.c_uint32) for name in
                 ("n_preloaded", "n_attached", "api_version", "is_refused")]
    _fields_ += [("refusal", c.c_char * 144), ("engine_version", c.c_char * 64), ("host_used_bytes", c.c_uint64),
                 ("host_peak_bytes", c.c_uint64), ("shared", Shared * SHARED_MAX), ("n_events", c.c_uint64), ("event", Event * EVENTS_MAX),
                 ("n_rows", c.c_uint64),
                 ("process", Process * PROCESSES)]


def size(text):
    """"24GiB" in bytes."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if text.endswith(unit):
            return int(float(text[:-3]) * (1 << shift))
    return int(text)


def make(path, devices, host_bytes=0):
    """An account of devices that behave like NVIDIA's."""
    account = Account()
    account.magic, account.format, account.n_devices, account.host_bytes = b"mtrehear", FORMAT, len(devices), host_bytes
    account.rules = Rules(kind=b"cuda", generation=b"ampere", registry=b"CUDA", device_prefix=b"CUDA",
                          host_buffer=b"CUDA_Host", alignment=128, host_alignment=32, row_padding=512,
                          offload_batch=32, has_events=1, has_async=1, has_split_buffers=1, flash_attention=1,
                          build=11434, capability=860, graph_dependencies=7)
    account.builds.is_told = 1
    for i, total in enumerate(devices):
        account.device[i] = Device(name=b"CUDA%d" % i, description=b"Pretended", total_bytes=total, free_bytes=total)
    head = Account.event.offset
    with open(path, "wb") as file:
        file.write(bytes(account)[:head])
        file.truncate(c.sizeof(Account))


def read(path):
    """The account as it stands."""
    with open(path, "rb") as file:
        head = file.read(Account.event.offset)
        account = Account()
        c.memmove(c.byref(account), head, len(head))
        count = min(account.n_events, EVENTS_MAX)
        events = (Event * count).from_buffer_copy(file.read(count * c.sizeof(Event)))
    return account, list(events)


def environment(preload, path):
    """What a rehearsed program is started with."""
    return dict(os.environ, LD_PRELOAD=preload, GGML_BACKEND_PATH=preload, MEMTALLY_REHEARSAL=path,
                CUDA_VISIBLE_DEVICES="-1")


def place(event):
    return "host" if event.place == HOST else f"gpu:{event.place}"


def held(events, planned=False):
    """Bytes by place and category after the last event, and the highest of each place."""
    live, now, peak = {}, {}, {}
    for event in events:
        key = (event.pid, event.object)
        kind = KINDS[event.kind]
        if kind == "alloc" and bool(event.flags & PLANNED) == planned:
            live[key] = [place(event), CATEGORIES[event.category], event.bytes]
        elif kind == "usage" and key in live:
            live[key][1] = CATEGORIES[event.category]
        elif kind == "free":
            live.pop(key, None)
        now = {}
        for where, _, bytes_ in live.values():
            now[where] = now.get(where, 0) + bytes_
        for where, bytes_ in now.items():
            peak[where] = max(peak.get(where, 0), bytes_)
    rows = {}
    for where, category, bytes_ in live.values():
        rows[where, category] = rows.get((where, category), 0) + bytes_
    return rows, peak


def dump(path, file=sys.stdout):
    account, events = read(path)
    print(f"preloaded {account.n_preloaded} attached {account.n_attached} api {account.api_version} "
          f"refused {account.is_refused} engine {account.engine_version.decode()!r} "
          f"host {account.host_used_bytes} peak {account.host_peak_bytes} events {account.n_events}", file=file)
    for event in events:
        print(f"{(event.time_ns - events[0].time_ns) / 1e6:9.1f} {event.pid} {KINDS[event.kind]:6} {place(event):6} "
              f"{CATEGORIES[event.category]:11} {event.flags:2} {event.object:16x} {event.bytes:15} "
              f"{event.name.decode(errors='replace')} | {event.detail.decode(errors='replace')}", file=file)
    for planned in (False, True):
        rows, peak = held(events, planned)
        print("planned" if planned else "held", {" ".join(k): v for k, v in sorted(rows.items())}, "peak", peak,
              file=file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("object")
    parser.add_argument("--device", default="24GiB")
    parser.add_argument("--host", default="0")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/account"
        make(path, [size(text) for text in options.device.split(",")], size(options.host))
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        code = 0
        try:
            code = subprocess.run(command, env=environment(os.path.abspath(options.object), path), check=False).returncode
        except KeyboardInterrupt:
            pass
        dump(path)
        sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
