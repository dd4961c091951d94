#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Documents of `memtally report --format speedscope`, opened by npm's speedscope in headless Chromium. Speaks TAP.

usage: speedscope.py MEMTALLY. Needs chromium, npm and the npm registry. The page is the one that `npx speedscope FILE` opens, by the way
that it opens a file. Its timeline is drawn; its table (the key 3, "Sandwich") has words, which are compared.
"""
import base64
import functools
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'support'))
import tap  # noqa: E402  (stands in tests/support)

SPEEDSCOPE = '1.25.0'
MIB = 1 << 20
HOME = tempfile.TemporaryDirectory(prefix='memtally-viewer-')


def call(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=200, check=True, **more).stdout


@functools.cache
def page():
    """speedscope's index.html."""
    for program in ('chromium', 'npm'):
        if not shutil.which(program):
            raise tap.Skip(f'there is no {program}')
    try:
        call('npm', 'pack', f'speedscope@{SPEEDSCOPE}', '--silent', cwd=HOME.name)
    except subprocess.CalledProcessError as error:
        raise tap.Skip('npm cannot fetch speedscope: ' + error.stderr.strip()[-200:]) from error
    call('tar', 'xzf', f'speedscope-{SPEEDSCOPE}.tgz', cwd=HOME.name)
    return pathlib.Path(HOME.name, 'package/dist/release/index.html')


def shown(profile):
    """The words of the page with a document, which speedscope's own command hands over by a script, as here."""
    script = pathlib.Path(HOME.name, 'profile.js')
    encoded = base64.b64encode(profile.encode()).decode()
    table = "setInterval(() => window.dispatchEvent(new KeyboardEvent('keypress', {key: '3'})), 500)"
    script.write_text(f'speedscope.loadFileFromBase64("memtally.json", "{encoded}");{table}', encoding='utf-8')
    sandbox = ['--no-sandbox'] if os.geteuid() == 0 else []
    return text_of(call('chromium', '--headless=new', *sandbox, '--disable-gpu', '--enable-unsafe-swiftshader', '--disable-dev-shm-usage',
                        '--no-first-run', '--allow-file-access-from-files', f'--user-data-dir={HOME.name}/profile', '--window-size=1000,700',
                        '--virtual-time-budget=20000', '--dump-dom', f'file://{page()}#localProfilePath={script}'))


def text_of(document):
    """The words that a page shows."""
    return re.sub(r'\s+', ' ', re.sub(r'<[^>]*>', ' ', re.sub(r'<(script|style).*?</\1>', ' ', document, flags=re.S)))


def snapshot():
    """A snapshot of PyTorch's allocator: two blocks of 40 and 24 MiB, from two functions."""
    def block(address, size, name):
        frames = [{'filename': 'model.py', 'line': 7, 'name': name}, {'filename': 'main.py', 'line': 3, 'name': 'main'}]
        return {'address': address, 'size': size, 'requested_size': size, 'state': 'active_allocated', 'frames': frames}
    blocks = [block(0x10000000, 40 * MIB, 'load_weights'), block(0x10000000 + 40 * MIB, 24 * MIB, 'make_cache')]
    segment = {'device': 0, 'address': 0x10000000, 'total_size': 64 * MIB, 'allocated_size': 64 * MIB, 'active_size': 64 * MIB,
               'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': blocks}
    return {'segments': [segment], 'device_traces': [[]], 'allocator_settings': {}, 'external_annotations': []}


@functools.cache
def profile():
    path = pathlib.Path(HOME.name, 'snapshot.pickle')
    path.write_bytes(pickle.dumps(snapshot()))
    return call(sys.argv[1], 'report', str(path), '--at', 'exit', '--format', 'speedscope')


def test_speedscope_takes_the_document_and_shows_its_functions():
    """40 and 24 MiB of 64, which the table has as shares."""
    text = shown(profile())
    tap.comment(text[:400])
    for words in ('40.00 MB(63%)', '24.00 MB(38%)', 'load_weights', 'make_cache', 'main', '64.00 MB(100%)'):
        assert words.replace(' ', '') in text.replace(' ', ''), (words, text[:2000])


def test_a_document_that_is_no_profile_is_refused_by_it():
    """So that the test above can fail."""
    text = shown('{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": 1}')
    assert 'Something went wrong' in text, text[:1000]


if __name__ == '__main__':
    with HOME:
        tap.main(globals(), [name for name in globals() if name.startswith('test_')])
