/* SPDX-License-Identifier: MIT */
/* Manifests of tests as people write them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

#include "cli/budget/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_error error = {.code = 0};
    char *text = malloc(length + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, length);
    text[length] = '\0';

    /* There is a document, or an error that says where. */
    json_t *document = budget_parse_toml(text, &error);
    if ((document == NULL) != (error.code == MT_EFORMAT && strncmp(error.text, "line ", 5) == 0))
        abort();
    if (document && !json_is_object(document))
        abort();
    json_decref(document);
    free(text);
    return 0;
}
