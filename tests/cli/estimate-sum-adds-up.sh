# SPDX-License-Identifier: MIT
# The rows of a place sum to its total, and the parts of a row to the row.
memtally sample-model gemma-3-1b model.gguf --sparse --quiet --type q8_0
memtally estimate model.gguf --device 2x8GiB --json > out.json
python3 - << 'END'
import json

estimate = json.load(open("out.json"))
print(estimate["schema"], estimate["kind"], estimate["engine"]["name"], estimate["verdict"])
for place in estimate["places"]:
    for end in ("allocated", "low", "high"):
        rows = [row[f"{end}_bytes"] for row in place["rows"]]
        parts = [sum(part[f"{end}_bytes"] for part in row["detail"]) for row in place["rows"]]
        print(place["place"], end, rows == parts, sum(rows) == place[f"total_{end}_bytes"])
breakdown = estimate["memory_breakdown"]
total = sum(place["total_allocated_bytes"] for place in estimate["places"])
print(abs(breakdown["total_gb"] - total / 1e9) < 1e-9, estimate["gpu_info"]["num_gpus"])
END
# The line "sum" adds up as it is printed, in one unit and with two decimals, and says of no row and no
# total another figure than its line: what rounding leaves is said. Rows that share a unit are added up in it.
for shape in smollm-135m gemma-3-1b llama-3.1-8b deepseek-v3; do
    memtally sample-model "$shape" "$shape.gguf" --sparse --quiet --type q8_0
    memtally estimate "$shape.gguf" --device 3x24GiB --host 900GiB
    memtally estimate "$shape.gguf" --context 512
done >tables.txt
memtally estimate llama-3.1-8b.gguf --engine transformers -c 131072 --sequences 8 -d 900GiB >>tables.txt
python3 - << 'END'
import re
from decimal import Decimal

rows, sums, compared, alike, rounded = {}, 0, 0, 0, 0
text = re.sub(r"\n {13}", " ", open("tables.txt", encoding="utf-8").read())
for line in text.splitlines():
    row = re.match(r"([a-z_]+) +([\d.]+) (\w+)", line)
    if re.match(r"\S+ +bytes ", line):
        rows = {}
    if row and row[1] != "sum":
        rows[row[1]] = row[2], row[3]
    if not line.startswith("sum "):
        continue
    terms, total, unit = re.fullmatch(r"sum +(.*) = ([\d.]+) \([\d.]+ to [\d.]+\)(?: of [\d.]+)? (\w+).*", line).groups()
    figures = dict(term.split() for term in terms.replace("- rounding ", "+ rounding -").split(" + "))
    assert sum(map(Decimal, figures.values())) == Decimal(total), line
    rounded += abs(Decimal(figures.pop("rounding", 0))) * 100 in range(1, 3)
    assert list(figures) == [name for name in rows if name != "total"], (line, rows)
    for name, figure in [*figures.items(), ("total", total)]:
        assert re.fullmatch(r"\d+\.\d\d", figure), line
        shown, shown_unit = rows[name]
        assert shown_unit != unit or figure == shown, (line, name, rows[name])
        compared += shown_unit == unit
    units = {rows[name][1] for name in figures}
    assert len(units) > 1 or units == {unit}, line
    alike += len(units) == 1
    sums += 1
print(sums, "sums add up,", compared > sums and "rows show the same,", alike, "have one unit,", rounded > 0 and "rounding is said")
END
