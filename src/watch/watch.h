/* SPDX-License-Identifier: MIT */
/* A run, shared by the files of this room. */
#ifndef MT_WATCH_WATCH_H
#define MT_WATCH_WATCH_H

#include <signal.h>
#include <sys/types.h>

#include "device/drm.h"
#include "device/host.h"
#include "device/nvml.h"
#include "recording/picture.h"
#include "recording/writer.h"
#include "tally/table.h"

struct mt_run_options; /* <memtally/run.h> */

/* Why the recorder is not in a process, as OUTSIDE_ONLY has it. */
enum mt_outside_reason {
    MT_OUTSIDE_NOT_LOADED = 0,
    MT_OUTSIDE_STATIC = 1,
    MT_OUTSIDE_SETUID = 2,
    MT_OUTSIDE_TOO_SHORT = 3,
    MT_OUTSIDE_SANITIZED = 4,
    MT_OUTSIDE_ATTACHED = 5,
    MT_OUTSIDE_NOT_ALLOWED = 6
};

/* Between two looks of a kind at processes that we attached to is a rest, so many times as long as
 * the last look took a processor. With pictures all of them take 0.47 % of one: a process on the
 * same processor loses up to as much again, because what it had in the caches is gone
 * (bench_attach). */
#define MT_WATCH_SAMPLE_REST_TIMES  2000u
#define MT_WATCH_TREE_REST_TIMES    2000u
#define MT_WATCH_WHOLE_REST_TIMES   8000u /* looks at who is in a large tree */
#define MT_WATCH_MACHINE_REST_TIMES 4000u
#define MT_WATCH_GPUS_REST_TIMES    4000u
#define MT_WATCH_ATTACHED_SHARE     0.003 /* of pictures, where nothing else is said */

#define MT_WATCH_GPUS          32u
#define MT_WATCH_GPUS_EVERY_NS 100000000u

/* What was last written of a device that processes hold memory of which no recorder is in. */
struct mt_watch_seen {
    uint64_t uuid, name; /* numbers of strings */
    uint64_t total_bytes;
    uint64_t bytes;
    int is_written;
};

/* NVIDIA's devices, once a process of the tree has loaded CUDA's driver (gpus.c). */
struct mt_watch_gpus {
    struct mt_nvml nvml;
    int is_open;
    int is_refused; /* not asked again */
    unsigned n;
    void *device[MT_WATCH_GPUS];
    uint64_t uuid[MT_WATCH_GPUS];   /* numbers of strings */
    uint64_t others[MT_WATCH_GPUS]; /* what the last DEVICE_OTHERS said, and one more; 0: none */
    struct mt_watch_seen seen[MT_WATCH_GPUS]; /* of processes that were attached to */
    struct mt_nvml_process *processes;
    uint64_t apart_ns; /* between two looks for such a process */
    uint64_t next_ns;
};

/* A living process of the tree, or one whose end is not yet taken. */
struct watched {
    struct mt_process seen; /* when the tree was last looked at */
    pid_t reader;      /* whose memory is read: the process, or a thread that outlives its first */
    uint64_t since_ns; /* when this program was first seen in it */
    uint64_t program;  /* tells its program from another; 0: not known */
    uint64_t resident_bytes;
    uint64_t sampled_bytes; /* what the last PROCESS_SAMPLE said */
    uint64_t sampled_ns;
    uint64_t high_water_bytes;
    uint64_t pictured_bytes;
    uint64_t pictured_ns;
    uint64_t looked_ns; /* when its size was last looked at */
    int changed;        /* its size had then */
    int replaced;       /* it has called exec since it was first judged */
    int recorded;       /* the recorder writes a file for it */
    int judged;         /* `recorded` is settled and written */
    int alive;          /* in the look at the tree that is under way */
    int has_cuda;       /* it has loaded CUDA's driver */
};

struct mt_run {
    struct mt_host_os host;
    struct mt_cgroup cgroup;
    struct mt_file file;
    char file_path[MT_PATH_BYTES];
    struct mt_writer writer;
    char *directory; /* absolute */
    char *side;      /* a folder for whom that one is closed to, see side.c; NULL where none is */
    char *copied_recorder; /* in it, for whom the recorder's own folder is closed to; or NULL */
    int made_directory;
    pid_t pid;
    int pidfd; /* -1 where the kernel has none */
    int ended;
    int status;      /* as waitpid() gave it */
    char *group;     /* as in struct mt_attach_options, or NULL */
    int is_attached; /* the program ran before us, and is not ours to wait for or to end */
    int has_recorder;
    int was_subreaper;
    struct sigaction child_action; /* for SIGCHLD, before the run */
    double share;
    uint64_t start_ns;
    int64_t boot_offset_ns; /* CLOCK_BOOTTIME less CLOCK_MONOTONIC; may be a little below 0 */
    uint64_t next_sample_ns;
    uint64_t sample_apart_ns; /* of an attached tree */
    int has_changed;          /* a process of it, at the last look at sizes */
    int turn;                 /* the number of the last process whose turn it was */
    uint64_t next_tree_ns;
    uint64_t next_arrivals_ns; /* UINT64_MAX: the tree is small */
    uint64_t next_machine_ns;
    uint64_t machine_ns; /* when it was last looked at */
    uint64_t picture_spent_ns;
    uint64_t ns_per_mib;
    uint64_t peak_resident_bytes;
    uint64_t own_peak_bytes; /* ours when the program was started, which the kernel counts for it */
    struct mt_process_list tree;
    struct mt_process_numbers numbers; /* of all processes, at the last look for arrivals */
    struct mt_process_numbers numbers_now;
    struct mt_process_list strangers; /* children that the caller had before the run */
    struct mt_table strange;          /* process ids of theirs, while the tree is looked at */
    struct watched *processes;        /* by process id */
    size_t n_processes;
    size_t processes_capacity;
    struct mt_watch_gpus gpus;
    struct mt_drm_use drm_use; /* devices keep their numbers as long as the run lasts */
    struct mt_watch_seen drm[MT_DRM_DEVICES][2]; /* a device's own memory, the host's for it */
    void *scratch;
};

