/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel tells of a process. */
#ifndef VGPU_BASE_PROCESS_H
#define VGPU_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process_status {
    uint64_t start_time;  /* clock ticks after boot (field 22 of /proc/<pid>/stat) */
    uint64_t stack_start; /* changes with exec (field 28); 0 where we may not see it */
    bool ended;           /* all its threads, but not waited for */
};

/* pid 0 is the calling process. Returns 0, -ESRCH where there is no such process, or -ENOTSUP where
 * /proc cannot be read. Keeps errno. */
int process_status(int pid, struct process_status *ret_status) __attribute__((warn_unused_result));

/* Inode of the calling process's PID namespace, 0 where it cannot be told. */
uint64_t process_pid_namespace(void);

/* How a process that the caller sees as `pid` knows itself: its number in its own PID namespace,
 * and that namespace's inode. Returns 0, or -ENOTSUP where /proc does not tell (it is older than
 * Linux 4.1, or we may not look). Keeps errno. */
int process_own_number(int pid, int *ret_pid, uint64_t *ret_namespace)
    __attribute__((warn_unused_result));
/* Whether the calling process is in the PID and the mount namespace that the machine was started
 * with: what it shares with other users there, it does not share by being in one container. False
 * where that cannot be told. Keeps errno. */
bool process_is_on_the_host(void);

/* Whether a file of a user whom the calling process's user namespace does not know would show `uid`
 * as its owner. Where that cannot be told, as if not all users were known. Keeps errno. */
bool process_hides_owner(unsigned uid);

/* The calling process's command name (at most 15 bytes), terminated. */
void process_command(char *buffer, size_t size);

/* Whether the process is in the caller's PID and mount namespaces, and runs, with all of its user
 * IDs, as root or as the caller's effective user: its word may be taken. False where that cannot be
 * told. Changes errno. */
bool process_is_of_our_container(int pid);

#endif
