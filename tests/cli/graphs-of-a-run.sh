# SPDX-License-Identifier: MIT
# Each graph of a run: pieces of a batch are one graph, what was dropped before the last capture is counted apart, a name that is
# not known is said so, and so is one that came late.
mkdir run none
cat >run/torch-7.trace <<'END'
memtally-torch 1
x 0 1000 1 2097152 2097152 300 1048576 4194304 - 64 - PIECEWISE
y 1500 1
x 0 2000 2 20971520 2097152 3 1048576 4194304 - 64 - PIECEWISE
x 0 2100 3 0 0 4 1048576 4194304 - 64 - PIECEWISE
x 0 3000 4 0 4194304 500 1048576 4194304 8 40 4 FULL
x 0 4000 5 0 0 - 1048576 4194304 - - - -
x 0 4000 6 0 0 bad 1048576 4194304 - - - -
n 4500 The capture of a CUDA graph failed (batch 2): out of memory
w 5 3500 31457280 1
y 5000 5
m 0 99999 3145728 4194304
END
memtally graphs run
memtally graphs none
memtally graphs absent
memtally graphs
memtally graphs run none
