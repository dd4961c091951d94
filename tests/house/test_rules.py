#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each check of scripts/lint finds what it is for: a copy of the checks judges a small bad tree."""

import os
import shutil
import subprocess
import tempfile

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LICENCE = "/* SPDX-License-Identifier: MIT */\n/* A file. */\n"


def judge(check, tree):
    """Whether the check holds over a tree of {path: text}, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(f"{ROOT}/scripts", f"{folder}/scripts", ignore=shutil.ignore_patterns("templates.d"))
        shutil.copy(f"{ROOT}/.clang-format", folder)
        for path, text in tree.items():
            os.makedirs(os.path.dirname(f"{folder}/{path}") or folder, exist_ok=True)
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run(
            [f"{folder}/scripts/lint.d/{check}"], cwd=folder, env={**os.environ, "BUILD_DIR": f"{folder}/build"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode == 0, done.stdout


def assert_found(check, tree, words):
    held, said = judge(check, tree)
    assert not held and words in said, said


def assert_clean(check, tree):
    held, said = judge(check, tree)
    assert held, said


def test_a_room_may_not_look_to_its_right():
    assert_clean("layers", {"src/tally/a.c": '#include "recording/facts.h"\n#include <stdio.h>\n'})
    assert_found("layers", {"src/recording/a.c": '#include "tally/a.h"\n'}, "src/recording/a.c:1: room recording")
    assert_found("layers", {"src/emit/a.c": "#include <zstd.h>\n"}, "<zstd.h> belongs to recording and cli")
    assert_found("layers", {"src/cli/rehearse/a.c": '#include "cli/estimate/a.h"\n'}, "cli/rehearse and cli/estimate do not look")
    circle = {"src/tally/a/x.h": '#include "tally/b/y.h"\n', "src/tally/b/y.h": '\n#include "tally/a/x.h"\n'}
    assert_found("layers", circle, "src/tally/b/y.h:2: src/tally/b includes src/tally/a, from where")
    assert_clean("layers", {**circle, "src/tally/b/y.h": "\n"})
    assert_found("layers", {"include/memtally/a.h": '#include "base/error.h"\n'}, "a public header may not")


def test_a_room_that_nobody_placed_is_found():
    assert_found("layers", {"src/attic/a.c": "\n"}, "room attic is not in the table")


def test_long_functions_are_found():
    def function(name, lines):
        return f"int {name}(void)\n{{\n" + "    ;\n" * (lines - 4) + "    return 0;\n}\n"

    usual = {f"src/base/{i}.c": LICENCE + function(f"f{i}", 10) for i in range(20)}
    assert_clean("lengths", {**usual, "src/base/a.c": LICENCE + function("f", 80)})
    assert_found("lengths", {**usual, "src/base/a.c": LICENCE + function("f", 81)}, "f has 81 lines")
    long = {f"src/base/{i}.c": LICENCE + function(f"f{i}", 45) for i in range(100)}
    assert_found("lengths", long, "functions are shorter than 45 lines")
    assert_found("lengths", {**usual, "src/base/a.h": "\n" * 801}, "801 lines")


def test_a_setting_that_is_not_taken_is_found():
    path, header = "src/cli/model/request.c", "include/memtally/settings.h"
    elsewhere = "sizes_are_sought", "host_used_bytes", "context_bytes", "residues", "n_residues"
    whole = "struct mt_predict_settings {\n    int eager;\n" + "".join(f"    int {name};\n" for name in elsewhere) + "};\n"
    assert_clean("settings", {header: whole, path: "settings->eager = 1;\n"})
    assert_found("settings", {header: whole, path: "options->eager = 1;\n"}, "does not name eager")
    assert_found("settings", {header: whole, path: "settings->eager = settings->residues;\n"}, "names residues")
    assert_found("settings", {header: whole.replace("    int residues;\n", ""), path: "settings->eager = 1;\n"}, "has no residues")


def test_numbers_without_a_name_are_found():
    table = "static const struct band bands[] = {\n    %s\n};\n"
    assert_found("tables", {"src/base/a.c": table % "{1, 2}, {3, 4},"}, "src/base/a.c:2: numbers beside each other")
    assert_found("tables", {"src/base/a.c": table % '{"a", -1, 0x2u},'}, "numbers beside each other")
    assert_clean("tables", {"src/base/a.c": table % '{"a", 1, .high = 2}, {"1, 2", 3},'})
    assert_clean("tables", {"src/base/a.c": table % "/* low, high */\n    {1, 2},"})
    assert_found("tables", {"src/base/a.c": "int f(void)\n{\n    return errno == 17;\n}\n"}, "src/base/a.c:3: errno == 17")
    assert_clean("tables", {"src/base/a.c": "int f(void)\n{\n    return errno == EEXIST || errno != 0;\n}\n"})


def test_badly_formatted_code_is_found():
    assert_clean("format", {f"{room}/a.c": "int a;\n" for room in ("include", "src", "tests", "examples", "engines")})
    tree = {f"{room}/a.c": "int a;\n" for room in ("include", "src", "tests", "examples", "engines")}
    assert_found("format", {**tree, "src/b.c": "int  a ;\n"}, "src/b.c:1")


def test_a_variable_of_the_library_is_found_and_a_constant_is_not():
    def library(text):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/a.c", "w", encoding="utf-8") as file:
                file.write(text)
            subprocess.run(["cc", "-c", "-fPIC", "-o", f"{folder}/a.o", f"{folder}/a.c"], check=True)
            subprocess.run(["ar", "rc", f"{folder}/libmemtally.a", f"{folder}/a.o"], check=True)
            done = subprocess.run(
                [f"{ROOT}/scripts/lint.d/globals"], env={**os.environ, "BUILD_DIR": folder}, capture_output=True, text=True, check=False
            )
        return done.returncode, done.stdout

    assert library("const char *const names[] = {\"a\", \"b\"};\nint f(void) { return names[0][0]; }\n")[0] == 0
    for text in ("static int n; int f(void) { return n++; }", "int n = 4;", "_Thread_local int n;"):
        status, said = library(text + "\n")
        assert status != 0 and "n is a mutable global" in said, (text, said)


def test_words_of_one_machine_are_found():
    assert_clean("words", {"a.c": "/* a worker in the home of sessions */\n"})
    for text in ("/wor" + "k/x", "/home/" + "ann/x", "registry.npm" + "js.org", "FIX" + "ME", "see issue" + " #3", "x "):
        assert_found("words", {"docs/a.md": text + "\n"}, "docs/a.md:1: ")


def test_a_test_that_cannot_fail_is_found():
    assert_found("words", {"tests/a.sh": "false || tr" + "ue\n"}, "a failure that nobody would see")
    assert_found("words", {"tests/a.c": "assert_true(tr" + "ue);\n"}, "an assertion that cannot fail")


def test_a_missing_licence_or_purpose_is_found():
    assert_clean("openings", {"src/base/a.c": LICENCE})
    assert_found("openings", {"src/base/a.c": "int a;\n"}, "src/base/a.c:1: the first line")
    assert_found("openings", {"src/base/a.c": "/* SPDX-License-Identifier: MIT */\nint a;\n"}, "src/base/a.c:2: no paragraph")


def test_broken_links_are_found():
    assert_clean("links", {"README.md": "# A b\n[here](#a-b) [there](docs/x.md#c) [web](https://a.example)\n", "docs/x.md": "## C\n"})
    assert_found("links", {"README.md": "[there](docs/x.md)\n"}, "README.md:1: no such file: docs/x.md")
    assert_found("links", {"README.md": "# A\n[here](#b)\n"}, "README.md:2: no such heading: #b")


def test_examples_are_run_in_order():
    assert_clean("examples", {"README.md": "```sh test\necho a >b\n```\n\n```sh test\ngrep a b\n```\n"})
    assert_clean("examples", {"README.md": "```sh\nfalse\n```\n"})
    assert_found("examples", {"README.md": "x\n\n```sh test\nfalse\ntrue\n```\n"}, "README.md:3: ended with status 1")


def test_the_map_names_the_rooms_that_there_are():
    tree = {"src/base/a.c": "\n", "src/tally/a.c": "\n"}
    assert_clean("rooms", {**tree, "docs/ARCHITECTURE.md": "`src/base/` `src/tally/`\n"})
    assert_found("rooms", {**tree, "docs/ARCHITECTURE.md": "`src/base/`\n"}, "does not name src/tally")
    assert_found("rooms", {"src/base/a.c": "\n", "docs/ARCHITECTURE.md": "`src/base/` `src/attic/`\n"}, "names src/attic")
    assert_found("rooms", {**tree, "docs/ARCHITECTURE.md": "`src/base/` `src/tally/b.c`\n"}, "names src/tally/b.c")
    assert_found("rooms", {**tree, "docs/ARCHITECTURE.md": "`src/base/` `src/tally/`" + " x" * 1500}, "1502 words")


def test_a_room_without_a_guide_or_with_a_stale_one_is_found():
    tree = {"src/base/a.c": "\n", "src/base/meson.build": "# Guide: What all use.\n#   a.c  a\n"}
    assert_clean("guides", tree)
    assert_found("guides", {**tree, "src/base/meson.build": "# What all use.\n"}, "src/base/meson.build:1: does not open")
    assert_found("guides", {**tree, "src/base/meson.build": "# Guide: x\n#   b.c  b\n"}, "src/base/meson.build:2: the guide names b.c")
    assert_found("guides", {**tree, "src/tally/a.c": "\n"}, "src/tally: has no meson.build")


def test_words_that_need_reading_twice_are_found():
    assert_clean("prose", {"README.md": "A short sentence. " * 40 + "\n", "src/base/a.c": "/* A value is said. */\n"})
    assert_found("prose", {"README.md": "word " * 36 + ".\n"}, "README.md:1: a sentence of 3")
    assert_found("prose", {"src/base/a.c": "/* It is said " + "to be so. */\n"}, "src/base/a.c:1: 'is said to'")
    assert_found("prose", {"tests/a.c": "/* O" + "f a block the address. */\n"}, "tests/a.c:1: begins with its last part")
    assert_found("prose", {"python/a.py": '    """O' + 'f a block."""\n'}, "python/a.py:1: begins with its last part")
    page = "# NAME\n\na\n" + "\nb\n" * 80
    assert_found("prose", {"docs/man/a.1.scd": page}, "its section IN SHORT has 0 lines")
    assert_clean("prose", {"docs/man/a.1.scd": "# IN SHORT\n\na\n\n" + page})


def test_what_is_dead_and_comments_that_lost_what_they_speak_of_are_found():
    used = {"src/base/a.h": "int f(int a);\n", "src/base/a.c": "/* See f(). */\nint f(int a)\n{\n    return a;\n}\n"}
    assert_clean("dead", {**used, "src/base/b.c": "static int g(void)\n{\n    return f(1);\n}\nint (*p)(void) = g;\n"})
    assert_found("dead", {**used, "tests/unit/a.c": "int main(void)\n{\n    return f(1);\n}\n"}, "src/base/a.c:2: nothing but a test calls f()")
    assert_clean("dead", {**used, "memtally.sym": "f;\n"})
    assert_found("dead", {"src/base/a.c": "/* As gone() does. */\nint x;\n"}, "src/base/a.c:1: the text names gone")
    assert_found("dead", {"docs/a.md": "Call mt_gone_away.\n"}, "docs/a.md:1: the text names mt_gone_away")
    assert_found("dead", {"src/base/a.c": "/* One. */\n/* Two. */\nint x;\n"}, "src/base/a.c:1: two comments")


def test_what_a_public_header_hands_out_without_a_way_back_is_found():
    def header(text):
        return {"include/memtally/a.h": text + "\n"}

    makes = "int mt_a_create(struct mt_a **a);\n"
    assert_clean("interface", header(makes + "void mt_a_destroy(struct mt_a *a);"))
    assert_clean("interface", header("int mt_a_look(const struct mt_a **borrowed);"))
    assert_found("interface", header(makes), "struct mt_a is taken back by nothing")
    both = "void mt_a_destroy(struct mt_a *a);\nvoid mt_a_finish(struct mt_a *a);"
    assert_found("interface", header(makes + both), "taken back by mt_a_destroy, mt_a_finish")
    assert_found("interface", header("/* The caller frees *a with free(). */"), "include/memtally/a.h:1: leaves something to free()")
    assert_found("interface", header("struct a {\n    int without_copies;\n};"), "include/memtally/a.h:2: the flag without_copies")
    assert_found("interface", header("struct a {\n    uint64_t held; /* bytes */\n};"), "held counts bytes")


def test_the_interface_is_called_unstable_as_long_as_it_is():
    def tree(version, soname, words):
        return {"meson.build": f"project('memtally', 'c',\n  version: '{version}')\nmemtally_shared = shared_library('memtally',\n  soversion: '{soname}')\n",
                "include/memtally/memtally.h": f"/* The interface is {words}. */\n"}

    assert_clean("interface", tree("0.2.0", 0, "*unstable*"))
    assert_clean("interface", tree("1.0.0", 1, "stable"))
    assert_found("interface", tree("0.2.0", 1, "*unstable*"), "the library's soname is 0 until version 1.0.0")
    assert_found("interface", tree("0.2.0", 0, "stable"), "the interface is called *unstable* until version 1.0.0")
    assert_found("interface", tree("1.0.0", 0, "*unstable*"), "the library's soname is 0 until version 1.0.0, and no longer")


def test_a_recipe_that_does_not_apply_is_found():
    change = "## A\n```diff src/base/a.c\n a\n+b\n```\n"
    tools = {}
    for name in ("run", "recipes.py"):
        with open(f"{ROOT}/tests/recipes/{name}", encoding="utf-8") as file:
            tools[f"tests/recipes/{name}"] = file.read()
    assert_clean("recipes", {**tools, "src/base/a.c": "a\n", "docs/HOW-TO-ADD.md": change})
    assert_found("recipes", {**tools, "src/base/a.c": "c\n", "docs/HOW-TO-ADD.md": change}, "stands there 0 times")


def test_a_file_that_a_program_left_in_the_root_is_found():
    assert_clean("root", {"README.md": "# A\n", "src/base/a.c": "\n"})
    assert_found("root", {".0": "L 0x1\n"}, ".0: is not known in the root")
    assert_found("root", {"rec/1-0.txt": "\n"}, "rec/1-0.txt: is not known in the root")


def test_a_format_that_is_described_wrongly_is_found():
    tree = {}
    paths = ["docs/FORMATS.md", "src/recording/format.h", "include/memtally/category.h"]
    for folder, _, names in os.walk(f"{ROOT}/src/cli"):
        paths += [os.path.relpath(f"{folder}/{name}", ROOT) for name in names if name.endswith(".c")]
    for path in paths:
        with open(f"{ROOT}/{path}", encoding="utf-8") as file:
            tree[path] = file.read()

    def with_change(path, old, new):
        assert old in tree[path], old
        return {**tree, path: tree[path].replace(old, new, 1)}

    page = "docs/FORMATS.md"
    assert_clean("formats", tree)
    for old, new, words in (
        ("| 2 | `FREE` |", "| 3 | `FREE` |", "events: 2 FREE address is missing"),
        ("`FREE` | address |", "`FREE` | address size |", "events: 2 FREE address is missing"),
        ("| 112 | 4 | `crc32c`", "| 116 | 4 | `crc32c`", "mt_file_header: 112 4 crc32c is missing"),
        ("| 76 | 4 | `used` |", "| 76 | 8 | `used` |", "mt_block_header: 76 8 used is not in the sources"),
        ("| 2 | `MT_FILE_WATCH` |", "| 3 | `MT_FILE_WATCH` |", "mt_record_file_kind: MT_FILE_WATCH 3 is not"),
        ("| 9 | `MT_CATEGORY_CACHED` |", "| 8 | `MT_CATEGORY_CACHED` |", "mt_category: MT_CATEGORY_CACHED 9 is missing"),
        ("| `MT_MAX_FRAMES` | 64 |", "| `MT_MAX_FRAMES` | 65 |", "MT_MAX_FRAMES is 64, not 65"),
        ("| `swap_bytes` |", "| `swapped_bytes` |", "JSON key: swap_bytes is missing"),
        ("\nrecording,place,level", "\nplace,level", "the CSV headings recording,place,level"),
    ):
        assert_found("formats", with_change(page, old, new), words)
    assert_found("formats", with_change("src/recording/format.h", "X(LOOK, 23,", "X(GLANCE, 23,"), "23 GLANCE resident_bytes is missing")
    assert_found("formats", with_change("src/cli/complaint.c", '"sentence"', '"text"'), "JSON key of an error: text is missing")
    new = {**tree, "src/cli/new.c": 'void f(struct mt_json *json) { mt_json_begin_object(json, NULL); }\n'}
    assert_found("formats", new, "src/cli/new.c: writes JSON that no table")


def test_a_family_that_no_engine_has_is_found():
    paths = ("data/engines/llama.cpp/architectures", "data/engines/transformers/model_types", "data/engines/llama.cpp/engine.table",
             "scripts/templates.d/families", "src/model/families.def", "src/model/sample/shapes.c", "src/predict/llama/cache.c",
             "src/predict/budget/budget.c")
    tree = {path: open(f"{ROOT}/{path}", encoding="utf-8").read() for path in paths}

    def finds(path, old, new, words):
        assert old in tree[path], (path, old)
        assert_found("families", {**tree, path: tree[path].replace(old, new, 1)}, words)

    assert_clean("families", tree)
    finds("data/engines/llama.cpp/engine.table", " graniteswitch ", " granite-switch ", "names granite-switch, which")
    finds("src/model/families.def", '"granite_swa"', '"granite-swa"', "granite-swa is no family")
    finds("src/model/families.def", ', "qwen3_5",', ', "qwen3.5",', "qwen3.5 is no model_type")
    finds("src/model/families.def", 'LINEAGE(QWEN35, "qwen35"', 'LINEAGE(QWEN35, "qwen3.5"', "begins with qwen3.5")
    finds("src/model/families.def", "\nGRAPH(QWEN3,", "\nGRAPH(QWEN2,", "GRAPH of QWEN2 stands in the record of QWEN3")
    finds("src/model/families.def", 'HF(LLAMA, "mistral",', 'HF(LLAMA, "mixtral",', "mixtral is there twice")
    finds("src/model/sample/shapes.c", '"qwen3moe"', '"qwen3-moe"', "qwen3-moe is no family")
    finds("src/predict/llama/cache.c", "mt_arch_of(d->architecture) == MT_ARCH_DEEPSEEK4", '!strcmp(d->architecture, "deepseek4")',
          "spells the family deepseek4")
    finds("src/predict/budget/budget.c", "mt_is_of_lineage(in->d->architecture, MT_LINEAGE_GPT_OSS)", 'mt_begins(in->d->architecture, "gpt")',
          "looks for names that begin with gpt")


def test_an_engine_is_named_where_it_is_data():
    table = {"data/engines/engines.def": '/* Engines. */\nENGINE(vllm, "vllm")\n'}
    new = "src/cli/new.c"
    assert_clean("engines", {**table, new: '/* "vllm" */\nint f(void) { return mt_engine_has(e, "flag.style", "vllm"); }\n'})
    assert_found("engines", {**table, new: 'int f(void)\n{\n    return !strcmp(name, "vllm");\n}\n'}, 'src/cli/new.c:3: names "vllm"')
    assert_found("engines", {**table, new: 'char *server = "llama-server";\n'}, 'names "llama-server"')
    assert_found("engines", {**table, "src/cli/document/shell.c": "int shell;\n"}, "src/cli/document/shell.c names no engine any more")
    words = {**table, "data/engines/vllm/engine.table": "flags 0 context=--max-model-len|-l\nsays.1 0 the cache is too small ; source\n"
             'body.complete 0 {"n_predict":%g}\nlog.ready 0 listening on http|is all ears\n'}
    assert_clean("engines", {**words, new: 'char *own = "--max-model-length";\n'})
    assert_found("engines", {**words, new: 'char *flag = "a smaller --max-model-len";\n'}, 'says "a smaller --max-model-len"')
    assert_found("engines", {**words, new: 'int f = has("it said: the cache is too small");\n'}, "src/cli/new.c:1: says")
    assert_found("engines", {**words, new: 'char *body = "{\\"n_predict\\":1}";\n'}, "bodies")
    assert_found("engines", {**words, new: 'int f = has("the server is all ears");\n'}, "lines of log")
    assert_found("engines", {**table, "python/memtally/watch/phases.tsv": "# package\nvllm\t0.7\n"}, "phases.tsv:2: is of an engine")
    assert_clean("engines", {**words, "src/predict/new.c": 'char *flag = "--max-model-len";\n'})


def test_faulty_scripts_are_found():
    assert_found("scripts", {"a.sh": "#!/bin/sh\nrm $1\n"}, "a.sh:1: has a #! line")
    assert_found("scripts", {"a.sh": "#!/bin/sh\nrm $1\n"}, "SC2086")
    assert_found("scripts", {"a.py": "def\n"}, "a.py:1: invalid syntax")


if __name__ == "__main__":
    tap.main(globals())
