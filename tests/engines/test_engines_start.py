#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The engines that the other tests need are there and start."""

import os
import subprocess
import tempfile

import engine
import tap

NODE_PROGRAM = """
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
const path = createRequire(process.argv[2] + "/").resolve("node-llama-cpp");
const {getLlama} = await import(pathToFileURL(path).href);
const llama = await getLlama({gpu: false, build: "never"});
console.log("gpu", llama.gpu);
"""


def output_of(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command[0]} ended with status {done.returncode}:\n{done.stdout}"
    return done.stdout


def test_node_is_new_enough():
    version = output_of(engine.node(), "--version")
    assert int(version.lstrip("v").split(".")[0]) >= 20, version


def test_node_llama_cpp_loads_its_library():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "start.mjs")
        with open(path, "w", encoding="utf-8") as file:
            file.write(NODE_PROGRAM)
        assert output_of(engine.node(), path, engine.node_llama_cpp()).splitlines()[-1] == "gpu false"


def test_llama_cpp_has_its_three_programs():
    for program in ("llama-bench", "llama-server", "llama-fit-params"):
        assert "usage" in output_of(engine.llama_cpp(program), "--help").lower(), program


if __name__ == "__main__":
    tap.main(globals())
