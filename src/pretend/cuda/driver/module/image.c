/* SPDX-License-Identifier: MIT */
/* Choosing code as the CUDA programming guide ("Application Compatibility") says: machine code runs
 * on devices of its own major revision and no lower minor one, and goes before PTX, which is
 * compiled for every device that is not older than it. */
#include "image.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_base.h"

#define WRAPPER_MAGIC   0x466243b1u
#define CONTAINER_MAGIC 0xBA55ED50u
#define CONTAINER_BYTES 16u
#define ENTRY_BYTES     32u /* of its header, as far as it is read */
#define ENTRY_ARCH      28u
#define KIND_PTX        1u
#define KIND_CODE       2u
#define ELF_BYTES       64u
#define ELF_CLASS       4u
#define ELF_64          2u
#define ELF_MACHINE     18u
#define ELF_ABI         8u
#define ELF_FLAGS       48u
#define ELF_SECTIONS                                                                               \
    40u /* where their headers begin, how long one is, how many, which has names                   \
         */
#define ELF_SECTION_LEN 58u
#define ELF_SECTION_N   60u
#define ELF_NAMES       62u
#define SECTION_BYTES   64u
#define SECTION_OFFSET  24u
#define SECTION_LENGTH  32u
#define MACHINE_CUDA    190u
#define ABI_ARCH_HIGH   8u /* from this version on the architecture stands in the second byte */
#define PTX_LOOK_BYTES  65536u

static uint16_t get16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int runs_on(uint32_t arch, uint32_t capability)
{
    return arch / 10 == capability / 10 && arch <= capability;
}

static void weigh(uint32_t kind, uint32_t arch, uint32_t capability, uint32_t *code, uint32_t *ptx)
{
    if (kind == KIND_CODE && runs_on(arch, capability) && arch > *code)
        *code = arch;
    if (kind == KIND_PTX && arch <= capability && arch > *ptx)
        *ptx = arch;
}

static enum pretend_image_result decide(uint32_t code, uint32_t ptx, uint32_t capability,
                                        struct pretend_image *chosen)
{
    if (!code && !ptx)
        return PRETEND_IMAGE_NONE;
    chosen->binary = code ? code : capability;
    chosen->ptx = code ? code : ptx;
    return PRETEND_IMAGE_CHOSEN;
}

static enum pretend_image_result choose_in_container(const unsigned char *image, size_t bytes,
                                                     uint32_t capability,
                                                     struct pretend_image *chosen)
{
    uint32_t code = 0, ptx = 0;
    uint64_t at = get16(image + 6), end = get64(image + 8);
    if (at < CONTAINER_BYTES || end > SIZE_MAX - at)
        return PRETEND_IMAGE_UNKNOWN;
    end += at;
    if (end > bytes)
        end = bytes;
    while (at <= end && end - at >= ENTRY_BYTES) {
        const unsigned char *entry = image + at;
        uint64_t header = get32(entry + 4), payload = get64(entry + 8);
        if (header < ENTRY_BYTES || header > end - at || payload > end - at - header)
            break;
        weigh(get16(entry), get32(entry + ENTRY_ARCH), capability, &code, &ptx);
        at += header + payload;
    }
    return decide(code, ptx, capability, chosen);
}

static enum pretend_image_result choose_code(const unsigned char *image, uint32_t capability,
                                             struct pretend_image *chosen)
{
    uint32_t flags = get32(image + ELF_FLAGS), code = 0, ptx = 0;
    uint32_t arch = image[ELF_ABI] >= ABI_ARCH_HIGH ? flags >> 8 & 0xff : flags & 0xff;
    if (get16(image + ELF_MACHINE) != MACHINE_CUDA)
        return PRETEND_IMAGE_UNKNOWN;
    weigh(KIND_CODE, arch, capability, &code, &ptx);
    return decide(code, ptx, capability, chosen);
}

