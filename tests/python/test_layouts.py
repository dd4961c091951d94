#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the package says by ctypes of the library's structs, functions and numbers is what the compiler makes of the headers."""

import ctypes
import json
import os
import re
import shlex
import subprocess
import tempfile

import package
import tap

library, errors = package.part("library"), package.part("errors")


def compiled(body):
    """What a program prints whose main has `body`, compiled against the headers."""
    source = '#include <memtally/memtally.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n' + body + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        path, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        compiler = shlex.split(os.environ["CC"])
        include = os.path.join(package.ROOT, "include")
        checks = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wincompatible-pointer-types", "-I", include]
        linked = ["-L", os.environ["BUILD_DIR"], "-lmemtally", "-Wl,-rpath," + os.environ["BUILD_DIR"]]
        made = subprocess.run([*compiler, *checks, "-o", program, path, *linked], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_structs_have_the_size_and_the_offsets_that_the_compiler_gives_them():
    lines, expected = [], []
    for name, struct in library.STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, kind in struct._fields_:
            member = f"((struct {name} *)0)->{field}"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), sizeof({member}));')
            expected.append(f"{name}.{field} {getattr(struct, field).offset} {ctypes.sizeof(kind)}")
    assert compiled("\n".join(lines)).splitlines() == expected


def test_every_member_of_a_struct_is_declared():
    headers = ""
    for name in ("error", "host", "measure", "monitor", "pool", "track", "budget", "job"):
        with open(os.path.join(package.ROOT, "include", "memtally", name + ".h"), encoding="utf-8") as file:
            headers += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    for name, struct in library.STRUCTS.items():
        body = re.search(r"struct " + name + r" \{(.*?)\n\};", headers, flags=re.DOTALL).group(1)
        declared = re.findall(r"(\w+)(?:(?:\[[^]]*\])+|\)\([^)]*\))?;", body)
        assert declared == [field for field, *_ in struct._fields_], name


def test_functions_take_what_they_are_declared_to_take():
    zeros = {ctypes.c_int: "0", ctypes.c_uint: "0u", ctypes.c_uint64: "(uint64_t)0", ctypes.c_char_p: "(char *)0", ctypes.c_void_p: "(void *)0",
             ctypes.c_size_t: "(size_t)0", library.TrackPointer: "(struct mt_track *)0",
             library.MonitorPointer: "(struct mt_monitor *)0", ctypes.c_double: "0.0",
             library.AskPoolFunction: "(mt_monitor_ask_pool)0", library.CleanFunction: "(mt_monitor_clean)0",
             library.PoolPointer: "(struct mt_pool *)0", library.CudaPointer: "(struct mt_pool_cuda *)0",
             library.BackendPointer: "(struct mt_pool_backend *)0"}
    structs = {struct: f"struct {name}" for name, struct in library.STRUCTS.items()}
    pointed = {**structs, ctypes.c_uint64: "uint64_t", ctypes.c_void_p: "struct mt_measure *",
               library.TrackPointer: "struct mt_track *", library.MonitorPointer: "struct mt_monitor *",
               library.PoolPointer: "struct mt_pool *", library.CudaPointer: "struct mt_pool_cuda *"}
    results = {ctypes.c_int: "int", ctypes.c_char_p: "const char *", ctypes.c_size_t: "size_t", ctypes.c_uint64: "uint64_t",
               library.BackendPointer: "const struct mt_pool_backend *", None: None}
    lines = ["if (sizeof(void *) == 8)", "    return 0;"]
    for number, (name, result, parameters) in enumerate(library._FUNCTIONS):
        given = ", ".join(zeros[kind] if kind in zeros else f"({pointed[kind._type_]} *)0" for kind in parameters)
        value = f"{results[result]} v{number} = " if results[result] else ""
        lines += [f"{value}{name}({given});", f"(void)v{number};" if value else ""]
    compiled("\n".join(lines))


def test_numbers_are_those_of_the_headers():
    lines = ['printf("%d %d\\n", MT_UNKNOWN == UINT64_MAX, MT_MEASURE_HOST_ONLY);',
             'printf("%d %d\\n", MT_TRACK_SAMPLES, MT_TRACK_DEVICES);',
             'printf("%d %d %d\\n", MT_BUDGET_PLACES, MT_BUDGET_HOLDERS, MT_JOB_PLACES);',
             'printf("%d %d\\n", MT_MONITOR_CALLS, MT_N_PRESSURES);']
    lines += [f'printf("%d\\n", MT_MEASURE_{name.upper()});' for name in library.METHODS]
    lines += [f'printf("%d\\n", MT_PRESSURE_{name.upper()});' for name in library.PRESSURES]
    lines += [f'printf("%d\\n", MT_LEAK_{name.upper()});' for name in library.LEAKS]
    first, track, budget, monitor, *numbers = compiled("\n".join(lines)).splitlines()
    assert first == f"{int(library.UNKNOWN == 2**64 - 1)} {library.HOST_ONLY}"
    assert track == f"{library.TRACK_SAMPLES} {library.TRACK_DEVICES}"
    assert budget == f"{library.BUDGET_PLACES} {library.BUDGET_HOLDERS} {library.JOB_PLACES}"
    assert monitor == f"{library.MONITOR_CALLS} {len(library.PRESSURES)}"
    named = [*library.METHODS.values(), *range(len(library.PRESSURES)), *range(len(library.LEAKS))]
    assert numbers == [str(value) for value in named]


def test_each_code_of_an_error_has_one_kind_of_exception():
    listed = compiled("#define SHOW(name, value, sentence) puts(#name);\nMT_ERROR_LIST(SHOW)").split()
    kinds = [kind.code for kind in errors.Error.__subclasses__()]
    assert sorted(listed) == sorted(kinds), (listed, kinds)
    assert json.dumps(sorted(kinds)) == json.dumps(sorted(errors._kinds()))


if __name__ == "__main__":
    tap.main(globals())
