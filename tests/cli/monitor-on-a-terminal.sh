# SPDX-License-Identifier: MIT
# One line, drawn again over itself, with a curve that grows by a character a look.
python3 - <<'EOF'
import os, pty, re
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
    os.execvp("memtally", ["memtally", "monitor", "--device", "host", "--count", "3", "--interval", "1ms"])
text = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    text += part
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.count(b"\x1b[1A"), text.count(b"host"))
plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text.decode()).split("\n")
print([len(re.search("[▁▂▃▄▅▆▇█ ]*$", line.strip("\r")).group().strip() or " ") for line in plain if "host" in line])
EOF
