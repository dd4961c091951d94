/* SPDX-License-Identifier: MIT */
/* Looking for the object that pretends devices. */
#include "pretend_path.h"

#include "objects.h"

int mt_drive_find_pretend(char *const *environment, char *path, size_t size, struct mt_error *error)
{
    static const struct mt_drive_object pretend = {"the object that pretends devices,",
                                                   "libmemtally-pretend-ggml.so",
                                                   "MEMTALLY_PRETEND", "/pretend/ggml"};
    return mt_drive_find_object(&pretend, environment, path, size, error);
}
