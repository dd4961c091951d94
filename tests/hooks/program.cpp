// SPDX-License-Identifier: MIT
// A program that is run with the pretended devices preloaded: program DOES LIBRARY [LIBRARY...]
// FILE. What it finds is printed, a number for each thing; the test compares.
#include "hooks/engine.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static const std::size_t MEBI = 1 << 20;

static const engine *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        std::exit(2);
    return reinterpret_cast<const engine *(*)()>(dlsym(library, "the_engine"))();
}

static long resident_kib()
{
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.compare(0, 6, "VmRSS:") == 0)
            return std::atol(line.c_str() + 6);
    return -1;
}

static void say(const char *what, long value)
{
    std::printf("%s=%ld\n", what, value);
}

static void tebibyte(const engine *engine, const char *)
{
    tensor second = {"cache_v_l0", nullptr, nullptr};
    tensor first = {"cache_k_l0", nullptr, &second};
    context cache = {&first, std::size_t(1) << 40};
    std::vector<char> large(64 * MEBI, 1);
    long before = resident_kib();
    buffer *made = engine->alloc_tensors(&cache);
    say("is_made", made != nullptr);
    char seven = 7, back = 0;
    made->clear(made, 0);
    made->set_tensor(made, &first, &seven, 0, 1);
    made->get_tensor(made, &first, &back, 0, 1);
    say("small_is_kept", back == 7);
    made->set_tensor(made, &first, large.data(), 0, large.size());
    std::memcpy(first.data, large.data(), large.size());
    made->get_tensor(made, &first, large.data(), MEBI, 32 * MEBI);
    say("large_reads_as_zero", large[0] == 0 && large[32 * MEBI - 1] == 0);
    say("grown_kib", resident_kib() - before);
    engine->free(made);
}

static void usage(const engine *engine, const char *)
{
    buffer *made = engine->alloc(3 * MEBI);
    engine->use(made, 1);
    engine->free(made);
}

static void refusal(const engine *engine, const char *)
{
    buffer *fits = engine->alloc(768 * MEBI);
    say("fits", fits != nullptr);
    say("does_not", engine->alloc(512 * MEBI) == nullptr);
    engine->free(fits);
    say("fits_again", engine->alloc(512 * MEBI) != nullptr);
}

static void exception(const engine *engine, const char *)
{
    say("throws", engine->throws());
    say("is_made_after", engine->alloc(2 * MEBI) != nullptr);
}

// Weights are not read, what lies before them is.
static void reading(const engine *engine, const char *path)
{
    std::vector<char> bytes(8 * MEBI, 'x');
    engine->open(path);
    std::FILE *file = std::fopen(path, "rb");
    say("head", std::fread(bytes.data(), 4096, 1, file) == 1 && bytes[0] == 'h');
    bytes[0] = 'x';
    say("whole", std::fread(bytes.data(), 1 * MEBI, 8, file) == 8);
    say("untouched", bytes[0] == 'x' && bytes[8 * MEBI - 1] == 'x');
    say("position", std::ftell(file));
    std::fclose(file);
    int fd = open(path, O_RDONLY);
    say("read_head", read(fd, bytes.data(), 8 * MEBI) == ssize_t(8 * MEBI) && bytes[0] == 'h');
    bytes.assign(bytes.size(), 'x');
    say("pread", pread(fd, bytes.data(), 8 * MEBI, 8192) == ssize_t(8 * MEBI) && bytes[0] == 'x');
    lseek(fd, 4096 + 12 * MEBI, SEEK_SET);
    say("read_to_the_end", read(fd, bytes.data(), 8 * MEBI));
    say("read_past_it", read(fd, bytes.data(), 8 * MEBI));
    close(fd);
}

static void mapping(const engine *, const char *path)
{
    int fd = open(path, O_RDONLY);
    long before = resident_kib();
    void *at = mmap(nullptr, 12 * MEBI, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    say("is_mapped", at != MAP_FAILED);
    say("advice", posix_madvise(at, 12 * MEBI, POSIX_MADV_WILLNEED) + mlock(at, 12 * MEBI));
    say("grown_kib", resident_kib() - before);
}

// Not known to the compiler, which would leave out what no one reads.
static void *(*volatile fill)(void *, int, std::size_t) = std::memset;

static void heap(const engine *, const char *)
{
    char *kept = static_cast<char *>(std::malloc(8 * MEBI));
    kept = static_cast<char *>(std::realloc(kept, 16 * MEBI));
    fill(kept, 9, 16 * MEBI);
    long before = resident_kib();
    fill(kept, 0, 16 * MEBI);
    say("is_zero", kept[0] == 0 && kept[8 * MEBI] == 0 && kept[16 * MEBI - 1] == 0);
    say("fell_kib", before - resident_kib());
    pid_t child = fork();
    if (child == 0) {
        std::free(kept);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    say("child", status);
    std::free(kept);
    std::free(std::malloc(MEBI - 1));
}

static void calls(const engine *engine, const char *)
{
    say("resets", engine->resets_of_dry_run());
    say("computed", engine->graphs_computed());
    say("servers", engine->servers_added());
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*function)(const engine *, const char *);
    } deeds[] = {{"tebibyte", tebibyte},   {"usage", usage},     {"refusal", refusal},
                 {"exception", exception}, {"reading", reading}, {"mapping", mapping},
                 {"heap", heap},           {"calls", calls}};
    const char *file = words[count - 1];
    for (int i = 2; i < count - 1; i++)
        for (const auto &deed : deeds)
            if (std::strcmp(deed.name, words[1]) == 0)
                deed.function(load(words[i]), file);
    return 0;
}
