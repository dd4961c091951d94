/* SPDX-License-Identifier: MIT */
/* Containers of this machine, as Docker, Podman and others run them: which one a name means, and
 * what the engine says of it.
 *
 * What a socket answers is not trusted. Values of environment variables are read from no answer;
 * their names are. Any thread, after mt_http_start(). */
#ifndef CONTAINER_CONTAINER_H
#define CONTAINER_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

struct mt_error;         /* <memtally/error.h> */
struct mt_http_response; /* "net/http_client.h" */

#define MT_CONTAINER_ASK_MS 1000 /* for a question */
#define MT_CONTAINER_TEXT   256
#define MT_CONTAINER_ID     65
#define MT_CONTAINER_SOCKET 108

/* What the environment says of where sockets are; NULL where it says nothing. */
struct mt_container_places {
    const char *docker_host; /* DOCKER_HOST */
    const char *runtime;     /* XDG_RUNTIME_DIR */
};

/* A running container. Texts are "" where nothing says. */
struct mt_container {
    char socket[MT_CONTAINER_SOCKET]; /* "" where it was found by its control group */
    char engine[32];                  /* "Docker", "Podman", "containerd", "CRI-O" */
    char id[MT_CONTAINER_ID];
    char name[MT_CONTAINER_TEXT];
    char image[MT_CONTAINER_TEXT];
    char folder[MT_CONTAINER_TEXT]; /* that its program starts in */
    int pid;                        /* of its first process, as this machine counts */
    uint64_t limit_bytes;           /* of its memory; MT_UNKNOWN: none, or not said */
    int is_read_only;               /* its root folder */
    int has_host_network;           /* and none of its own */
    char **variables;               /* names of its environment */
    size_t n_variables;
    char **mounts; /* folders in it that are mounted from elsewhere */
    size_t n_mounts;
};

/* Finds the running container that `name` means: a name or the beginning of an id that a socket
 * knows, or 12 digits and more of an id that a control group is named after. The sockets asked are
 * those of DOCKER_HOST, Docker, Podman and the user's Podman. On success *container is owned by the
 * caller; free it with mt_container_close().
 * Errors: MT_EARG (no name of a container), MT_ENOTFOUND (there is none, or it does not run),
 * MT_ENOMEM. What was wrong with sockets stands in the error's text. */
int mt_container_open(const struct mt_container_places *places, const char *name,
                      struct mt_container **container, struct mt_error *error);
void mt_container_close(struct mt_container *container);

/* Fills in the processes of the container, in the order of their starts, at most `size` of them.
 * Returns their number. */
size_t mt_container_processes(const struct mt_container *container, int *pids, size_t size);

/* Asks for the last lines of what the container's programs wrote, 16 MiB at most. On success *log
 * is owned by the caller; free it with mt_http_response_finish(). Errors: MT_EUNSUPPORTED (it was
 * found by its control group), MT_EIO (it was refused), and those of mt_http_fetch(). */
int mt_container_log(const struct mt_container *container, struct mt_http_response *log,
                     struct mt_error *error);

/* Whether a second engine like process `pid` of the container finds room beside it, as far as
 * memory goes that two of them do not share: anonymous memory is held against what the machine has
 * available and what the container may have. Errors: MT_ELIMIT, which says what lacks. What cannot
 * be read is taken to suffice. */
int mt_container_check_room(const struct mt_container *container, int pid, struct mt_error *error);

/* Finds the id and the engine in the name of a control group, a line of /proc/PID/cgroup. Returns 1
 * or 0. For tests. */
int mt_container_of_group(const char *line, size_t n, char id[MT_CONTAINER_ID], char engine[32]);

#endif
