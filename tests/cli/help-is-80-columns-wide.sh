# SPDX-License-Identifier: MIT
# No line of any help is wider.
for command in memtally $(memtally help --completion bash | sed -n "s/^    \([a-z-]*\)) REPLY=.*/\1/p" | sort -u); do
    memtally help "$command"
done | awk "length > 80 { print; wide = 1 } END { exit wide }" >/dev/null
