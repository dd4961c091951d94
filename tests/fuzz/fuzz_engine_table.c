/* SPDX-License-Identifier: MIT */
/* Any text as an engine table: it is refused with an offset inside it, or its values can be asked
 * for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mt_engine engine;
    struct mt_engine_value value;
    struct mt_error error = {0};
    const char *text = (const char *)data;
    int result = mt_engine_parse(text, size, NULL, &engine, &error);
    if (result == MT_EFORMAT && error.offset > size)
        abort();
    if (result < 0)
        return 0;
    if (memchr(engine.name, 0, sizeof engine.name) == NULL)
        abort();
    if (mt_engine_value(&engine, "share", &value) == 0 &&
        (value.text < text || value.text + value.length > text + size || !value.length))
        abort();
    mt_engine_number(&engine, "share", 0);
    mt_engine_real(&engine, "share", 0);
    mt_engine_has(&engine, "share", "on");
    return 0;
}
