/* SPDX-License-Identifier: Apache-2.0 */
/* What `vgpu run` does to the environment, shown instead of done. */
#ifndef VGPU_TOOL_RUN_ENV_H
#define VGPU_TOOL_RUN_ENV_H

#include <stdbool.h>
#include <stddef.h>

/* The environment as it was: "NAME=VALUE" of all variables. */
struct run_environment {
    char **list; /* from malloc, as are its texts; NULL: there was no memory */
    size_t count;
};

struct run_environment run_env_keep(void);

/* What has changed since, on stdout: for a shell, or as JSON. Returns the exit status; where it is
 * not 0, one line on stderr says why. Frees what was kept. */
int run_env_print(struct run_environment *before, bool json);

#endif
