# SPDX-License-Identifier: MIT
# Completion of each shell has every option that --help of a command lists, and each shell that is here can read its own.
for shell in bash zsh; do
    memtally help --completion $shell >$shell.completion
    if command -v $shell >/dev/null; then
        $shell -n $shell.completion || echo "$shell cannot read it"
    fi
done
sed -n 's/^ *'"'"'\([a-z-]*\):.*/\1/p' zsh.completion >commands
memtally help | grep -cf commands >/dev/null || echo "no command is completed"
while read -r command; do
    memtally "$command" --help | grep -oE '^    (-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' >options
    # The part of one command in the file for zsh ends with its case.
    sed -n "/^        $command)/,/;;/p" zsh.completion >part
    while read -r option; do
        grep -qF -- "$option" part || echo "zsh lacks $option of $command"
        grep -qF -- "$option" bash.completion || echo "bash lacks $option of $command"
    done <options
    wc -l <options | grep -qx '0' && echo "$command has no option"
done <commands
wc -l <commands | tr -d ' '
memtally help --completion fish
echo "exit $?"
