/* SPDX-License-Identifier: MIT */
/* What still becomes resident when the recorder's last picture has been taken: the code that ends
 * the libraries after it. The kernel maps a file's pages by sixteen where one is touched, so that
 * this is several percent of a small program. It is touched before the picture. */
#include "recorder/recorder.h"

#include <link.h>

#include "recorder/real.h"

static void touch(uintptr_t place)
{
    if (place)
        (void)*(const volatile char *)place; /* NOLINT: an address of the loader's */
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *module)
{
    for (int i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(module->dlpi_addr + module->dlpi_phdr[i].p_vaddr);
    return NULL;
}

/* The functions that the loader calls at the end: one by its address, others by an array. */
static int touch_ends(struct dl_phdr_info *module, size_t size, void *context)
{
    const ElfW(Dyn) *entry = dynamic_of(module);
    const uintptr_t *functions = NULL;
    size_t bytes = 0;
    (void)size;
    (void)context;
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_FINI)
            touch(module->dlpi_addr + entry->d_un.d_ptr);
        else if (entry->d_tag == DT_FINI_ARRAY)
            functions = (const uintptr_t *)(module->dlpi_addr + entry->d_un.d_ptr);
        else if (entry->d_tag == DT_FINI_ARRAYSZ)
            bytes = entry->d_un.d_val;
    }
    for (size_t i = 0; functions && i < bytes / sizeof *functions; i++)
        touch(functions[i]);
    return 0;
}

/* What exit() calls when it has called all others: stdio is flushed, which is not ours to look up
 * by a name of its own, and the process ends. */
extern int _IO_flush_all(void) __attribute__((weak)); /* NOLINT */

void foresee_end(void)
{
    touch((uintptr_t)_IO_flush_all);
    touch((uintptr_t)memtally_real._exit);
    dl_iterate_phdr(touch_ends, NULL);
}
