# SPDX-License-Identifier: MIT
# A model in an engine that is a Python package: which Python is started, with which of our programs and which settings
# as JSON, and what is refused before. No engine is needed: the Pythons here only say what they are told.
mkdir -p venv/bin model other/bin path
echo '{"model_type": "llama"}' > model/config.json
cat > venv/bin/python << 'END'
#!/bin/sh
echo "${1##*/} $(basename "$2") $3" >&2
exit 1
END
sed 's/echo "/echo "other: /' venv/bin/python > other/bin/python
sed 's/echo "/echo "of PATH: /' venv/bin/python > path/python3
chmod +x venv/bin/python other/bin/python path/python3
try()
{
    memtally rehearse "$@"
    echo "exit $?"
}

# What was left out is left to the engine; a setting has its own type in JSON.
try model --engine vllm --engine-path venv --device 24GiB
try model --engine vllm@0.11.0 --engine-path venv --device 24GiB --context 8k --sequences 4 --kv-type fp8 \
    --weight-type bf16 --batched-tokens 2048 --memory-share 0.85 --eager
try model --engine transformers@4.57.6 --engine-path venv/bin/python --device 24GiB --context 1k --sequences 2 \
    --weight-type f16

try model --engine sglang@0.5.23 --engine-path venv --device 24GiB --context 8k --sequences 4 --kv-type fp8 \
    --weight-type bf16 --batched-tokens 2048 --memory-share 0.85 --eager

# vLLM and SGLang have a rank for each device that pipeline stages leave; transformers is told how many devices there are.
try model --engine vllm --engine-path venv --device 24GiB,24GiB
try model --engine vllm --engine-path venv --device 4x24GiB --pipeline-parallel 2
try model --engine vllm --engine-path venv --device 4x24GiB --tensor-parallel 2
try model --engine sglang --engine-path venv --device 4x24GiB --pipeline-parallel 2
try model --engine transformers --engine-path venv --device 24GiB,24GiB

# Without --engine-path: the active environment, else PATH.
VIRTUAL_ENV=$PWD/other try model --engine vllm --device 24GiB 2> said
sed "s|$PWD/||" said >&2
env -u VIRTUAL_ENV PATH=$PWD/path:$PATH memtally rehearse model --engine vllm --device 24GiB 2> said
echo "exit $?"
sed "s|$PWD/||" said >&2

# A model is a folder with a config.json, that file, or a name in the hub's cache.
snapshot=$HOME/.cache/huggingface/hub/models--org--tiny
mkdir -p "$snapshot/snapshots/1a2b" "$snapshot/refs" "$snapshot/blobs" empty
cp model/config.json "$snapshot/blobs/cafe"
ln -s ../../blobs/cafe "$snapshot/snapshots/1a2b/config.json"
printf 1a2b > "$snapshot/refs/main"
try model/config.json --engine vllm --engine-path venv --device 24GiB
try org/tiny --engine vllm --engine-path venv --device 24GiB
try org/tiny@1a2b --engine vllm --engine-path venv --device 24GiB
try org/tiny/config.json --engine vllm --engine-path venv --device 24GiB
(cd model && try config.json --engine vllm --engine-path ../venv --device 24GiB)
memtally sample-model smollm-135m model.gguf --sparse --quiet
try model.gguf --engine vllm --engine-path venv --device 24GiB
try empty --engine vllm --engine-path venv --device 24GiB
try org/absent --engine vllm --engine-path venv --device 24GiB

# What the engine cannot be told, and Pythons that are none.
try model --engine vllm --engine-path venv --device 24GiB --gpu-layers 3
try model --engine sglang --engine-path venv --device 24GiB --gpu-layers 3
try model --engine transformers --engine-path venv --device 24GiB --kv-type fp8
try model --engine transformers --engine-path venv --device 24GiB --eager
try model --engine vllm --engine-path nowhere --device 24GiB
try model --engine vllm --engine-path empty --device 24GiB
try model --engine vllm --engine-path venv --device 24GiB --sweep context=1k,2k
try model --engine sglangx --engine-path venv --device 24GiB
try model --engine vllmx --engine-path venv --device 24GiB

# Without --context transformers takes as many tokens as help says.
memtally help rehearse | tr -s '\n ' ' ' | grep -o '[0-9]* with transformers'
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$(command -v memtally)")/../../engines \
    python3 -c 'import rehearse_transformers; print(rehearse_transformers.DEFAULT_CONTEXT)'
