# SPDX-License-Identifier: MIT
# A kept profile is opened again as it was printed; its times and its settings are in no recording.
printf GGUF >model.gguf
memtally profile model.gguf --engine llama-server --output out --repeats 2 --format table \
    --engine-path "$MEMTALLY_TESTS/../support/engines" >printed
memtally report out >again && diff printed again
memtally report out --json >again.json && diff out/report.json again.json && grep -c '"run":' again.json
memtally report out --format csv >again.csv && diff out/report.csv again.csv && grep -c , again.csv
