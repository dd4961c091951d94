/* SPDX-License-Identifier: MIT */
/* Finding a Python that has an engine's package. Starts none: what is installed is seen by its
 * folder. A Python that was named is taken as it is, and our program says what it lacks. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error_code.h>

#include "base/error.h"
#include "find_internal.h"

static const struct mt_profile_driver *const drivers[] = {&mt_profile_transformers,
                                                          &mt_profile_vllm, &mt_profile_sglang};

const struct mt_profile_driver *mt_profile_package_driver(const char *name)
{
    for (size_t i = 0; name && i < sizeof drivers / sizeof *drivers; i++)
        if (strcmp(drivers[i]->name, name) == 0)
            return drivers[i];
    return NULL;
}

static int matches(const char *pattern)
{
    glob_t found;
    int is_there = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    if (is_there)
        globfree(&found);
    return is_there;
}

/* Whether packages for the programs below `prefix` have this one among them. */
static int has_package(const char *prefix, const char *package)
{
    static const char *const below[] = {"lib*", "local/lib*"};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        char pattern[PATH_MAX + 128];
        int length = snprintf(pattern, sizeof pattern, "%s/%s/python3*/*-packages/%s/__init__.py",
                              prefix, below[i], package);
        if (length < (int)sizeof pattern && matches(pattern))
            return 1;
    }
    return 0;
}

/* The Python of a virtual environment, or of any folder with bin/python in it. */
static int python_below(const char *prefix, char program[PATH_MAX])
{
    static const char *const names[] = {"bin/python", "bin/python3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snprintf(program, PATH_MAX, "%s/%s", prefix, names[i]) < PATH_MAX &&
            access(program, X_OK) == 0)
            return 1;
    return 0;
}

/* Names a program by its absolute path. The link itself is kept: that of a virtual environment
 * leads to a Python that does not know its packages. */
static int make_absolute(const char *given, char program[PATH_MAX])
{
    char folder[PATH_MAX];
    char real[PATH_MAX];
    const char *slash = strrchr(given, '/');
    const char *base = slash ? slash + 1 : given;
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(base - given) : 1,
                 slash ? given : ".") >= PATH_MAX ||
        !realpath(folder, real))
        return 0;
    return snprintf(program, PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real, base) <
           PATH_MAX;
}

static int take_given(const char *given, char program[PATH_MAX], struct mt_error *error)
{
    struct stat status;
    char found[PATH_MAX];
    if (stat(given, &status) != 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "--engine-path: there is no file or folder %s", given);
    if (!S_ISDIR(status.st_mode))
        snprintf(found, sizeof found, "%s", given);
    else if (!python_below(given, found))
        found[0] = '\0';
    if (!*found || access(found, X_OK) != 0 || !make_absolute(found, program))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "--engine-path: %s is no Python, nor a virtual environment with one", given);
    return MT_OK;
}

/* The first Python of a search path that has the package. */
static int look_in_path(const char *search, const char *package, char program[PATH_MAX])
{
    while (search && *search) {
        size_t length = strcspn(search, ":");
        char prefix[PATH_MAX];
        if (length > 4 && length < sizeof prefix && strncmp(search + length - 4, "/bin", 4) == 0) {
            snprintf(prefix, sizeof prefix, "%.*s", (int)length - 4, search);
            if (has_package(prefix, package) && python_below(prefix, program))
                return 1;
        }
        search += length + (search[length] == ':');
    }
    return 0;
}

static int look_in_cache(const struct mt_profile_driver *driver,
                         const struct mt_profile_places *places, char program[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *name = driver->cached_as ? driver->cached_as : driver->package;
    return mt_profile_newest_engine(places, name, "-*", "bin/python", folder) &&
           has_package(folder, driver->package) && python_below(folder, program);
}

static int look_in_places(const struct mt_profile_driver *driver,
                          const struct mt_profile_places *places, char program[PATH_MAX],
                          struct mt_error *error)
{
    const char *active = places->virtual_env;
    if ((active && has_package(active, driver->package) && python_below(active, program)) ||
        look_in_cache(driver, places, program) ||
        look_in_path(places->path, driver->package, program))
        return MT_OK;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "no Python with the package %s was found, neither in an active virtual "
                   "environment nor in %s nor in PATH; name one with --engine-path",
                   driver->package,
                   places->engines && *places->engines ? places->engines : "a cache");
}

int mt_profile_find_python(const struct mt_profile_driver *driver, const char *given,
                           const struct mt_profile_places *places, struct mt_profile_engine *engine,
                           struct mt_error *error)
{
    engine->driver = driver;
    engine->program[0] = engine->script[0] = engine->modules[0] = '\0';
    int code = given ? take_given(given, engine->program, error)
                     : look_in_places(driver, places, engine->program, error);
    if (code != MT_OK)
        return code;
    if (!places->scripts ||
        snprintf(engine->script, PATH_MAX, "%s/%s", places->scripts, driver->script) >= PATH_MAX ||
        access(engine->script, R_OK) != 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s, which belongs to memtally, is not in %s; is memtally installed whole?",
                       driver->script, places->scripts ? places->scripts : "any folder");
    return MT_OK;
}
