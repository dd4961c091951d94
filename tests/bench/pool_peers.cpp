/* SPDX-License-Identifier: MIT */
/* Models of other allocators, by their published rules: the best fit among free blocks, which join
 * their neighbours inside of a segment. They differ in how sizes are rounded, how large a segment
 * is, and what is cut off a block. No request fails, and no segment goes back. */
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "pool_trace.h"

namespace
{

const uint64_t MIB = 1 << 20;

uint64_t up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

struct Block {
    uint64_t bytes, address;
    bool is_free;
    Block *previous, *next; /* in its segment */
};

struct Smaller {
    bool operator()(const Block *a, const Block *b) const
    {
        return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
};

struct Pool {
    std::set<Block *, Smaller> free;
    Block *tail = nullptr; /* of the only segment, where that grows */
};

class Allocator
{
  public:
    explicit Allocator(enum allocator kind) : kind_(kind)
    {
    }

    ~Allocator()
    {
        for (Block *block : all_)
            delete block;
    }

    Block *take(uint64_t bytes)
    {
        uint64_t size = up(bytes ? bytes : 1, kind_ == RMM ? 256 : 512);
        Pool &pool = pools_[is_small(size)];
        Block key = {size, 0, false, nullptr, nullptr};
        auto found = pool.free.lower_bound(&key);
        Block *block = found != pool.free.end() ? *found : nullptr;
        if (block)
            pool.free.erase(found);
        else
            block = kind_ == TORCH_EXPANDABLE ? extend(pool, size) : segment(size);
        if (block->bytes - size >= least_rest(size))
            cut(pool, block, size);
        block->is_free = false;
        return block;
    }

    void give(Block *block, uint64_t bytes)
    {
        Pool &pool = pools_[is_small(up(bytes ? bytes : 1, kind_ == RMM ? 256 : 512))];
        if (block->next && block->next->is_free) {
            pool.free.erase(block->next);
            join(pool, block);
        }
        if (block->previous && block->previous->is_free) {
            block = block->previous;
            pool.free.erase(block);
            join(pool, block);
        }
        block->is_free = true;
        pool.free.insert(block);
    }

    uint64_t peak() const
    {
        return peak_;
    }

  private:
    bool is_small(uint64_t size) const
    {
        return (kind_ == TORCH || kind_ == TORCH_EXPANDABLE) && size <= MIB;
    }

    /* What may be cut off a block: of PyTorch's large ones nothing up to 1 MiB. */
    uint64_t least_rest(uint64_t size) const
    {
        if (kind_ == TORCH && !is_small(size))
            return MIB + 1;
        return kind_ == RMM ? 256 : 512;
    }

    uint64_t segment_bytes(uint64_t size) const
    {
        if (kind_ == TORCH)
            return size <= MIB ? 2 * MIB : size < 10 * MIB ? 20 * MIB : up(size, 2 * MIB);
        if (kind_ == RMM) /* as much again as there is */
            return std::max(size, held_);
        return size <= 2 * MIB ? size : up(size, 2 * MIB);
    }

    Block *make(uint64_t bytes)
    {
        Block *block = new Block{bytes, top_, false, nullptr, nullptr};
        all_.push_back(block);
        return block;
    }

    void hold(uint64_t bytes)
    {
        held_ += bytes;
        peak_ = std::max(peak_, held_);
    }

    Block *segment(uint64_t size)
    {
        uint64_t bytes = segment_bytes(size);
        Block *block = make(bytes);
        top_ += bytes + 2 * MIB;
        hold(bytes);
        if (kind_ == CUPY) /* the driver's rounding serves nobody */
            block->bytes = size;
        return block;
    }

    /* One segment for each size of page, which grows at its end. */
    Block *extend(Pool &pool, uint64_t size)
    {
        Block *tail = pool.tail && pool.tail->is_free ? pool.tail : nullptr;
        uint64_t page = is_small(size) ? 2 * MIB : 20 * MIB;
        uint64_t more = up(size - (tail ? tail->bytes : 0), page);
        hold(more);
        if (tail) {
            pool.free.erase(tail);
            tail->bytes += more;
            return tail;
        }
        Block *block = make(more);
        block->address = pool.tail ? pool.tail->address + pool.tail->bytes : top_;
        block->previous = pool.tail;
        if (pool.tail)
            pool.tail->next = block;
        else
            top_ += uint64_t(1) << 50;
        pool.tail = block;
        return block;
    }

    void cut(Pool &pool, Block *block, uint64_t size)
    {
        Block *rest = make(block->bytes - size);
        rest->address = block->address + size;
        rest->is_free = true;
        rest->previous = block;
        rest->next = block->next;
        if (rest->next)
            rest->next->previous = rest;
        if (pool.tail == block)
            pool.tail = rest;
        block->next = rest;
        block->bytes = size;
        pool.free.insert(rest);
    }

    /* Makes the block after it a part of it. */
    void join(Pool &pool, Block *block)
    {
        Block *gone = block->next;
        block->bytes += gone->bytes;
        block->next = gone->next;
        if (block->next)
            block->next->previous = block;
        if (pool.tail == gone)
            pool.tail = block;
    }

    enum allocator kind_;
    Pool pools_[2];
    std::vector<Block *> all_;
    uint64_t top_ = uint64_t(1) << 40, held_ = 0, peak_ = 0;
};

} // namespace

uint64_t allocator_peak(enum allocator kind, const struct trace *trace)
{
    Allocator allocator(kind);
    std::vector<Block *> blocks(trace->n_ids, nullptr);
    for (size_t i = 0; i < trace->n; i++) {
        const struct event &event = trace->events[i];
        if (event.is_free)
            allocator.give(blocks[event.id], event.bytes);
        else
            blocks[event.id] = allocator.take(event.bytes);
    }
    return allocator.peak();
}
