/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu pause: nothing of a container runs on the GPU until it is resumed. */
#include "host/order.h"
#include "tool/tool.h"

static const char usage_text[] =
    "usage: vgpu pause [--release [--on-demand | --checkpoint]] [--json]\n"
    "                  [--region FILE | --pid PID]\n"
    "\n"
    "Takes the programs of a container off the GPU: launches wait, and running kernels are "
    "stopped\n"
    "if the driver allows it. They keep their memory. This lasts until 'vgpu resume', also for\n"
    "programs that start later. Without a live program there is nothing to pause.\n"
    "  --release        first moves its device memory to host memory, and frees the card; only of\n"
    "                   programs with oversubscription\n"
    "  --on-demand      with --release: no pause; the next work brings the memory back\n"
    "  --checkpoint     with --release: the driver (570 and newer) checkpoints its processes, so\n"
    "                   that contexts, modules, pools and arrays leave the card, too\n"
    "  --region FILE    the container with this shared region\n"
    "  --pid PID        the container of this process, or of those that it started\n"
    "  --json           what was done and the state now, as JSON\n"
    "  -h, --help       this text\n"
    "Without --region and --pid: the container that a program started here would join.\n";

int tool_pause(int argc, char **argv)
{
    static const struct order order = {"pause", usage_text, true};
    return order_give(&order, argc, argv);
}
