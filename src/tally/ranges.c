/* SPDX-License-Identifier: MIT */
/* The range map as a treap: a binary tree by address that is a heap by random priority, so that it
 * stays shallow whatever the order of operations. */
#include "tally/ranges.h"

#include <stdlib.h>

struct mt_ranges_node {
    struct mt_range range;
    uint64_t priority;
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

static node *join(node *left, node *right)
{
    if (!left)
        return right;
    if (!right)
        return left;
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        return left;
    }
    right->left = join(left, right->left);
    return right;
}

/* Splits into ranges that begin below `address` and the others. */
static void split(node *tree, uint64_t address, node **below, node **above)
{
    if (!tree) {
        *below = *above = NULL;
    } else if (tree->range.low < address) {
        split(tree->right, address, &tree->right, above);
        *below = tree;
    } else {
        split(tree->left, address, below, &tree->left);
        *above = tree;
    }
}

static node *last_of(node *tree)
{
    while (tree && tree->right)
        tree = tree->right;
    return tree;
}

/* Cuts the tree at low and high and frees what lies between; hands back the two sides. */
static void cut(struct mt_ranges *ranges, uint64_t low, uint64_t high, node **below, node **above)
{
    node *middle;
    node *tail = NULL;
    split(ranges->root, low, below, &middle);
    split(middle, high, &middle, above);
    node *before = last_of(*below);
    if (before && before->range.high > low) {
        if (before->range.high > high)
            tail = make(ranges, high, before->range.high, before->range.value);
        before->range.high = low;
    }
    node *last = last_of(middle);
    if (last && last->range.high > high)
        tail = make(ranges, high, last->range.high, last->range.value);
    destroy(ranges, middle);
    *above = join(tail, *above);
    ranges->root = NULL;
}

void mt_ranges_set(struct mt_ranges *ranges, uint64_t low, uint64_t high, uint64_t value)
{
    node *below;
    node *above;
    if (low >= high)
        return;
    cut(ranges, low, high, &below, &above);
    ranges->root = join(join(below, make(ranges, low, high, value)), above);
}

void mt_ranges_clear(struct mt_ranges *ranges, uint64_t low, uint64_t high)
{
    node *below;
    node *above;
    if (low >= high)
        return;
    cut(ranges, low, high, &below, &above);
    ranges->root = join(below, above);
}

int mt_ranges_at_or_after(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range)
{
    const node *best = NULL;
    for (const node *at = ranges->root; at;) {
        if (at->range.high > address) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    if (!best)
        return 0;
    *range = best->range;
    return 1;
}

int mt_ranges_find(const struct mt_ranges *ranges, uint64_t address, struct mt_range *range)
{
    return mt_ranges_at_or_after(ranges, address, range) && range->low <= address;
}
