/* SPDX-License-Identifier: MIT */
/* Sizes as people type them. */
#include <memtally/units.h>

#include <memtally/error.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    char *text = malloc(length + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, length);
    text[length] = '\0';

    uint64_t bytes = UINT64_MAX;
    int result = mt_parse_size(text, &bytes);
    free(text);
    /* A failure leaves the output alone, and no size is the one that means unknown. */
    if ((result == 0) == (bytes == UINT64_MAX))
        abort();
    if (result != 0)
        return 0;
    char shown[MT_SIZE_TEXT];
    if (strlen(mt_format_size(bytes, shown)) >= sizeof(shown) || strcmp(shown, "unknown") == 0)
        abort();
    return 0;
}
