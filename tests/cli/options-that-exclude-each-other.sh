# SPDX-License-Identifier: MIT
# No option is left aside without a word.
memtally run -q -o rec -- true
try() {
    memtally "$@"
    echo "$?" >&2
}
try run --no-python --layers -- touch ran
[ ! -e ran ] || echo it ran
try report --layers --operations rec
try report --layers --top 3 rec
try report --operations --at exit rec
try report --layers --format folded rec
try report --operations --format perfetto rec
try report --format perfetto --at exit rec
try report --format memory-viz --top 3 rec
try report --format speedscope rec rec
mkdir model
echo '{"model_type": "llama"}' >model/config.json
cat >python <<'END'
#!/bin/sh
exec /bin/false
END
chmod +x python
try profile model --engine transformers --engine-path ./python --on nonsense
