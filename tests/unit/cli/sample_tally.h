/* SPDX-License-Identifier: MIT */
/* A tally made by hand: two processes, weights mapped and repacked, names that are not harmless. */
#ifndef MT_TESTS_SAMPLE_TALLY_H
#define MT_TESTS_SAMPLE_TALLY_H

#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>

#define MIB (UINT64_C(1) << 20)

static const struct mt_tally_detail sample_weights[] = {
    {"/srv/models/a-rather-long-folder-name/smollm-135m-instruct-f16.gguf", 240 * MIB, 240 * MIB, 1,
     MT_PROVENANCE_EXACT},
    {"CPU_REPACK", 200 * MIB, 200 * MIB, 1, MT_PROVENANCE_EXACT},
};

static const struct mt_tally_detail sample_runtime[] = {
    {"heap in use", 12 * MIB, 10 * MIB, 51234, MT_PROVENANCE_EXACT},
    {"libggml-cpu.so", 3 * MIB, 2 * MIB, 5, MT_PROVENANCE_MEASURED},
    {"evil\x1b[2J\nname,\"quoted\"", MIB, MIB, 1, MT_PROVENANCE_MEASURED},
    {"not utf-8: \xff\xfe", MIB, MIB, 1, MT_PROVENANCE_MEASURED},
    {"libstdc++.so.6", 2 * MIB, MIB / 2, 5, MT_PROVENANCE_MEASURED},
    {"libc.so.6", 2 * MIB, MIB / 4, 5, MT_PROVENANCE_MEASURED},
    {"[stack]", MT_UNKNOWN, MIB / 4, 1, MT_PROVENANCE_MEASURED},
};

static const struct mt_tally_row sample_rows[] = {
    {MT_CATEGORY_WEIGHTS, 440 * MIB, 440 * MIB, MT_UNKNOWN, MT_UNKNOWN, 2, MT_PROVENANCE_EXACT, 2,
     sample_weights},
    {MT_CATEGORY_KV_CACHE, 90 * MIB, 45 * MIB, MT_UNKNOWN, MT_UNKNOWN, 2, MT_PROVENANCE_EXACT, 0,
     NULL},
    {MT_CATEGORY_ACTIVATIONS, 20 * MIB, 19 * MIB, MT_UNKNOWN, MT_UNKNOWN, 3, MT_PROVENANCE_EXACT, 0,
     NULL},
    {MT_CATEGORY_RUNTIME, MT_UNKNOWN, 15 * MIB, MT_UNKNOWN, MT_UNKNOWN, 51252,
     MT_PROVENANCE_MEASURED, 7, sample_runtime},
};

static const struct mt_tally_place sample_places[] = {
    {"host", 520 * MIB, 521 * MIB, 8192 * MIB, MIB, -4096, 1, 4, sample_rows},
};

static const struct mt_tally_place sample_child_places[] = {
    {"host", 2 * MIB, 2 * MIB, MT_UNKNOWN, 2 * MIB, 0, 0, 0, NULL},
};

static const struct mt_tally_process sample_processes[] = {
    {4001, 4000,
     "llama-bench -m /srv/models/a-rather-long-folder-name/smollm-135m-instruct-f16"
     ".gguf -p 64 -n 16 -r 3",
     "exited 0", "recorder", NULL, 0, 12345678901, 3400000000, 521 * MIB, 520 * MIB, 7, 1, 0, 1,
     sample_places},
    {4002, 4001, "sh -c 'nproc'", "killed by SIGKILL", "outside", "the program is static",
     1000000000, 1100000000, MT_UNKNOWN, 2 * MIB, MT_UNKNOWN, 0, 0, MT_UNKNOWN, 1,
     sample_child_places},
};

static const char *const sample_notes[] = {
    "One picture was skipped, because pictures may take 2 % of the run time.",
};

static const struct mt_tally_moment sample_moments[] = {
    {{.kind = MT_MOMENT_PEAK}, 3400000000, 320 * MIB},
    {{.kind = MT_MOMENT_HEAP_PEAK}, 2100000000, 64 * MIB},
    {{.kind = MT_MOMENT_CATEGORY_PEAK, .category = MT_CATEGORY_WEIGHTS}, 1200000000, 256 * MIB},
};

static const struct mt_tally sample_tally = {
    .kind = MT_TALLY_MEASUREMENT,
    .moment = {.kind = MT_MOMENT_PEAK},
    .n_moments = sizeof sample_moments / sizeof *sample_moments,
    .moments = sample_moments,
    .moment_ns = 3400000000,
    .engine_name = "llama.cpp",
    .engine_version = "b11434",
    .model_path = "/srv/models/a-rather-long-folder-name/smollm-135m-instruct-f16.gguf",
    .shared_rule = "a page that several processes hold is counted once",
    .n_places = 1,
    .places = sample_places,
    .n_processes = 2,
    .processes = sample_processes,
    .machine = {.sample_time_ns = 3390000000,
                .memory_total_bytes = 65536 * MIB,
                .memory_free_bytes = 1024 * MIB,
                .memory_available_bytes = 32768 * MIB,
                .page_cache_bytes = 10240 * MIB,
                .swap_total_bytes = 2048 * MIB,
                .swap_used_bytes = 0,
                .other_processes_resident_bytes = 3072 * MIB,
                .cgroup_version = 2,
                .cgroup_limit_bytes = 8192 * MIB,
                .cgroup_usage_bytes = 1331 * MIB,
                .cgroup_peak_bytes = MT_UNKNOWN,
                .pressure_some_avg10_percent = 1.25,
                .pressure_full_avg10_percent = -1},
    .n_notes = 1,
    .notes = sample_notes,
};

static const struct mt_timeline_point sample_timeline[] = {
    {0, MIB},
    {1000000000, 200 * MIB},
    {2000000000, 430 * MIB},
    {3400000000, 520 * MIB},
    {11000000000, 515 * MIB},
    {12300000000, 40 * MIB},
};

static const struct mt_recording_damage sample_damage = {0, 2, 1, 0, "4001.mtr at byte 8192"};

static const char *const sample_frames[] = {"malloc", "ggml_backend_buffer_alloc(a; b)", "main"};

static const struct mt_stack_entry sample_stack_entries[] = {
    {200 * MIB, 1, 1, 3, sample_frames, NULL},
    {3 * MIB, 77, 0, 2, sample_frames, NULL},
};

static const struct mt_stack_list sample_stacks = {524288, 2, sample_stack_entries};

#endif
