/* SPDX-License-Identifier: MIT */
/* The pretended nvidia-smi, which programs run to learn what GPUs there are: the list, a query for
 * comma-separated values, and a short table. It asks the NVML that it finds, which in a rehearsal
 * is the pretended one. The options are those of its manual; others are refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT   128
#define GPUS   64
#define FIELDS 32

struct nvml_device;
struct memory {
    unsigned long long total, free, used;
};
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned room);
int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned room);
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct memory *memory);
int nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor);
int nvmlSystemGetDriverVersion(char *version, unsigned room);
int nvmlSystemGetCudaDriverVersion_v2(int *version);

struct request {
    const char *fields; /* of --query-gpu, or NULL */
    const char *only;   /* of --id: indexes or UUIDs, or NULL */
    int is_list;
    int has_header;
    int has_units;
};

struct gpu {
    unsigned index;
    unsigned n;
    char name[TEXT];
    char uuid[TEXT];
    char driver[TEXT];
    struct memory memory;
    int major, minor;
};

static int see(unsigned index, unsigned n, struct gpu *gpu)
{
    struct nvml_device *device;
    *gpu = (struct gpu){.index = index, .n = n};
    return nvmlDeviceGetHandleByIndex_v2(index, &device) ||
           nvmlDeviceGetName(device, gpu->name, TEXT) ||
           nvmlDeviceGetUUID(device, gpu->uuid, TEXT) ||
           nvmlDeviceGetMemoryInfo(device, &gpu->memory) ||
           nvmlDeviceGetCudaComputeCapability(device, &gpu->major, &gpu->minor) ||
           nvmlSystemGetDriverVersion(gpu->driver, TEXT);
}

static const char *unit_of(const char *field)
{
    return strncmp(field, "memory.", 7) == 0 ? "MiB" : NULL;
}

static void print_memory(unsigned long long bytes, int has_units)
{
    printf("%llu%s", bytes >> 20, has_units ? " MiB" : "");
}

static void print_field(const struct gpu *gpu, const char *field, int has_units)
{
    if (!strcmp(field, "index"))
        printf("%u", gpu->index);
    else if (!strcmp(field, "count"))
        printf("%u", gpu->n);
    else if (!strcmp(field, "name") || !strcmp(field, "gpu_name"))
        printf("%s", gpu->name);
    else if (!strcmp(field, "uuid") || !strcmp(field, "gpu_uuid"))
        printf("%s", gpu->uuid);
    else if (!strcmp(field, "driver_version"))
        printf("%s", gpu->driver);
    else if (!strcmp(field, "compute_cap"))
        printf("%d.%d", gpu->major, gpu->minor);
    else if (!strcmp(field, "memory.total"))
        print_memory(gpu->memory.total, has_units);
    else if (!strcmp(field, "memory.used"))
        print_memory(gpu->memory.used, has_units);
    else if (!strcmp(field, "memory.free"))
        print_memory(gpu->memory.free, has_units);
    else
        printf("[N/A]");
}

/* The names of a list, parted by commas and spaces; `text` is changed. */
static size_t split(char *text, const char *words[FIELDS])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ", ", &rest); word && n < FIELDS;
         word = strtok_r(NULL, ", ", &rest))
        words[n++] = word;
    return n;
}

static int is_wanted(const struct request *request, const struct gpu *gpu)
{
    const char *words[FIELDS];
    char text[1024];
    char index[16];
    if (!request->only)
        return 1;
    snprintf(text, sizeof text, "%s", request->only);
    snprintf(index, sizeof index, "%u", gpu->index);
    size_t n = split(text, words);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(words[i], index) || !strcmp(words[i], gpu->uuid))
            return 1;
    return 0;
}

static void print_query(const struct request *request, const struct gpu *gpus, unsigned n)
{
    const char *words[FIELDS];
    char text[1024];
    snprintf(text, sizeof text, "%s", request->fields);
    size_t n_words = split(text, words);
    for (size_t i = 0; request->has_header && i < n_words; i++) {
        const char *unit = unit_of(words[i]);
        printf("%s%s%s%s%s", i ? ", " : "", words[i], unit ? " [" : "", unit ? unit : "",
               unit ? "]" : "");
    }
    if (request->has_header)
        printf("\n");
    for (unsigned g = 0; g < n; g++) {
        if (!is_wanted(request, &gpus[g]))
            continue;
        for (size_t i = 0; i < n_words; i++) {
            printf("%s", i ? ", " : "");
            print_field(&gpus[g], words[i], request->has_units);
        }
        printf("\n");
    }
}

static void print_all(const struct request *request, const struct gpu *gpus, unsigned n)
{
    int version = 0;
    nvmlSystemGetCudaDriverVersion_v2(&version);
    if (!request->is_list)
        printf("| NVIDIA-SMI %s    Driver Version: %s    CUDA Version: %d.%d |\n",
               n ? gpus->driver : "", n ? gpus->driver : "", version / 1000, version % 1000 / 10);
    for (unsigned g = 0; g < n; g++) {
        if (!is_wanted(request, &gpus[g]))
            continue;
        if (request->is_list)
            printf("GPU %u: %s (UUID: %s)\n", gpus[g].index, gpus[g].name, gpus[g].uuid);
        else
            printf("| %3u  %-40s %7lluMiB / %7lluMiB |\n", gpus[g].index, gpus[g].name,
                   gpus[g].memory.used >> 20, gpus[g].memory.total >> 20);
    }
}

static const char *after(const char *word, const char *name)
{
    size_t length = strlen(name);
    return strncmp(word, name, length) == 0 ? word + length : NULL;
}

/* Returns whether the words are known. */
static int parse(char **words, struct request *request)
{
    const char *value;
    *request = (struct request){.has_header = 1, .has_units = 1};
    for (; *words; words++) {
        if (!strcmp(*words, "-L") || !strcmp(*words, "--list-gpus"))
            request->is_list = 1;
        else if ((value = after(*words, "--query-gpu=")) != NULL)
            request->fields = value;
        else if ((value = after(*words, "--format=csv")) != NULL) {
            request->has_header = !strstr(value, "noheader");
            request->has_units = !strstr(value, "nounits");
        } else if ((value = after(*words, "--id=")) != NULL)
            request->only = value;
        else if ((!strcmp(*words, "-i") || !strcmp(*words, "--id")) && words[1])
            request->only = *++words;
        else
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    static struct gpu gpus[GPUS];
    struct request request;
    unsigned n = 0;
    if (argc < 1 || !parse(argv + 1, &request)) {
        fprintf(stderr, "nvidia-smi: a rehearsal has no such option; it knows --query-gpu with "
                        "--format=csv, --id and --list-gpus\n");
        return 2;
    }
    if (nvmlInit_v2() || nvmlDeviceGetCount_v2(&n)) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n");
        return 9;
    }
    n = n < GPUS ? n : GPUS;
    for (unsigned i = 0; i < n; i++)
        if (see(i, n, &gpus[i])) {
            fprintf(stderr, "nvidia-smi: GPU %u does not answer\n", i);
            return 1;
        }
    if (request.fields)
        print_query(&request, gpus, n);
    else
        print_all(&request, gpus, n);
    return 0;
}
