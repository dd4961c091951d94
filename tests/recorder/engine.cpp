/* SPDX-License-Identifier: MIT */
/* An engine in small, built once for each copy of the fake ggml. It says which events a recorder
 * should write, in their order: operation, handle, address, size, flags, category, name. */
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <memtally/scope.h>

#include "recorder/fake_ggml.h"

enum { HOST = 1, HOST_PTR = 2, TENSORS = 4 };

static void expect(const buffer *made, int flags, int category, const char *name)
{
    std::printf("BUFFER_ALLOC %p %p %zu %d %d %s\n", static_cast<const void *>(made),
                static_cast<void *>(made->base), made->size, flags, category, name);
}

static buffer_type cpu = {COPY, "CPU", true, nullptr, 0, false};
static buffer_type repack = {COPY, "CPU_REPACK", true, &cpu, 0, false};
static buffer_type device = {COPY, "GPU0", false, nullptr, 0, false};
static buffer_type pieces = {COPY, "GPU1", false, nullptr, 400, false};
static buffer_type broken = {COPY, "BROKEN", true, nullptr, 0, true};

static void weights()
{
    static char mapped[8192];
    int copy = COPY;
    buffer *file = ggml_backend_dev_buffer_from_host_ptr(&copy, mapped, sizeof mapped, 64);
    expect(file, HOST | HOST_PTR, 0, "CPU_Mapped");
    ggml_backend_buffer_set_usage(file, 1);
    std::printf("BUFFER_USAGE %p 1\n", static_cast<void *>(file));
    buffer *packed = ggml_backend_buft_alloc_buffer(&repack, 5000);
    expect(packed, HOST, 0, "CPU");
    expect(packed, HOST, 0, "CPU_REPACK");
    ggml_backend_buffer_free(packed);
    std::printf("BUFFER_FREE %p\n", static_cast<void *>(packed));
    ggml_backend_buffer_free(nullptr);
}

static void tensors(const char *name, int category)
{
    tensor one = {name};
    context of_one = {1000, &one};
    buffer *made = ggml_backend_alloc_ctx_tensors_from_buft(&of_one, &cpu);
    expect(made, HOST | TENSORS, category, "CPU");
}

static void tensors_in_pieces()
{
    tensor one = {"cache_v_l7"};
    context of_one = {1000, &one};
    if (ggml_backend_alloc_ctx_tensors_from_buft_size(&of_one, &pieces) != 1000)
        throw std::runtime_error("the size is not passed on");
    buffer *whole = ggml_backend_alloc_ctx_tensors_from_buft(&of_one, &pieces);
    for (int i = 0; i < 3; i++)
        expect(whole->parts[i], TENSORS, 2, "GPU1");
}

/* What comes after an exception is not of the call that it left. */
static void exceptions()
{
    tensor one = {"cache_k_l0"};
    context of_one = {1000, &one};
    try {
        ggml_backend_alloc_ctx_tensors_from_buft(&of_one, &broken);
        std::printf("nothing was thrown\n");
    } catch (const std::runtime_error &error) {
        if (std::strcmp(error.what(), "no memory") != 0)
            std::printf("something else was thrown\n");
    }
    expect(ggml_backend_buft_alloc_buffer(&device, 2000), 0, 0, "GPU0");
}

extern "C" void run_engine()
{
    char name[32];
    std::snprintf(name, sizeof name, "engine %d", COPY);
    mt_mark(name);
    weights();
    tensors("cache_k_l0", 2);
    tensors("cache_r_l0", 3);
    tensors("dsv4_x_state_y", 3);
    tensors("blk.0.attn_q.weight", 0);
    tensors_in_pieces();
    exceptions();
    mt_mark("end");
}
