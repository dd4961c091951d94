// SPDX-License-Identifier: MIT
// A pool of host memory for containers of C++17.
//
//     memtally::pool_resource pool(mt_pool_host_backend());
//     std::pmr::vector<float> cache(&pool);
#ifndef MEMTALLY_POOL_HPP
#define MEMTALLY_POOL_HPP

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <stdexcept>

#include <memtally/error.h>
#include <memtally/pool.h>

namespace memtally {

// Owns a pool; whoever takes memory from it must be gone before. A shortage is std::bad_alloc, and
// so is an alignment above 512 bytes. Any thread.
class pool_resource : public std::pmr::memory_resource {
public:
    // Throws std::runtime_error with the library's sentence.
    explicit pool_resource(const mt_pool_backend *backend, const mt_pool_options *options = nullptr)
    {
        mt_error error;
        if (mt_pool_create(backend, options, &pool_, &error) != MT_OK)
            throw std::runtime_error(error.text);
    }
    ~pool_resource() override
    {
        mt_pool_destroy(pool_);
    }
    pool_resource(const pool_resource &) = delete;
    pool_resource &operator=(const pool_resource &) = delete;

    // The pool, for its statistics, trim and limits. Borrowed.
    mt_pool *get() const noexcept
    {
        return pool_;
    }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        std::uint64_t address;
        if (alignment > 512 || mt_pool_allocate(pool_, bytes, 0, &address) != MT_OK)
            throw std::bad_alloc();
        return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override
    {
        mt_pool_free(pool_, static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(block)));
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    mt_pool *pool_ = nullptr;
};

} // namespace memtally

#endif
