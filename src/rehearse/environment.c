/* SPDX-License-Identifier: MIT */
/* The environment of a rehearsed program: the pretended devices in, the real ones out. Knows no
 * process. */
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "rehearse/rehearsal.h"

/* What is set for the program, whatever stood there. NULL: a path, put in below. */
static const struct {
    const char *name;
    const char *value;
} own[] = {
    {"LD_PRELOAD", NULL},
    {"GGML_BACKEND_PATH", NULL},
    {MT_ACCOUNT_VARIABLE, NULL},
    {"CUDA_VISIBLE_DEVICES", "-1"},
    {"HIP_VISIBLE_DEVICES", "-1"},
    {"ROCR_VISIBLE_DEVICES", "-1"},
    {"MUSA_VISIBLE_DEVICES", "-1"},
    {"GGML_VK_VISIBLE_DEVICES", ""}, /* a list of numbers; any that is not there is an error */
    {"ONEAPI_DEVICE_SELECTOR", "!*:gpu"},
    {"GGML_NO_BACKTRACE", "1"}, /* else a debugger is started when an assertion fails */
};

#define N_OWN (sizeof own / sizeof *own)

static int is_called(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

const char *mt_environment_get(char *const *environment, const char *name)
{
    for (; *environment; environment++)
        if (is_called(*environment, name))
            return *environment + strlen(name) + 1;
    return NULL;
}

static int is_own(const char *variable)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (is_called(variable, own[i].name))
            return 1;
    return 0;
}

/* What was preloaded before comes after. */
static char *make_own(size_t i, const char *pretend_path, const char *account_path,
                      const char *preloaded)
{
    struct mt_strbuf text = {0};
    const char *value = own[i].value;
    if (!value)
        value = strcmp(own[i].name, MT_ACCOUNT_VARIABLE) == 0 ? account_path : pretend_path;
    mt_strbuf_printf(&text, "%s=%s", own[i].name, value);
    if (i == 0 && preloaded && *preloaded)
        mt_strbuf_printf(&text, ":%s", preloaded);
    return mt_strbuf_take(&text);
}

char **mt_environment_make(char *const *given, const char *pretend_path, const char *account_path)
{
    size_t n = 0;
    while (given[n])
        n++;
    char **made = calloc(n + N_OWN + 1, sizeof *made);
    size_t n_made = 0;
    int failed = !made;
    for (size_t i = 0; !failed && i < N_OWN; i++) {
        made[n_made] =
            make_own(i, pretend_path, account_path, mt_environment_get(given, "LD_PRELOAD"));
        failed = !made[n_made++];
    }
    for (size_t i = 0; !failed && i < n; i++) {
        if (is_own(given[i]))
            continue;
        made[n_made] = strdup(given[i]);
        failed = !made[n_made++];
    }
    if (!failed)
        return made;
    mt_environment_free(made);
    return NULL;
}

void mt_environment_free(char **environment)
{
    for (char **at = environment; at && *at; at++)
        free(*at);
    free(environment);
}