/* "… .target sm_90a …", behind comments and the version. */
static enum pretend_image_result choose_ptx(const char *text, size_t bytes, uint32_t capability,
                                            struct pretend_image *chosen)
{
    static const char target[] = ".target sm_";
    size_t most = strnlen(text, bytes < PTX_LOOK_BYTES ? bytes : PTX_LOOK_BYTES);
    uint32_t code = 0, ptx = 0, arch = 0;
    const char *found = memmem(text, most, target, sizeof target - 1);
    if (!found)
        return PRETEND_IMAGE_UNKNOWN;
    for (found += sizeof target - 1; found < text + most && isdigit((unsigned char)*found); found++)
        arch = arch < 10000 ? arch * 10 + (uint32_t)(*found - '0') : arch;
    weigh(KIND_PTX, arch, capability, &code, &ptx);
    return decide(code, ptx, capability, chosen);
}

PRETEND_CALL enum pretend_image_result pretend_cuda_image_choose(const void *image, size_t bytes,
                                                                 uint32_t capability,
                                                                 struct pretend_image *chosen)
{
    const unsigned char *at = image;
    if (!at || bytes < sizeof(uint32_t))
        return PRETEND_IMAGE_UNKNOWN;
    if (bytes == SIZE_MAX && get32(at) == WRAPPER_MAGIC) {
        memcpy(&at, at + 8, sizeof at);
        if (!at)
            return PRETEND_IMAGE_UNKNOWN;
    }
    if (bytes >= CONTAINER_BYTES && get32(at) == CONTAINER_MAGIC)
        return choose_in_container(at, bytes, capability, chosen);
    if (bytes >= ELF_BYTES && memcmp(at, "\177ELF", 4) == 0)
        return choose_code(at, capability, chosen);
    return choose_ptx((const char *)at, bytes, capability, chosen);
}

/* ---- kernels ---- */

/* Section headers of machine code, and the names of sections. */
struct sections {
    const unsigned char *headers;
    unsigned n;
    const char *names;
    uint64_t name_bytes; /* the last of which is a NUL */
};

static int is_within(uint64_t offset, uint64_t length, size_t bytes)
{
    return offset <= bytes && length <= bytes - offset;
}

static int find_sections(const unsigned char *image, size_t bytes, struct sections *sections)
{
    uint64_t at = get64(image + ELF_SECTIONS);
    unsigned names = get16(image + ELF_NAMES);
    sections->n = get16(image + ELF_SECTION_N);
    if (get16(image + ELF_SECTION_LEN) != SECTION_BYTES || names >= sections->n ||
        !is_within(at, (uint64_t)sections->n * SECTION_BYTES, bytes))
        return 0;
    sections->headers = image + at;
    const unsigned char *header = sections->headers + (size_t)names * SECTION_BYTES;
    uint64_t offset = get64(header + SECTION_OFFSET);
    sections->name_bytes = get64(header + SECTION_LENGTH);
    sections->names = (const char *)image + offset;
    return sections->name_bytes && is_within(offset, sections->name_bytes, bytes) &&
           !sections->names[sections->name_bytes - 1];
}

PRETEND_CALL int pretend_cuda_image_kernels(const void *image, size_t bytes,
                                            int (*take)(void *context, const char *name),
                                            void *context)
{
    static const char kernel[] = ".nv.constant0.";
    struct sections sections;
    int result = 0;
    if (!image || bytes < ELF_BYTES || memcmp(image, "\177ELF", 4) != 0 ||
        ((const unsigned char *)image)[ELF_CLASS] != ELF_64 ||
        get16((const unsigned char *)image + ELF_MACHINE) != MACHINE_CUDA ||
        !find_sections(image, bytes, &sections))
        return -1;
    for (unsigned i = 0; i < sections.n && result == 0; i++) {
        uint32_t name = get32(sections.headers + (size_t)i * SECTION_BYTES);
        if (name >= sections.name_bytes)
            return -1;
        if (strncmp(sections.names + name, kernel, sizeof kernel - 1) == 0 &&
            sections.names[name + sizeof kernel - 1])
            result = take(context, sections.names + name + sizeof kernel - 1);
    }
    return result;
}
