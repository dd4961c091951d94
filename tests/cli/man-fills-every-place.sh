# SPDX-License-Identifier: MIT
# A man page is a text with places that the tables of options fill. What they bring is what --help and --json say.
for place in SUMMARY SYNOPSIS DESCRIPTION OPTIONS EXAMPLES EXIT VERSION; do echo "<$place>@$place@</$place>"; done >page.scd
for command in sample-model doctor; do
    memtally help --man page.scd $command >$command.scd
    memtally help --json $command >$command.json
    memtally $command --help >$command.help
done
memtally --version --json >version
echo '@COMMANDS@' >commands.scd
memtally help --man commands.scd >commands
memtally help >listed
python3 - <<'END'
import json
import re


def plain(text):
    """scdoc's marks taken away: \\_ is _, *bold* and _underlined_ are the words."""
    return " ".join(re.sub(r"[*_]", "", re.sub(r"\\(.)", r"\1", text.replace("\\_", ""))).split())


for command in ("sample-model", "doctor"):
    page = open(f"{command}.scd").read()
    table = json.load(open(f"{command}.json"))
    helped = plain(open(f"{command}.help").read())
    place = {name: re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL).group(1) for name in
             ("SUMMARY", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT", "VERSION")}
    print(command, place["SUMMARY"] == table["summary"], place["VERSION"] == json.load(open("version"))["version"])
    print("synopsis", plain(place["SYNOPSIS"]).startswith(f"memtally {command}"))
    print("options", [plain("--" + one["name"]) in plain(place["OPTIONS"]) for one in table["options"]].count(False),
          [plain(one["help"]) in plain(place["OPTIONS"]) for one in table["options"]].count(False))
    print("description", plain(place["DESCRIPTION"])[:200] in helped)
    commands = re.findall(r"^```\n(.*?)\n```", place["EXAMPLES"], re.DOTALL | re.MULTILINE)
    print("examples", len(commands) > 1, all(plain(one) in helped for one in commands))
    statuses = re.findall(r"^\*(.*?)\*\n\t(.*?)\.$", place["EXIT"], re.MULTILINE)
    print("exit", len(statuses) > 1, all(f"{code} {plain(text)}" in helped for code, text in statuses))
listed = re.findall(r"^    ([a-z-]+) +(\w.*)$", open("listed").read().split("Options")[0], re.MULTILINE)
page = open("commands").read()
print("commands", len(listed) > 10, [name for name, summary in listed if f"*memtally-{name}*(1)\n\t{summary}." not in page.replace("\\", "")])
END
