/* SPDX-License-Identifier: MIT */
/* The descendants of a process, and the ports that they listen on. */
#ifndef DRIVE_PORTS_H
#define DRIVE_PORTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Fills in the process ids of descendants of `root` (not itself), at most `size` of them. Returns
 * their number; 0 also where /proc does not tell. `proc` is "/proc". */
size_t mt_drive_descendants(const char *proc, pid_t root, pid_t *pids, size_t size);

#define MT_DRIVE_STAT_BYTES 1024

/* What /proc says of a process behind its name: its state, its parent and so on; NULL where there
 * is none. */
const char *mt_drive_stat(const char *proc, pid_t pid, char text[MT_DRIVE_STAT_BYTES]);

/* The parent of a process; 0 where /proc does not tell. `proc` is "/proc". */
pid_t mt_drive_parent(const char *proc, pid_t pid);

/* When a process started, in ticks since boot; 0 where /proc does not tell. */
uint64_t mt_drive_start(const char *proc, pid_t pid);

/* Fills in TCP ports that descendants of `root` (not itself) listen on, each once, at most `size`
 * of them. Returns their number; 0 also where /proc does not tell. `proc` is "/proc". */
size_t mt_drive_listening_ports(const char *proc, pid_t root, int *ports, size_t size);

/* The same with those of `root` itself. */
size_t mt_drive_ports_of_tree(const char *proc, pid_t root, int *ports, size_t size);

/* A port of this machine that no socket has now, and that the kernel gives to none that did not ask
 * for it: a server that binds it minutes later still finds it free. One that the kernel may give
 * where it leaves no others; 0 where there is none. `proc` is "/proc". */
int mt_drive_free_port(const char *proc);

#endif
