/* SPDX-License-Identifier: MIT */
/* The plug-in's entry points for CuPy and RMM, called as those call them, on a CUDA device. The
 * types below are declared by their published interfaces. Prints what went wrong; "done" where
 * nothing did. */
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

extern "C" {
struct mt_pool;
}

namespace
{

const size_t MIB = 1 << 20;

void *library;

void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::printf("not so: %s\n", what);
    std::exit(1);
}

template <typename Function> Function find(const char *name)
{
    void *found = dlsym(library, name);
    expect(found != nullptr, name);
    return reinterpret_cast<Function>(found);
}

/* cupy.cuda.memory.CFunctionAllocator(param, malloc_func, free_func, owner): addresses as intptr_t,
 * called from Cython with "except +". */
class CFunctionAllocator
{
  public:
    CFunctionAllocator(intptr_t param, intptr_t malloc_function, intptr_t free_function)
        : param_(reinterpret_cast<void *>(param)),
          malloc_(reinterpret_cast<void *(*)(void *, size_t, int)>(malloc_function)),
          free_(reinterpret_cast<void (*)(void *, void *, int)>(free_function))
    {
    }

    /* 0: an exception came out, which Cython turns into MemoryError. */
    intptr_t malloc(size_t size, int device)
    {
        try {
            return reinterpret_cast<intptr_t>(malloc_(param_, size, device));
        } catch (const std::bad_alloc &) {
            return 0;
        }
    }

    void free(intptr_t address, int device)
    {
        free_(param_, reinterpret_cast<void *>(address), device);
    }

  private:
    void *param_;
    void *(*malloc_)(void *, size_t, int);
    void (*free_)(void *, void *, int);
};

/* rmm::cuda_stream_view: one stream, handed over by value. */
class cuda_stream_view
{
  public:
    explicit cuda_stream_view(void *stream) : stream_(stream)
    {
    }

  private:
    void *stream_;
};

/* rmm::mr::callback_memory_resource. */
struct callback_memory_resource {
    void *(*allocate_callback)(size_t, cuda_stream_view, void *);
    void (*deallocate_callback)(void *, size_t, cuda_stream_view, void *);
    void *allocate_arg, *deallocate_arg;

    void *allocate(size_t bytes, cuda_stream_view stream)
    {
        return allocate_callback((bytes + 255) / 256 * 256, stream, allocate_arg);
    }

    void deallocate(void *pointer, size_t bytes, cuda_stream_view stream)
    {
        deallocate_callback(pointer, (bytes + 255) / 256 * 256, stream, deallocate_arg);
    }
};

size_t live()
{
    static uint64_t stats[64]; /* struct mt_pool_stats: live_bytes is the first */
    static auto pool_of = find<mt_pool *(*)(int)>("memtally_pool_of_device");
    static auto read = find<void (*)(mt_pool *, uint64_t *)>("mt_pool_stats_read");
    read(pool_of(0), stats);
    return static_cast<size_t>(stats[0]);
}

void as_cupy(void *stream)
{
    CFunctionAllocator allocator(
        reinterpret_cast<intptr_t>(stream),
        reinterpret_cast<intptr_t>(find<void *>("memtally_pool_cupy_malloc")),
        reinterpret_cast<intptr_t>(find<void *>("memtally_pool_cupy_free")));
    size_t before = live();
    intptr_t one = allocator.malloc(10 * MIB + 1, 0), none = allocator.malloc(0, 0);
    expect(one && one % 512 == 0, "CuPy has its block, aligned to 512 bytes");
    expect(none == 0, "no bytes are no block");
    expect(live() - before == 10 * MIB + 512, "the pool counts CuPy's block, rounded to 512 bytes");
    allocator.free(one, 0);
    allocator.free(none, 0);
    expect(live() == before, "the pool has CuPy's block back");
    intptr_t again = allocator.malloc(10 * MIB, 0);
    expect(again == one, "the same stream has the block again at once");
    allocator.free(again, 0);
    expect(allocator.malloc(size_t(1) << 45, 0) == 0, "a shortage is an exception");
    expect(allocator.malloc(MIB, 7) == 0, "a device that is not there is an exception");
}

void as_rmm(void *stream)
{
    callback_memory_resource resource = {
        find<void *(*)(size_t, cuda_stream_view, void *)>("memtally_pool_rmm_allocate"),
        find<void (*)(void *, size_t, cuda_stream_view, void *)>("memtally_pool_rmm_deallocate"),
        nullptr, nullptr};
    cuda_stream_view view(stream);
    size_t before = live();
    void *one = resource.allocate(3 * MIB + 100, view);
    expect(one && reinterpret_cast<uintptr_t>(one) % 256 == 0, "RMM has its block, aligned to 256");
    expect(live() - before == 3 * MIB + 512, "the pool counts RMM's block");
    resource.deallocate(one, 3 * MIB + 100, view);
    expect(live() == before, "the pool has RMM's block back");
    bool is_thrown = false;
    try {
        resource.allocate(size_t(1) << 45, view);
    } catch (const std::bad_alloc &) {
        is_thrown = true;
    }
    expect(is_thrown, "a shortage is std::bad_alloc");
}

} // namespace

int main(int argc, char **argv)
{
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    expect(library != nullptr, "the library opens");
    expect(find<mt_pool *(*)(int)>("memtally_pool_of_device")(0) != nullptr, "device 0 has a pool");
    as_cupy(nullptr);                     /* the default stream */
    as_cupy(reinterpret_cast<void *>(2)); /* CU_STREAM_PER_THREAD */
    as_rmm(nullptr);
    as_rmm(reinterpret_cast<void *>(2));
    auto sleep = find<int64_t (*)(int)>("memtally_pool_sleep");
    auto wake = find<int (*)()>("memtally_pool_wake");
    expect(sleep(0) >= 0, "the pools sleep");
    expect(sleep(0) < 0, "a pool that sleeps says so");
    expect(wake() == 0, "the pools wake");
    std::puts("done");
    return 0;
}
