/* SPDX-License-Identifier: MIT */
/* The account of a rehearsal as the process that drives it sees it. */
#ifndef MT_REHEARSAL_ACCOUNT_FILE_H
#define MT_REHEARSAL_ACCOUNT_FILE_H

#include <stdint.h>

#include "rehearse/account.h"

struct mt_error;             /* <memtally/error.h> */
struct mt_rehearsal_options; /* <memtally/rehearsal.h> */

/* Makes the account's file and maps it (account_file.c). The caller unmaps *account. */
int mt_account_create(const struct mt_rehearsal_options *options, const char *path,
                      struct mt_account **account, struct mt_error *error);
void mt_account_unmap(struct mt_account *account);

/* Writes an event of the driver's own. */
void mt_account_note(struct mt_account *account, enum mt_account_kind kind, uint32_t pid,
                     const char *name);

/* Gives back what a process held that is gone: its bytes at a place, and what they took of it. */
void mt_account_give_back(struct mt_account *account, uint8_t place, uint64_t bytes, uint64_t held);

/* Whether the list of events was full, so that some are not there. */
int mt_account_is_full(const struct mt_account *account);
/* What a process took of a device by its own row: its bytes, or what these take of it. */
uint64_t mt_account_of_process(const struct mt_account *account, uint32_t pid, uint32_t device,
                               int is_held);
/* A process is gone: its row is free. */
void mt_account_drop_process(struct mt_account *account, uint32_t pid);

/* Whether the account is one of ours, and devices' bytes are those of processes and of what these
 * share. The program writes it: that it holds is known of our own accounts and our own programs
 * only, once they rest. */
int mt_account_is_valid(const struct mt_account *account);

/* "gpu:0" and so on, "host" for MT_ACCOUNT_HOST. Borrowed, static. */
const char *mt_place_name(uint8_t place);

#endif
