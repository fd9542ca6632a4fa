/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu top: a program of its own, because it needs a library that containers lack. */
#include "tool/paths.h"
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int tool_top(int argc, char **argv)
{
    char path[PATH_MAX];
    (void)argc;
    if (path_find("vgpu-top", path, sizeof(path)) != 0) {
        tool_error("vgpu-top is not installed beside this program; it is built where "
                   "libncurses-dev is; 'vgpu ps' shows the same once");
        return TOOL_FAILED;
    }
    execv(path, argv);
    tool_error("cannot run \"%.256s\": %s", path, strerror(errno));
    return TOOL_FAILED;
}
