/* SPDX-License-Identifier: MIT */
/* What every unit test includes. */
#ifndef MT_TESTS_UNIT_H
#define MT_TESTS_UNIT_H

#ifdef NDEBUG
#error "tests need their assertions"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <memtally/error.h>

#define RUN_TESTS(tests) cmocka_run_group_tests(tests, NULL, NULL)

#endif
