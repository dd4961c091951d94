/* SPDX-License-Identifier: MIT */
/* A C++ program that uses scope.h: nested objects, and one that an exception ends. */
#include <cstdio>
#include <stdexcept>

#include <memtally/scope.h>

static void throws_in_scope()
{
    memtally::scope inner(MT_CATEGORY_WEIGHTS, "inner");
    throw std::runtime_error("out of the scope");
}

int main()
{
    memtally::scope outer(MT_CATEGORY_KV_CACHE, "outer");
    try {
        throws_in_scope();
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
    }
    mt_mark("of C++");
    return 0;
}
