/* SPDX-License-Identifier: MIT */
/* Making a list of call stacks that mt_stack_list_destroy() frees. */
#ifndef MT_TALLY_STACK_LIST_H
#define MT_TALLY_STACK_LIST_H

struct mt_stack_entry; /* <memtally/recording.h> */

#define MT_STACK_FRAMES_MOST 256u

struct mt_stack_list *mt_stack_list_create(void); /* NULL where memory ran out */

/* Adds to the entry with the same frames, whose texts are copied when new. Returns 0 or
 * MT_ENOMEM. */
int mt_stack_list_add(struct mt_stack_list *stacks, const struct mt_stack_entry *entry);

/* The order of stacks: by frames, then by place. 0 where they are the same. */
int mt_stack_compare(const struct mt_stack_entry *x, const struct mt_stack_entry *y);

/* Sorts, and keeps `limit` entries; 0: all. */
void mt_stack_list_finish(struct mt_stack_list *stacks, size_t limit);

#endif
