# SPDX-License-Identifier: MIT
# A published pair of runs (TensorRT-LLM, an 8B model, batches to 32, drafts of 4, one pool): with a highest concurrency it captured
# 64 graphs instead of 32, and had 15784 MiB reserved instead of 15746: 38 MiB, 1.19 for each additional graph.
run() { # MIB_RESERVED DRAFT..., into a folder of that name
	mkdir "$1"
	drafts="${*#"$1"}"
	{
		echo memtally-torch 1
		number=0
		last=$1
		first=$((last - 38 * ($# - 2)))
		for draft in $drafts; do
			for batch in $(seq 32 -1 1); do
				number=$((number + 1))
				pool=0
				[ $number = 33 ] && pool=38
				echo "x 0 $((number * 1000)) $number $((pool << 20)) 0 - 16271589376 $(((first + (number > 32 ? 38 : 0)) << 20)) $batch $((batch * (draft + 1))) $draft FULL"
			done
		done
		echo "m 0 99999 17068490752 $((last << 20))"
	} >"$1/torch-7.trace"
}
run 15746 4
run 15784 4 0
memtally graphs 15746 15784
memtally graphs 15746 15784 --json >answer.json
grep -e '"num_cuda_graphs"' -e '"draft_len' -e '"overhead' -e '"bytes_of_each' -e '"case' answer.json
memtally graphs 15746 15784 --save org/Model --output written.txt
memtally graphs 15784 15746 | grep -e overhead -e '^graphs'
for file in results/results_org_Model_[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]_[0-9][0-9][0-9][0-9][0-9][0-9].json; do
	cmp "$file" answer.json && echo the same
done
