# SPDX-License-Identifier: MIT
# Only on a terminal that has them, and only if wanted.
on_terminal()
{
    env "$@" script -qec "memtally help" /dev/null </dev/null | grep -q "$(printf "\033")" && echo "$*: colours"
}
on_terminal TERM=xterm
on_terminal TERM=xterm NO_COLOR=
on_terminal TERM=xterm NO_COLOR=1
on_terminal TERM=dumb
memtally help | grep "$(printf "\033")"
true
