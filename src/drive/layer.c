/* SPDX-License-Identifier: MIT */
/* Tells programs with ggml in them from others, and finds the look-alikes that each gets. */
#include "layer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "find.h"
#include "flags.h"
#include "objects.h"
#include "program_file.h"

enum mt_drive_layer mt_drive_layer_of(char *const *argv, char *const *environment)
{
    char path[PATH_MAX];
    struct mt_drive_command command;
    mt_drive_command_copy(argv, &command);
    int is_ggml = command.failed || mt_drive_command_is(&command, "devices", "ggml");
    if (!is_ggml && command.program == MT_DRIVE_UNKNOWN_PROGRAM) {
        const char *name = command.words[command.program_index];
        const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
        is_ggml = strncmp(base, "node", 4) == 0 ||
                  (mt_drive_find_in_path(name, environment, path) && mt_drive_has_ggml(path));
    }
    mt_drive_command_finish(&command);
    return is_ggml ? MT_DRIVE_LAYER_GGML : MT_DRIVE_LAYER_CUDA;
}

/* The folder of a path, or the one above that where it is of the build tree: there each library
 * lies in a folder of its own. */
static void cut_to_folder(char *path)
{
    static const char built[] = "/pretend/cuda/driver";
    *strrchr(path, '/') = '\0';
    size_t length = strlen(path);
    if (length >= sizeof built && strcmp(path + length - (sizeof built - 1), built) == 0)
        *strrchr(path, '/') = '\0';
}

void mt_drive_find_site(char *path, size_t size)
{
    /* As it is built or installed; and as the Python package has it, where the whole of memtally
     * lies in a folder of the package. */
    static const char *const places[] = {"../python/memtally/site", "../../../../site"};
    char scripts[PATH_MAX];
    mt_profile_scripts_folder(scripts, sizeof scripts);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, size, "%s/%s", scripts, places[i]);
        if (length > 0 && (size_t)length < size && access(path, R_OK) == 0)
            return;
    }
    path[0] = '\0';
}

int mt_drive_find_cuda(char *const *environment, struct mt_drive_cuda_paths *paths,
                       struct mt_error *error)
{
    static const struct mt_drive_object built = {"the pretended CUDA driver",
                                                 "libmemtally-pretend-cuda-driver.so",
                                                 "MEMTALLY_PRETEND_CUDA", "/pretend/cuda/driver"};
    static const struct mt_drive_object installed = {"the pretended CUDA driver",
                                                     "cuda/libmemtally-pretend-cuda-driver.so",
                                                     "MEMTALLY_PRETEND_CUDA", ""};
    if (mt_drive_find_object(&built, environment, paths->directory, sizeof paths->directory, NULL) <
        0) {
        int result = mt_drive_find_object(&installed, environment, paths->directory,
                                          sizeof paths->directory, error);
        if (result < 0)
            return result;
    }
    cut_to_folder(paths->directory);
    mt_drive_find_site(paths->helper, sizeof paths->helper);
    return 0;
}
