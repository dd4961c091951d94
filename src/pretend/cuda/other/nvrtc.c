/* SPDX-License-Identifier: MIT */
/* NVRTC for a program that brings none: it "compiles" into PTX without code, of the asked
 * architecture. Functions have the names that they were asked by. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/call.h"

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, NO_NAME = 10 };

struct name {
    struct name *next;
    char text[];
};

struct program {
    int is_compiled;
    char image[128];
    struct name *names;
};

static const int architectures[] = {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};
#define N_ARCHITECTURES ((int)(sizeof architectures / sizeof *architectures))

CALL(nvrtcVersion, (int *major, int *minor), {
    if (!major || !minor) {
        return INVALID_INPUT;
    }
    *major = NVRTC_MAJOR;
    *minor = NVRTC_MAJOR == 12 ? 8 : 2;
    return SUCCESS;
})

CALL(nvrtcGetNumSupportedArchs, (int *count), {
    if (!count)
        return INVALID_INPUT;
    *count = N_ARCHITECTURES;
    return SUCCESS;
})

CALL(nvrtcGetSupportedArchs, (int *into), {
    if (!into)
        return INVALID_INPUT;
    memcpy(into, architectures, sizeof architectures);
    return SUCCESS;
})

PRETEND_CALL const char *nvrtcGetErrorString(int result);
PRETEND_CALL const char *nvrtcGetErrorString(int result)
{
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR",
    };
    return result >= 0 && (size_t)result < sizeof names / sizeof *names ? names[result]
                                                                        : "NVRTC_ERROR unknown";
}

CALL(nvrtcCreateProgram,
     (struct program * *made, const char *source, const char *name, int n_headers,
      const char *const *headers, const char *const *include_names),
     {
         (void)name;
         if (!made || !source || n_headers < 0 || (n_headers > 0 && (!headers || !include_names)))
             return INVALID_INPUT;
         *made = calloc(1, sizeof **made);
         return *made ? SUCCESS : OUT_OF_MEMORY;
     })

CALL(nvrtcDestroyProgram, (struct program * *of), {
    struct name *name;
    if (!of || !*of)
        return INVALID_PROGRAM;
    while ((name = (*of)->names) != NULL) {
        (*of)->names = name->next;
        free(name);
    }
    free(*of);
    *of = NULL;
    return SUCCESS;
})

/* "sm_90a" of --gpu-architecture=sm_90a, -arch=compute_90; "" where it is another option. */
static void architecture_of(const char *option, char target[16])
{
    static const char *const options[] = {"--gpu-architecture=", "-arch="};
    const char *value = option;
    size_t i;
    target[0] = '\0';
    for (i = 0; i < 2; i++)
        if (strncmp(option, options[i], strlen(options[i])) == 0)
            value = option + strlen(options[i]);
    if (strncmp(value, "compute_", 8) == 0)
        snprintf(target, 16, "sm_%.8s", value + 8);
    else if (strncmp(value, "sm_", 3) == 0)
        snprintf(target, 16, "%.12s", value);
}

CALL(nvrtcCompileProgram, (struct program * of, int n_options, const char *const *options), {
    char target[16] = "sm_75";
    char found[16];
    int i;
    if (!of)
        return INVALID_PROGRAM;
    for (i = 0; i < n_options && options; i++) {
        if (options[i]) {
            architecture_of(options[i], found);
            memcpy(target, found[0] != '\0' ? found : target, sizeof target);
        }
    }
    snprintf(of->image, sizeof of->image, ".version 8.7\n.target %s\n.address_size 64\n", target);
    of->is_compiled = 1;
    return SUCCESS;
})

/* PTX and binaries are the same text: the pretended driver loads it as either. */
#define IMAGE(name)                                                                                \
    CALL(nvrtcGet##name##Size, (const struct program *of, size_t *bytes), {                        \
        if (!of || !of->is_compiled)                                                               \
            return INVALID_PROGRAM;                                                                \
        if (!bytes)                                                                                \
            return INVALID_INPUT;                                                                  \
        *bytes = strlen(of->image) + 1;                                                            \
        return SUCCESS;                                                                            \
    })                                                                                             \
    CALL(nvrtcGet##name, (const struct program *of, char *image), {                                \
        if (!of || !of->is_compiled)                                                               \
            return INVALID_PROGRAM;                                                                \
        if (!image)                                                                                \
            return INVALID_INPUT;                                                                  \
        memcpy(image, of->image, strlen(of->image) + 1);                                           \
        return SUCCESS;                                                                            \
    })
IMAGE(PTX)
IMAGE(CUBIN)
IMAGE(LTOIR)

CALL(nvrtcGetProgramLogSize, (const struct program *of, size_t *bytes), {
    if (!of || !bytes)
        return !of ? INVALID_PROGRAM : INVALID_INPUT;
    *bytes = 1;
    return SUCCESS;
})
CALL(nvrtcGetProgramLog, (const struct program *of, char *log), {
    if (!of || !log)
        return !of ? INVALID_PROGRAM : INVALID_INPUT;
    log[0] = '\0';
    return SUCCESS;
})

CALL(nvrtcAddNameExpression, (struct program * of, const char *expression), {
    struct name *name;
    if (!of || !expression)
        return !of ? INVALID_PROGRAM : INVALID_INPUT;
    name = malloc(sizeof *name + strlen(expression) + 1);
    if (!name)
        return OUT_OF_MEMORY;
    memcpy(name->text, expression, strlen(expression) + 1);
    name->next = of->names;
    of->names = name;
    return SUCCESS;
})
CALL(nvrtcGetLoweredName, (const struct program *of, const char *expression, const char **lowered),
     {
         const struct name *name;
         if (!of || !expression || !lowered)
             return !of ? INVALID_PROGRAM : INVALID_INPUT;
         for (name = of->names; name; name = name->next) {
             if (strcmp(name->text, expression) == 0) {
                 *lowered = name->text;
                 return SUCCESS;
             }
         }
         return NO_NAME;
     })
