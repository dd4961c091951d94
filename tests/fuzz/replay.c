/* SPDX-License-Identifier: MIT */
/* Gives every file of a folder to a fuzz harness, so that the ordinary tests replay the corpus. A
 * harness that finds something aborts, and the program's death is the failure. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static int is_seed(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (file == NULL || fstat(fileno(file), &status) != 0) {
        perror(path);
        return -1;
    }
    size_t length = (size_t)status.st_size;
    uint8_t *data = malloc(length != 0 ? length : 1);
    int result = data != NULL && fread(data, 1, length, file) == length ? 0 : -1;
    fclose(file);
    if (result == 0)
        LLVMFuzzerTestOneInput(data, length);
    free(data);
    return result;
}

int main(int argc, char **argv)
{
    struct dirent **seeds;
    int n = argc == 2 ? scandir(argv[1], &seeds, is_seed, alphasort) : -1;
    if (n <= 0) {
        fprintf(stderr, "usage: replay FOLDER (with at least one file in it)\n");
        return 2;
    }
    int failures = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", argv[1], seeds[i]->d_name);
        int held = replay(path) == 0;
        failures += !held;
        printf("%s %d - %s\n", held ? "ok" : "not ok", i + 1, seeds[i]->d_name);
        free(seeds[i]);
    }
    free(seeds);
    return failures != 0;
}
