#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command and pytest's plug-in keep one file of baselines: each reads, refuses, compares and writes what the other does. Texts are
put together at random from pieces that a reader may take one way or the other."""

import os
import random
import subprocess
import tempfile

import package
import tap

baselines = package.part("baselines")
READER = os.path.join(os.environ["BUILD_DIR"], "tests", "python", "baselines")
BLANKS = b" \t\n\v\f\r"
NAMES = [b"a", b"a test", b"tests/x.py::test_b", "zürich".encode(), b"\xff\xfe", b"z", b"\xc2\xa0b", b"# no name"]
STARTS = [b"    ", b"\t", b" ", b"\v", b"\xc2\xa0", b"\x1c", b""]
BETWEEN = [b" ", b"   ", b"\t", b"\f", b"\xe3\x80\x80"]
PLACES = [b"gpu:0", b"gpu:1", b"total"]
CATEGORIES = [b"total", b"weights", b"kv_cache"]
SIZES = [b"0", b"1", b"007", b"1235222528", b"18446744073709551615", b"18446744073709551616", b"99999999999999999999", b"1_0", b"-1", b"+1",
         "１".encode(), b"1.5", b"", b"0000000000000000000000012"]
ENDS = [b"", b" ", b"\r", b"  1.15 GiB", b"\tx y", b"\xc2\xa0", b"\x1f"]
TOLERANCES = [0.0, 0.02, 0.5, 1e30]


def a_text(chance):
    lines = []
    for _ in range(chance.randrange(1, 9)):
        if chance.random() < 0.35:
            lines.append(chance.choice(NAMES) + chance.choice([b"", b"", b" ", b"\r"]))
        elif chance.random() < 0.1:
            lines.append(chance.choice([b"", b"  ", b"# x", b"  # x"]))
        else:
            usual = chance.random() < 0.7
            start, between = (b"    ", b" ") if usual else (chance.choice(STARTS), chance.choice(BETWEEN))
            size = chance.choice(SIZES[:5] if usual else SIZES)
            lines.append(start + between.join([chance.choice(PLACES), chance.choice(CATEGORIES), size]) + chance.choice(ENDS[:4] if usual else ENDS))
    return b"\n".join(lines) + chance.choice([b"", b"\n"])


def asked_of_the_command(questions):
    words = [" ".join("." + word.hex() if isinstance(word, bytes) else str(word) for word in asked) for asked in questions]
    done = subprocess.run([READER], input="\n".join(words) + "\n", capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def read(text):
    """By test, or None where the plug-in refuses the text."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "baseline")
        with open(path, "wb") as file:
            file.write(text)
        try:
            return baselines.read(path)
        except ValueError as error:
            assert path in str(error) and "byte" in str(error), error
            return None


def named(text):
    """The names that a text may have, by the words of the format."""
    lines = (line.rstrip(BLANKS) for line in text.split(b"\n"))
    return sorted({line for line in lines if line and line[:1] not in (b"#", *(bytes([blank]) for blank in BLANKS))} | {b"another"})


def test_both_refuse_the_same_texts_and_allow_the_same():
    chance = random.Random(14)
    texts = [a_text(chance) for _ in range(3000)]
    asked = [("most", text, name, chance.choice(PLACES), chance.choice(TOLERANCES)) for text in texts for name in named(text)]
    refused = {text: False for text in texts}
    for (_, text, *_), answer in zip(asked, answers := asked_of_the_command(asked)):
        refused[text] |= answer == "wrong"
    # The command looks for what is there twice below the name that it is asked for alone; the plug-in below all.
    known = {text: read(text) for text in texts}
    for text in texts:
        assert (known[text] is None) == refused[text], (text, known[text], refused[text])
    assert 300 < sum(refused.values()) < 2700, sum(refused.values())
    for (_, text, name, place, tolerance), answer in zip(asked, answers):
        if known[text] is None:
            continue
        peaks = known[text].get(os.fsdecode(name), {})
        found = {place.decode(): {baselines.TOTAL: 1 << 200}}
        most = baselines.beyond(peaks, found, tolerance)[place.decode()]
        assert min(most, (1 << 64) - 1) == int(answer) or most >= 1 << 63 <= int(answer), (text, name, place, tolerance, most, answer)


def test_both_write_the_same():
    chance = random.Random(15)
    for _ in range(40):
        known = {}
        text = b""
        for name in chance.sample(NAMES[:6], chance.randrange(1, 6)):
            sizes = [chance.choice([0, 1, 4096, 1235222528]) for _ in range(2)]
            total = sum(sizes) + 1
            (digits,) = asked_of_the_command([("add", text, name, b"gpu:0", total, *sizes)])
            text = bytes.fromhex(digits)
            rows = {category.decode(): size for category, size in zip(CATEGORIES[1:], sizes) if size}
            known[os.fsdecode(name)] = {"gpu:0": {"total": total, **rows}}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "baseline")
            baselines.write(path, known)
            with open(path, "rb") as file:
                assert file.read() == text, (file, text)


if __name__ == "__main__":
    tap.main(globals())
