/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu resume: a paused container goes on, whoever paused it. */
#include "host/order.h"
#include "tool/tool.h"

static const char usage_text[] =
    "usage: vgpu resume [--json] [--region FILE | --pid PID]\n"
    "\n"
    "Lets the programs of a container that was paused go on with their work on the GPU.\n"
    "  --region FILE    the container with this shared region\n"
    "  --pid PID        the container of this process, or of those that it started\n"
    "  --json           what was done and holds now, for programs\n"
    "  -h, --help       this text\n"
    "Without --region and --pid it is the container that a program started here would be in.\n";

int tool_resume(int argc, char **argv)
{
    static const struct order order = {"resume", usage_text, false};
    return order_give(&order, argc, argv);
}
