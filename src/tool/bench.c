/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu bench: a program of its own, because it needs a library that containers lack. */
#include "tool/paths.h"
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int tool_bench(int argc, char **argv)
{
    char path[PATH_MAX];
    (void)argc;
    if (path_find("vgpu-bench", path, sizeof(path)) != 0) {
        tool_error("vgpu-bench is not installed beside this program; it is built where "
                   "libjansson-dev is");
        return TOOL_FAILED;
    }
    execv(path, argv);
    tool_error("cannot run \"%.256s\": %s", path, strerror(errno));
    return TOOL_FAILED;
}
