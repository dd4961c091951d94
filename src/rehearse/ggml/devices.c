/* SPDX-License-Identifier: MIT */
/* The pretended backend as ggml loads it. */
#include <stddef.h>

#include "rehearse/ggml/account_write.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *ggml_backend_init(void);
EXPORTED int ggml_backend_score(void);

void *ggml_backend_init(void)
{
    return NULL;
}

int ggml_backend_score(void)
{
    return pretend_account() ? 100 : 0;
}
