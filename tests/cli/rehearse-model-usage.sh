# SPDX-License-Identifier: MIT
# A model with settings that cannot be rehearsed: each is refused, saying why. No engine is needed.
memtally sample-model smollm-135m model.gguf --sparse --quiet
try()
{
    memtally rehearse "$@"
    echo "exit $?"
}
try
try model.gguf other.gguf
try model.gguf --engine trt-llm
try model.gguf --device 24
memtally rehearse model.gguf --program node-llama-cpp 2> said
echo "exit $?: $(grep -c 'node-llama-cpp is neither in' said)"
try model.gguf --engine-path nowhere
try model.gguf --engine-path model.gguf
MEMTALLY_ENGINES=$PWD/none PATH=${PATH%%:*} memtally rehearse model.gguf --device 1GiB 2> said
echo "exit $?: $(grep -c 'llama-server is neither in' said)"
try missing.gguf
try model.gguf --sweep contxt=4k
try model.gguf --sweep context=4k..2k
try model.gguf --sweep context=4k --explain
try model.gguf --sweep context=4k --folder kept
try model.gguf --sweep context=4k --requests 2
try model.gguf --program bench --requests 2
try model.gguf --requests many
try --sweep context=4k --device 1GiB -- true
memtally estimate model.gguf --no-rehearse --engine-path .
echo "exit $?"
# An engine that does not say its build, and knows another set of flags.
mkdir old
cat > old/llama-server << 'END'
#!/bin/sh
test "$1" = --version && echo 'version: 0 (unknown)' >&2 && exit
echo 'error: invalid argument: --load-mode' >&2
exit 1
END
chmod +x old/llama-server
try model.gguf --no-mmap --engine-path old 2> said
sed "s|$PWD/||" said >&2
# A file that leads nowhere is wrong usage in all forms.
ln -s loop.gguf loop.gguf
try loop.gguf
try loop.gguf --sweep context=1k
memtally estimate loop.gguf
echo "exit $?"