/* Makes run->side where it is needed and can be had, and copies the recorder into it if others
 * cannot reach that (side.c). */
void mt_side_make(struct mt_run *run, const char *recorder);

/* Removes the copy, and the folder if nothing is left in it. */
void mt_side_leave(const struct mt_run *run);

/* Packs what was recorded there into the run's folder, unless `is_busy` says of a process that it
 * records still; removes the folder where nothing is left in it. Returns 0 or an error. */
int mt_side_take_in(const struct mt_run *run, int (*is_busy)(const struct mt_run *run, long pid),
                    struct mt_error *error);

/* Makes the folder, the recording file and all else that a run needs before its program (run.c). */
int mt_run_prepare(struct mt_run *run, const struct mt_run_options *options,
                   struct mt_error *error);

/* Removes what mt_run_prepare() made, of a run that could not start (run.c). */
void mt_run_undo(struct mt_run *run);

/* How long after a look the next may begin that comes at least `every_ns` apart and of which the
 * last took a processor for `cost_ns`: `times` as long (sample.c). */
uint64_t mt_watch_apart_ns(uint64_t every_ns, uint64_t cost_ns, uint64_t times);

/* When a look is due next (sample.c). */
uint64_t mt_watch_next_ns(const struct mt_run *run);

/* Says once more how large each process is and was (sample.c). */
void mt_watch_last_sizes(struct mt_run *run);

/* Pictures each process of which there is none yet, whatever it costs (sample.c). */
void mt_watch_picture_the_rest(struct mt_run *run);

/* libc behind the recording's outside world (os.c). */
extern const struct mt_record_os mt_watch_os;

/* Starts the program of a run with the recorder in its environment (spawn.c). Returns its pid or an
 * MT_E code. */
int mt_spawn(const struct mt_run_options *options, const struct mt_run *run,
             struct mt_error *error);

/* Whether a program can take a preloaded library, by its file (spawn.c). */
enum mt_outside_reason mt_outside_reason_of(const char *program);

/* The children that the caller has before the program is started; they and theirs are not part of
 * the run (processes.c). */
void mt_watch_note_strangers(struct mt_run *run);

/* Looks who is in the tree. */
void mt_watch_tree(struct mt_run *run, uint64_t now_ns);

/* Who has come to a large tree and who has gone between two looks at the whole (arrivals.c). The
 * first call only notes who is there. */
void mt_watch_arrivals(struct mt_run *run, uint64_t now_ns);

/* Takes a process into the tree, behind those that are sorted; mt_watch_sort() follows. */
void mt_watch_add(struct mt_run *run, const struct mt_process *seen, uint64_t now_ns);
void mt_watch_sort(struct mt_run *run);

/* If another program has taken the process over, it is judged anew. */
void mt_watch_note_exec(struct mt_run *run, struct watched *process, uint64_t now_ns);

/* Says the end of the i-th process and takes it out. */
void mt_watch_take_out(struct mt_run *run, size_t i);

/* The process of this number in the tree, or NULL. */
struct watched *mt_watch_find(struct mt_run *run, pid_t pid);

/* A thread of a process whose first thread has ended; the process itself where there is none. */
pid_t mt_watch_living_thread(const struct mt_run *run, pid_t pid);

/* Says who a process is once it has had the time to become it. */
void mt_watch_judge(struct mt_run *run, struct watched *process, uint64_t now_ns);

/* Whether the text at `path` has `wanted` in it; negative where it cannot be read. */
int mt_watch_text_has(const struct mt_run *run, const char *path, const char *wanted);

/* What others use of the devices that the tree uses, when its time has come. */
void mt_watch_gpus(struct mt_run *run, uint64_t now_ns);
void mt_watch_gpus_finish(struct mt_run *run);

/* What the tree holds of the devices of DRM's drivers (drm.c). Returns whether it has any. */
int mt_watch_drm(struct mt_run *run);

/* Writes what is held of a device, where it has changed (drm.c). */
void mt_watch_write_seen(struct mt_run *run, struct mt_watch_seen *seen, uint64_t bytes);

/* Takes the ends of the program and of what it left to us as subreaper. */
void mt_watch_reap(struct mt_run *run);

/* Looks at the tree and writes what it sees, each thing when its time has come (sample.c). */
void mt_watch_look(struct mt_run *run, uint64_t now_ns);

/* Looks at the machine, whatever the time; at the end of a run not where it has just done so. */
void mt_watch_machine(struct mt_run *run);
void mt_watch_machine_at_end(struct mt_run *run);

/* Writes which devices are there whose memory is not recorded (sample.c). */
void mt_watch_unrecorded_devices(struct mt_run *run);

void mt_watch_write(struct mt_run *run, enum mt_event_op op, const uint64_t *fields,
                    size_t n_fields);

#endif
