/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu resume: a paused container goes on, whichever program paused it. */
#include "host/order.h"
#include "tool/tool.h"

static const char usage_text[] =
    "usage: vgpu resume [--json] [--region FILE | --pid PID]\n"
    "\n"
    "Lets the programs of a paused container continue their work on the GPU. Memory that 'vgpu "
    "pause\n"
    "--release' moved to host memory comes back before, as much as fits.\n"
    "  --region FILE    the container with this shared region\n"
    "  --pid PID        the container of this process, or of those that it started\n"
    "  --json           what was done and the state now, as JSON\n"
    "  -h, --help       this text\n"
    "Without --region and --pid: the container that a program started here would join.\n";

int tool_resume(int argc, char **argv)
{
    static const struct order order = {"resume", usage_text, false};
    return order_give(&order, argc, argv);
}
