# SPDX-License-Identifier: MIT
"""The functions that C headers declare, with the comment right above each.

A reader for our own headers, not for C at large: one declaration ends at a top-level semicolon or,
for an inline function, at the end of its body. What is for C++ alone is passed over.
"""
import re
from pathlib import Path
from typing import NamedTuple

# In this order: what starts a piece of a header, outside any declaration.
_PIECE = re.compile(
    r'(?P<space>\s+)'
    r'|(?P<comment>/\*.*?\*/|//[^\n]*)'
    r'|(?P<directive>#(?:\\\n|/\*.*?\*/|[^\n])*)'
    r'|(?P<declaration>[^;{}#]+(?:;|\{))',
    re.DOTALL)
_CPLUSPLUS = re.compile(r'^#ifdef __cplusplus$.*?^#endif$', re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.DOTALL)
_DIRECTIVE = re.compile(r'^[ \t]*#(?:\\\n|[^\n])*', re.MULTILINE)
_FUNCTION = re.compile(r'\b([A-Za-z_]\w*)\s*\(')
_NOT_A_NAME = {'__attribute__', '_Static_assert', 'static_assert', '__declspec'}


class Function(NamedTuple):
    name: str
    header: str
    line: int
    inline: bool
    comment: str  # '' where there is none right above


def _skip_body(text: str, position: int) -> int:
    """The position after the brace that closes the one before `position`."""
    depth = 1
    while depth and position < len(text):
        comment = _COMMENT.match(text, position)
        if comment:
            position = comment.end()
            continue
        depth += {'{': 1, '}': -1}.get(text[position], 0)
        position += 1
    return position


def _name_of(declaration: str) -> str | None:
    plain = _DIRECTIVE.sub('', _COMMENT.sub(' ', declaration))
    if plain.lstrip().startswith('typedef'):
        return None
    names = [n for n in _FUNCTION.findall(plain) if n not in _NOT_A_NAME]
    return names[0] if names else None


def functions_of(path: Path) -> list[Function]:
    text = _CPLUSPLUS.sub(lambda part: '\n' * part.group().count('\n'), path.read_text())
    found, position, comment = [], 0, ''
    while position < len(text):
        piece = _PIECE.match(text, position)
        if not piece:
            raise ValueError(f'{path}:{text.count(chr(10), 0, position) + 1}: not understood')
        start, position = position, piece.end()
        kind, what = piece.lastgroup, piece.group()
        if kind == 'space':
            comment = '' if what.count('\n') > 1 else comment
        elif kind == 'comment':
            comment = what
        elif kind == 'declaration':
            name = _name_of(what)
            if what.endswith('{'):
                position = _skip_body(text, position)
                if not name:  # a struct or enum: its declarators follow
                    position = text.index(';', position) + 1
            if name:
                line = text.count('\n', 0, start) + 1
                found.append(Function(name, path.name, line, what.endswith('{'), comment))
            comment = ''
        else:
            comment = ''
    return found


def functions_in(directory: Path) -> list[Function]:
    """The library's own, by their prefix, of all headers there."""
    return [f for path in sorted(directory.glob('*.h')) for f in functions_of(path)
            if f.name.startswith('mt_')]
