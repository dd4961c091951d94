#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check-symbols and check-header-docs find what is wrong, on a small library made here.

    test_scripts.py SCRIPTS_DIRECTORY CC
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS, CC = Path(sys.argv[1]), sys.argv[2].split()

HEADER = '''/* A header. */
#ifndef A_H
#define A_H
#define CALL(x) undocumented_macro(x)
#ifdef __cplusplus
extern "C" {
#endif
struct shape; /* not a function(at all); */
struct pair {
    int (*compare)(int, int);
    int sides[2];
};

/* Adds. */
int mt_add(int (*get)(void *context), void *context)
    __attribute__((nonnull(1)));

/* Takes away; a semicolon in a comment; and a brace { too. */
static inline int mt_inline(int x)
{
    return x ? x /* } */ : 1;
}

/* Someone else's. */
__attribute__((weak)) void hook_a(int x);
__attribute__((weak)) void hook_b(int x);

/* Twice. */
int mt_twice(int x);

#ifdef __cplusplus
}
namespace a { class scope { public: scope() { mt_add(0, 0); } }; }
#endif
#endif
'''
SOURCE = 'int mt_add(void) { return 1; } int mt_twice(int x) { return x; } int secret;'
SYM = '{\n  global:\n    mt_add;\n    mt_twice;\n  local:\n    *;\n};\n'


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.put('include/a.h', HEADER)
        self.build(SYM)

    def put(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def build(self, sym, *flags):
        source, script = self.put('a.c', SOURCE), self.put('a.sym', sym)
        subprocess.run([*CC, '-shared', '-fPIC', '-o', self.folder / 'a.so', source,
                        *(flags or [f'-Wl,--version-script={script}'])], check=True)

    def run_script(self, name, *arguments):
        done = subprocess.run([SCRIPTS / name, *arguments], capture_output=True, text=True)
        self.assertEqual(done.stderr, '')
        return done.returncode, done.stdout

    def symbols(self, sym=None):
        path = self.put('b.sym', sym) if sym else self.folder / 'a.sym'
        return self.run_script('check-symbols', self.folder / 'a.so', path,
                               '--headers', self.folder / 'include')

    def docs(self):
        return self.run_script('check-header-docs', self.folder / 'include')

    def test_a_library_as_listed_passes(self):
        self.assertEqual(self.symbols(), (0, 'a.so: 2 symbols, as listed\n'))

    def test_a_listed_symbol_that_is_missing_is_named(self):
        code, said = self.symbols(SYM.replace('mt_twice;', 'mt_thrice;\n    mt_twice;'))
        self.assertEqual(code, 1)
        self.assertIn('does not export mt_thrice', said)
        self.assertIn('lists mt_thrice, which no public header declares', said)

    def test_a_symbol_that_leaves_unlisted_is_named(self):
        self.build(SYM, '-Wl,--export-dynamic')
        code, said = self.symbols()
        self.assertEqual(code, 1)
        self.assertIn('a.so exports secret, which a.sym does not list', said)

    def test_a_list_out_of_order_is_told(self):
        code, said = self.symbols('{ global: mt_twice; mt_add; local: *; };')
        self.assertEqual((code, said), (1, 'b.sym: mt_add does not stand in order\n'))

    def test_a_declared_function_that_is_not_listed_is_named(self):
        self.put('include/b.h', '/* More. */\nconst char *mt_more(void);\n')
        code, said = self.symbols()
        self.assertEqual((code, said),
                         (1, 'a.sym does not list mt_more, which a public header declares\n'))

    def test_documented_headers_pass(self):
        self.assertEqual(self.docs(), (0, '3 of 3 public functions documented\n'))

    def test_a_function_without_its_own_comment_is_named(self):
        self.put('include/a.h', HEADER.replace('int mt_twice(int x);',
                                               'int mt_twice(int x);\nint mt_bare(int x);'))
        code, said = self.docs()
        self.assertEqual(code, 1)
        self.assertIn('a.h:30: mt_bare has no comment right above it', said)
        self.assertIn('3 of 4 public functions documented', said)

    def test_a_comment_further_up_does_not_count(self):
        self.put('include/a.h', HEADER.replace('/* Twice. */\n', '/* Twice. */\n\n'))
        self.assertEqual(self.docs()[0], 1)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
