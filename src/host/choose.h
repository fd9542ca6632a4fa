/* SPDX-License-Identifier: Apache-2.0 */
/* Which container's region a tool is to work on. */
#ifndef VGPU_HOST_CHOOSE_H
#define VGPU_HOST_CHOOSE_H

#include "region/region.h"

#include <limits.h>

/* What the command line says; both NULL: the environment decides, as for a program. */
struct region_choice {
    const char *file; /* --region */
    const char *pid;  /* --pid: it has a region, or else those that it started have one */
};

struct chosen_region {
    struct region region; /* opened by region_set_open; for region_detach */
    char path[PATH_MAX];  /* as the process that was named sees it, if one was */
    char reason[128];     /* why this one, for a line behind its path */
    int error;            /* for choose_region alone */
};

/* Opens it. Returns 0, or the exit status after one line on stderr. */
int choose_region(const struct region_choice *choice, struct chosen_region *ret_chosen)
    __attribute__((warn_unused_result));

/* Of the environment, only what says where the region of a program started here lies. */
void choose_config(struct config *ret_config);

/* Whether there is no directory for a file of that path; ret_directory: its name. The library makes
 * directories that are missing, for all users; a tool, which may be root's and whose argument may
 * be mistyped, is to refuse instead. */
bool choose_lacks_directory(const char *path, char *ret_directory, size_t size)
    __attribute__((warn_unused_result));

/* Why a file cannot be used as a region (-errno), in words. */
const char *choose_explain(int error);

#endif
