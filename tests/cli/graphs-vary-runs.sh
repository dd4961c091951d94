# SPDX-License-Identifier: MIT
# What each of the two runs is started with, what is kept of them, and what is said if one fails. The program has no PyTorch.
mkdir tmp
export TMPDIR=$PWD/tmp
try()
{
    memtally graphs --vary "$@" 2>said
    code=$?
    sed "s|'.*/memtally-graphs\.[^/]*/|'FOLDER/|" said
    echo "exit $code"
}
try 'n=none,2' --folder kept -- sh -c 'echo "$@" >>seen; exit 0' sh --own
cat seen
ls kept
rm seen
try 'n=1,2' -- sh -c 'echo "$@" >>seen' sh '--size={n}x{n}' {n}
cat seen
try 'n=1,2' -- sh -c 'exit 3'
try 'n=1,2' -- sh -c 'test "$2" = 1 || kill -TERM $$' sh
try 'n=1,2' --folder kept -- true
: >file
try 'n=1,2' --folder file/below -- true
try 'n=1,2' -- ./no-such-program
# Nothing stays of runs that nobody wants kept.
ls tmp
