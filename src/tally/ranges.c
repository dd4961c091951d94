/* SPDX-License-Identifier: MIT */
/* The range map as a treap: a binary tree by address that is a heap by random priority, so that it
 * stays shallow whatever the order of operations. */
#include "tally/ranges.h"

#include <stdlib.h>

struct mt_ranges_node {
    struct mt_range range;
    uint64_t priority;
    uint64_t shift; /* by which all below has yet to be moved */
    struct mt_ranges_node *left;
    struct mt_ranges_node *right;
};

typedef struct mt_ranges_node node;

void mt_ranges_init(struct mt_ranges *ranges)
{
    *ranges = (struct mt_ranges){0};
}

static void destroy(struct mt_ranges *ranges, node *tree)
{
    while (tree) {
        node *right = tree->right;
        destroy(ranges, tree->left);
        free(tree);
        ranges->n--;
        tree = right;
    }
}

void mt_ranges_finish(struct mt_ranges *ranges)
{
    destroy(ranges, ranges->root);
    mt_ranges_init(ranges);
}

/* Where the node lies has a part in it, so that a file cannot choose an order of ranges that makes
 * the tree deep. */
static uint64_t next_priority(struct mt_ranges *ranges, const node *made)
{
    ranges->random += 0x9e3779b97f4a7c15u;
    uint64_t mixed = ranges->random ^ (uint64_t)(uintptr_t)made;
    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdu;
    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53u;
    return mixed ^ mixed >> 33;
}

static node *make(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t value)
{
    node *made = malloc(sizeof *made);
    if (!made) {
        ranges->failed = 1;
        return NULL;
    }
    *made = (node){.range = {low, high, value}, .priority = next_priority(ranges, made)};
    ranges->n++;
    return made;
}

static void shift(node *tree, uint64_t by)
{
    if (!tree)
        return;
    tree->range.low += by;
    tree->range.high += by;
    tree->shift += by;
}

static void hand_down(node *tree)
{
    if (!tree->shift)
        return;
    shift(tree->left, tree->shift);
    shift(tree->right, tree->shift);
    tree->shift = 0;
}

static node *join(node *left, node *right)
{
    if (!left)
        return right;
    if (!right)
        return left;
    if (left->priority > right->priority) {
        hand_down(left);
        left->right = join(left->right, right);
        return left;
    }
    hand_down(right);
    right->left = join(left, right->left);
    return right;
}

/* Splits into ranges that begin below `address` and the others. */
static void split(node *tree, uint64_t address, node **below, node **above)
{
    if (!tree) {
        *below = *above = NULL;
        return;
    }
    hand_down(tree);
    if (tree->range.low < address) {
        split(tree->right, address, &tree->right, above);
        *below = tree;
    } else {
        split(tree->left, address, below, &tree->left);
        *above = tree;
    }
}

static node *last_of(node *tree)
{
    while (tree && tree->right) {
        hand_down(tree);
        tree = tree->right;
    }
    return tree;
}

/* Splits at `address` and cuts the range in two that lies across it. */
static void cut(struct mt_ranges *ranges, node *tree, uint64_t address, node **below, node **above)
{
    split(tree, address, below, above);
    node *last = last_of(*below);
    if (!last || last->range.high <= address)
        return;
    node *tail = make(ranges, address, last->range.high, last->range.value);
    last->range.high = address;
    *above = join(tail, *above);
}

/* Frees what lies in [low, high) and hands back the two sides. */
static void take_out(struct mt_ranges *ranges, uint64_t low, uint64_t high, node **below,
                     node **above)
{
    node *middle;
    cut(ranges, ranges->root, low, below, &middle);
    cut(ranges, middle, high, &middle, above);
    destroy(ranges, middle);
    ranges->root = NULL;
}

void mt_ranges_set(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t value)
{
    node *below;
    node *above;
    if (low >= high)
        return;
    take_out(ranges, low, high, &below, &above);
    ranges->root = join(join(below, make(ranges, low, high, value)), above);
}

void mt_ranges_clear(struct mt_ranges *ranges, uint64_t low, uint64_t high)
{
    node *below;
    node *above;
    if (low >= high)
        return;
    take_out(ranges, low, high, &below, &above);
    ranges->root = join(below, above);
}

void mt_ranges_move(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t to)
{
    node *below;
    node *moved;
    node *above;
    if (low >= high)
        return;
    cut(ranges, ranges->root, low, &below, &moved);
    cut(ranges, moved, high, &moved, &above);
    ranges->root = join(below, above);
    shift(moved, to - low);
    take_out(ranges, to, to + (high - low), &below, &above);
    ranges->root = join(join(below, moved), above);
}

int mt_ranges_at_or_after(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range)
{
    int is_found = 0;
    uint64_t by = 0;
    for (const node *at = ranges->root; at;) {
        const struct mt_range here = {at->range.low + by, at->range.high + by, at->range.value};
        by += at->shift;
        if (here.high > address) {
            *range = here;
            is_found = 1;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return is_found;
}

int mt_ranges_find(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range)
{
    return mt_ranges_at_or_after(ranges, address, range) && range->low <= address;
}

int mt_ranges_are_many(const struct mt_ranges *ranges, uint64_t low, uint64_t high, size_t many)
{
    struct mt_range range;
    for (uint64_t at = low; many; at = range.high, many--)
        if (!mt_ranges_at_or_after(ranges, at, &range) || range.low >= high)
            return 0;
    return 1;
}

/* Looks at a tree by address. What is below a node has yet to be moved by `moved`. */
static int tree_is_valid(const node *tree, uint64_t moved, uint64_t *end, size_t *n)
{
    for (; tree; tree = tree->right) {
        uint64_t low = tree->range.low + moved;
        uint64_t high = tree->range.high + moved;
        moved += tree->shift;
        if ((tree->left && tree->left->priority > tree->priority) ||
            (tree->right && tree->right->priority > tree->priority) ||
            !tree_is_valid(tree->left, moved, end, n) || low < *end || low >= high)
            return 0;
        *end = high;
        ++*n;
    }
    return 1;
}

int mt_ranges_are_valid(const struct mt_ranges *ranges)
{
    uint64_t end = 0;
    size_t n = 0;
    return tree_is_valid(ranges->root, 0, &end, &n) && n == ranges->n;
}
