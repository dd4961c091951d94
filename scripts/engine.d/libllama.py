#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a folder of libllama's libraries and llama-plan, the program that asks them.

usage: libllama.py WHEEL FOLDER                of a wheel of llama-cpp-py-sync
       libllama.py --built BIN SOURCE FOLDER   of libraries in BIN that were built from SOURCE

Wheels carry the declarations of their build, and libraries that ask for glibc 2.38 by name and hardly use it: that
version is marked as one that may be missing, and older_glibc.c has the functions.
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS_NEEDED = 0x6ffffffe  # SHT_GNU_verneed
MAY_BE_MISSING = 2  # VER_FLG_WEAK
NEW = b'GLIBC_2.38'
NAME = re.compile(r'lib(llama|ggml[a-z-]*)\.so(\.0)?')


def weakened(library):
    """The bytes of an ELF library whose wish for NEW may stay unfulfilled."""
    data = bytearray(library)
    sections, = struct.unpack_from('<Q', data, 40)
    size, n = struct.unpack_from('<HH', data, 58)
    for i in range(n):
        _, kind, _, _, at, _, link, _ = struct.unpack_from('<IIQQQQII', data, sections + i * size)
        if kind != VERSIONS_NEEDED:
            continue
        names, = struct.unpack_from('<Q', data, sections + link * size + 24)
        step = 1
        while step:
            _, _, _, first, step = struct.unpack_from('<HHIII', data, at)
            version, onward = at + first, 1
            while onward:
                _, flags, _, name, onward = struct.unpack_from('<IHHII', data, version)
                if data[names + name:data.index(0, names + name)] == NEW:
                    struct.pack_into('<H', data, version + 4, flags | MAY_BE_MISSING)
                version += onward
            at += step
    return bytes(data)


def from_wheel(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in names:
            base = os.path.basename(name)
            found = NAME.fullmatch(base)
            if found and (found[2] or name + '.0' not in names):
                (folder / base.removesuffix('.0')).with_suffix('.so.0').write_bytes(weakened(archive.read(name)))
        bindings = archive.read(next(name for name in names if name.endswith('/_cffi_bindings.py'))).decode()
    (folder / 'llama_declarations.h').write_text(re.search(r'_LLAMA_H_CDEF = """(.*?)"""', bindings, re.DOTALL)[1])
    return []


def from_build(binaries, source, folder):
    for path in binaries.iterdir():
        if NAME.fullmatch(path.name) and path.name.endswith('.0'):
            shutil.copy(path, folder)
    (folder / 'llama_declarations.h').write_text((source / 'include' / 'llama.h').read_text())
    return [f'-I{source}/ggml/include']


def main(arguments):
    folder = pathlib.Path(arguments[-1])
    folder.mkdir()
    if arguments[0] == '--built':
        flags = from_build(*map(pathlib.Path, arguments[1:]))
    else:
        flags = from_wheel(arguments[0], folder)
    if 'n_outputs_max;' in (folder / 'llama_declarations.h').read_text():
        flags.append('-DHAS_OUTPUTS')
    # Declarations of wheels have some types as plain pointers: they are for a program in another language.
    subprocess.run(['cc', '-O1', '-w', '-rdynamic', f'-I{folder}', *flags, '-o', folder / 'llama-plan', HERE / 'llama_plan.c',
                    HERE / 'older_glibc.c', folder / 'libllama.so.0', '-Wl,-rpath,$ORIGIN', '-Wl,--allow-shlib-undefined'], check=True)
    (folder / 'llama_declarations.h').unlink()


if __name__ == '__main__':
    main(sys.argv[1:])
