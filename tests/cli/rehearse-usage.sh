# SPDX-License-Identifier: MIT
# What cannot be rehearsed is refused with 2 before anything is started, what is no ggml with 3.
refused()
{
    wanted=$1
    shift
    memtally rehearse "$@"
    code=$?
    test $code = "$wanted" || echo "exit $code of $*"
}
refused 3 -- true
refused 2 --device 16 -- true
refused 2 --device 0GiB -- true
refused 2 --device 16x1GiB --layer ggml -- true
refused 2 --device 90MiB --layer ggml -- true
refused 2 --device 8GiB --reserved 8GiB -- true
refused 2 --device 8GiB --context 4096 -- true
refused 2 --device 8GiB --generation tesla -- true
refused 2 --device 8GiB -- no-such-program-anywhere
refused 2 --device 8GiB --timeout 0 -- true
refused 3 --device 8GiB -- true
refused 3 --device 8GiB -- sh -c 'echo these are its last words >&2; exit 5'
# What waits for nothing is stopped, and said to be.
refused 3 --device 8GiB --timeout 1 -- sleep 100 2>said
sed 's/after [0-9]* s/after N s/' said >&2
refused 2 --device 8GiB --device-name 'RTX 3090,RTX 4090' -- true
refused 2 --device 8GiB --device-name "$(printf 'two\nlines')" -- true
refused 2 --device 2x8GiB --device-name 'RTX 3090,' -- true
refused 3 --device 8GiB -- memtally --version
refused 2 --device h100-90gb -- true
refused 3 --device 8GiB --layer ggml -- true
