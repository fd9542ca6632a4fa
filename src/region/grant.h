/* SPDX-License-Identifier: Apache-2.0 */
/* The container's grant (include/vgpu/grant.h) as this process maps it: limits that neither the
 * environment nor a process of the container can change. */
#ifndef VGPU_REGION_GRANT_H
#define VGPU_REGION_GRANT_H

#include "vgpu/grant.h"

#include <stdbool.h>
#include <stdint.h>

#define GRANT_PATH VGPU_GRANT_DIRECTORY "/" VGPU_GRANT_NAME

/* Zeroed: there is none. One thread opens and closes it; any thread reads. */
struct grant {
    const struct vgpu_grant *file; /* NULL: none, or it is not understood */
    bool closed; /* there is a file that is not understood: all devices count as full */
    bool lost;   /* the file was shortened: likewise */
};

/* Maps the file at `path` where there is one that the container cannot write: a regular file on a
 * mount that is read-only, or one of root's that no other user may write and this process's user
 * does not own. Another file is not read, with one log line. A file that may be read but is not
 * understood closes all devices, with one log line. No descriptor is kept. Keeps errno. */
void grant_open(struct grant *grant, const char *path);

/* Unmaps it. Accepts a grant that is not open. */
void grant_close(struct grant *grant);

/* Whether there is a grant, if only one that closes all devices: one load. */
static inline bool grant_is_given(const struct grant *grant)
{
    return grant->file || grant->closed;
}

/* Changes with each change of the grant; 0 without one. Within a guard window. */
uint32_t grant_sequence(const struct grant *grant);

/* The word itself, for a system call that compares it outside of a window (region_control.h); NULL
 * without a file. */
uint32_t *grant_word(const struct grant *grant);

struct grant_limits {
    uint64_t memory_limit;                /* bytes; 0 none */
    bool memory_closed;                   /* nothing may be allocated */
    uint32_t core_limit, core_soft_limit; /* percent; 0 none */
};

/* What holds for the device; closed where the grant does not list it, or cannot be read whole. Only
 * with a grant. Within a guard window. */
struct grant_limits grant_limits(const struct grant *grant, const char *uuid);

/* What else a grant says. Only with a grant. Within a guard window. */
struct grant_control {
    uint32_t priority;
    bool priority_set;
    bool in_force; /* compute limits hold */
    bool limited;  /* some device has a limit */
};
struct grant_control grant_control(const struct grant *grant);

/* What is read once, at the start, outside of a window. The texts are terminated whatever the file
 * says. */
struct grant_texts {
    uint64_t memory_ratio; /* in 2^-20; 0: none */
    char region_path[256];
    char pod_name[256], pod_namespace[64], pod_uid[64], container_name[64];
};
void grant_texts(const struct grant *grant, struct grant_texts *ret_texts);

#endif
