/* SPDX-License-Identifier: MIT */
/* What users call a model: a path, a name in Ollama's store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/estimate/estimate.h"

static int is_url(const char *name)
{
    return !strncmp(name, "https://", 8) || !strncmp(name, "http://", 7);
}

int estimate_open_model(const char *name, int remote, struct mt_model **model,
                        struct mt_error *error)
{
    (void)remote;
    if (!*name)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "estimate: the name of the model is empty");
    if (is_url(name))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "estimate: '%.200s' is read over the network only with --remote", name);
    return mt_model_open(name, NULL, model, error);
}
