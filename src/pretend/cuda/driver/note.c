/* SPDX-License-Identifier: MIT */
/* What the look-alikes say in the account. */
#include <stdio.h>

#include "pretend/cuda/pretend_cuda.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"
#include "world.h"

PRETEND_CALL struct mt_account_cuda *pretend_cuda_account(void)
{
    struct mt_account *account = pretend_account();
    return account ? &account->cuda : NULL;
}

PRETEND_CALL int pretend_cuda_missing(const char *library, const char *name, int *told, int code)
{
    char text[MT_ACCOUNT_NOTE_BYTES + 1];
    if (__atomic_exchange_n(told, 1, __ATOMIC_RELAXED) || !pretend_account())
        return code;
    __atomic_fetch_add(&pretend_account()->cuda.n_missing, 1, __ATOMIC_RELAXED);
    snprintf(text, sizeof text, "%s of %s was called, which a rehearsal does not have.", name,
             library);
    pretend_note(text);
    return code;
}

PRETEND_CALL void pretend_cuda_absent(uint64_t bytes, const char *text)
{
    CUdevice device = pretend_current_device();
    pretend_note_absent(pretend_device(device < 0 ? 0 : device)->place, MT_CATEGORY_COMMUNICATION,
                        bytes, text);
}

PRETEND_CALL void pretend_cuda_note(const char *text)
{
    pretend_note(text);
}
