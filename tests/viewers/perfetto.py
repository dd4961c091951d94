#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A trace of `memtally report --format perfetto`, decoded by Perfetto's own declarations: perfetto_trace_pb2 of PyPI's `perfetto`.
Speaks TAP.

usage: perfetto.py MEMTALLY. Needs PyPI (2 MB). Neither Perfetto's page nor its trace processor is asked.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'support'))
import tap  # noqa: E402  (stands in tests/support)

PACKAGES = ('perfetto==0.16.0', 'protobuf==6.33.0')
DECODE = """
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

def unknown(message):
    here = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            here += sum(map(unknown, value)) if field.is_repeated else unknown(value)
    return here

trace = Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
tracks = {p.track_descriptor.uuid: (p.track_descriptor.name, p.track_descriptor.HasField('counter'))
          for p in trace.packet if p.HasField('track_descriptor')}
events = [(p.timestamp, TrackEvent.Type.Name(p.track_event.type), *tracks[p.track_event.track_uuid], p.track_event.counter_value)
          for p in trace.packet if p.HasField('track_event')]
json.dump({'unknown': unknown(trace), 'events': events}, sys.stdout)
"""
HOME = tempfile.TemporaryDirectory(prefix='memtally-perfetto-')


def call(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout


@functools.cache
def python():
    """One that has the package."""
    folder = os.path.join(HOME.name, 'venv')
    venv.create(folder, with_pip=True)
    try:
        call(f'{folder}/bin/pip', 'install', '--quiet', '--no-deps', *PACKAGES)
    except subprocess.CalledProcessError as error:
        raise tap.Skip(f'PyPI gives no perfetto: {error.stderr[-200:]}') from error
    return f'{folder}/bin/python'


@functools.cache
def decoded():
    """What the declarations make of a trace of a program that takes 80 MiB, and the same recording's timeline as JSON."""
    recording, trace = os.path.join(HOME.name, 'r'), os.path.join(HOME.name, 't.pftrace')
    call(sys.argv[1], 'run', '-q', '-o', recording, '--', sys.executable, '-c', 'x = bytearray(80 << 20); del x')
    call(sys.argv[1], 'report', recording, '--format', 'perfetto', '-o', trace)
    timeline = json.loads(call(sys.argv[1], 'report', recording, '--json'))['timeline']
    return json.loads(call(python(), '-c', DECODE, trace)), timeline


def test_every_field_is_one_that_perfetto_declares():
    said, _ = decoded()
    assert said['events'] and said['unknown'] == 0, said


def test_the_counter_of_the_host_has_the_timeline():
    said, timeline = decoded()
    counted = [(at, value) for at, kind, name, is_counter, value in said['events']
               if name == 'host, resident' and is_counter and kind == 'TYPE_COUNTER']
    assert counted == [(point['time_ns'], point['resident_bytes']) for point in timeline], (counted, timeline)
    assert max(value for _, value in counted) > 80 << 20, counted


if __name__ == '__main__':
    with HOME:
        tap.main(globals(), [name for name in globals() if name.startswith('test_')])
