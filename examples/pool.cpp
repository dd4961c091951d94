// SPDX-License-Identifier: MIT
// Containers whose memory comes from a pool and stays there for the next ones:
//
//     c++ -std=c++17 pool.cpp $(pkg-config --cflags --libs memtally) && ./a.out
#include <cstdint>
#include <iostream>
#include <new>
#include <vector>

#include <memtally/pool.hpp>

int main()
{
    mt_pool_options options = {};
    options.max_bytes = std::uint64_t{64} << 20;
    memtally::pool_resource pool(mt_pool_host_backend(), &options);
    for (int request = 0; request < 100; request++) {
        std::pmr::vector<float> scores(4 << 20, 1.0F, &pool);
        if (scores.front() + scores.back() != 2.0F)
            return 1;
    }
    try {
        std::pmr::vector<float> too_many(32 << 20, &pool);
        return 1;
    } catch (const std::bad_alloc &) {
    }
    mt_pool_stats stats;
    mt_pool_stats_read(pool.get(), &stats);
    std::cout << stats.n_allocations << " vectors, " << stats.n_hits << " of them without new memory\n";
    return stats.n_allocations == 100 && stats.n_hits == 99 && stats.n_failures == 1 ? 0 : 1;
}
