/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu pause: nothing of a container runs on the GPU until it is resumed. */
#include "host/order.h"
#include "tool/tool.h"

static const char usage_text[] =
    "usage: vgpu pause [--json] [--region FILE | --pid PID]\n"
    "\n"
    "Takes the programs of a container off the GPU: what they launch waits, and what runs is\n"
    "stopped where the driver allows it. They keep their memory. It lasts until 'vgpu resume',\n"
    "also for programs that come later. Where no program lives there is nobody to pause.\n"
    "  --region FILE    the container with this shared region\n"
    "  --pid PID        the container of this process, or of those that it started\n"
    "  --json           what was done and holds now, for programs\n"
    "  -h, --help       this text\n"
    "Without --region and --pid it is the container that a program started here would be in.\n";

int tool_pause(int argc, char **argv)
{
    static const struct order order = {"pause", usage_text, true};
    return order_give(&order, argc, argv);
}
