# SPDX-License-Identifier: MIT
# A file of what was learnt that is not as memtally writes it is said to be so by its first wrong key, kept aside, and learning starts anew.
. "$MEMTALLY_TESTS/../support/compare/files.sh"
export XDG_STATE_HOME="$PWD/state"
file=state/memtally/residues.json
estimate 1000 400 900 100 >estimate.json
report 1000 400 900 600 >one.json
memtally compare one.json estimate.json --learn >/dev/null
cp $file whole.json
damage() {
    sed "$1" whole.json >$file
    memtally compare one.json estimate.json --learn 2>&1 | sed "s,[^ ]*/state/,,g"
    ls state/memtally | grep -c damaged
    rm $file.damaged
}
damage 's/"schema":/"scheme":/'
damage 's/"entries":/"entrees":/'
damage 's/"runs":/"rums":/'
damage 's/"place": *"host"/"place": "moon"/'
damage 's/"category": *"runtime"/"category": "weights"/'
damage 's/"n": *1/"n": 0/'
damage 's/"low_bytes": *[0-9]*/"low_bytes": 501/'
sed -i 1q whole.json && damage '1s/.*/[]/'
memtally compare one.json estimate.json --learn | grep -A 2 Learnt
