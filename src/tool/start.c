/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu top and vgpu bench: programs of their own, because they need libraries that containers lack.
 */
#include "host/paths.h"
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Returns only where it cannot be run; `without` says what to do where it was not built. */
static int start(const char *program, char **argv, const char *without)
{
    char path[PATH_MAX];
    if (path_find(program, path, sizeof(path)) != 0) {
        say_error(
            "%s is not installed beside this program; it is built where %s", program, without);
        return TOOL_FAILED;
    }
    execv(path, argv);
    say_error("cannot run \"%.256s\": %s", path, strerror(errno));
    return TOOL_FAILED;
}

int tool_top(int argc, char **argv)
{
    (void)argc;
    return start("vgpu-top", argv, "libncurses-dev is; 'vgpu ps' shows the same once");
}

int tool_bench(int argc, char **argv)
{
    (void)argc;
    return start("vgpu-bench", argv, "libjansson-dev is");
}
