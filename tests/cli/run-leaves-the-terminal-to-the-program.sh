# SPDX-License-Identifier: MIT
# The progress line is drawn only where the program's output goes elsewhere, and is erased at the end.
cat >watch.py <<'END'
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
shared = sys.argv[1] == "shared"
run = subprocess.Popen(["memtally", "run", "-o", sys.argv[1], "sh", "-c", "printf 'name? '; sleep 1; echo me"],
                       stdout=theirs if shared else subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
os.close(theirs)
seen = b""
while True:
    try:
        piece = os.read(ours, 4096)
    except OSError:
        break
    if not piece:
        break
    seen += piece
run.wait()
drawn = seen.rfind(b"\r\033[Kmemtally: ")
print(sys.argv[1], "drawn" if drawn >= 0 else "not drawn", "erased" if seen.rfind(b"\r\033[K") > drawn else "",
      "whole" if b"name? me" in seen + (b"" if shared else run.stdout.read()) else "torn")
END
python3 watch.py shared
python3 watch.py apart
