/* SPDX-License-Identifier: MIT */
/* A program with an allocator and operators new and delete of its own. */
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

alignas(64) static char arena[16 << 20];
static std::size_t used;
static long n_news, n_mallocs;

/* Each block begins with its size. */
static void *take(std::size_t size)
{
    std::size_t whole = (size + 16 + 15) & ~static_cast<std::size_t>(15);
    if (whole > sizeof arena - used)
        return nullptr;
    char *block = arena + used;
    used += whole;
    std::memcpy(block, &size, sizeof size);
    return block + 16;
}

extern "C" {
void *malloc(std::size_t size)
{
    n_mallocs++;
    return take(size);
}

void free(void *)
{
}

void *calloc(std::size_t count, std::size_t size)
{
    n_mallocs++;
    return take(count * size); /* never given out before: zeros */
}

void *realloc(void *old, std::size_t size)
{
    void *block = take(size);
    std::size_t had = 0;
    if (old && block) {
        std::memcpy(&had, static_cast<char *>(old) - 16, sizeof had);
        std::memcpy(block, old, had < size ? had : size);
    }
    return block;
}
}

void *operator new(std::size_t size)
{
    n_news++;
    return take(size);
}

void operator delete(void *) noexcept
{
}

void operator delete(void *, std::size_t) noexcept
{
}

int main()
{
    std::map<int, std::string> texts;
    for (int i = 0; i < 1000; i++)
        texts[i] = std::string(static_cast<std::size_t>(i), 'x');
    char *text = static_cast<char *>(std::malloc(10));
    std::strcpy(text, "ends well");
    text = static_cast<char *>(std::realloc(text, 100));
    std::printf("%s after %d new\n", text, n_news > 1900 ? 1900 : 0);
    return n_mallocs > 0 ? 3 : 4;
}
