/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu set: other limits for a container while it runs. */
#include "host/limits.h"
#include "host/options.h"
#include "tool/tool.h"

#include <stdio.h>

struct set_options {
    struct region_choice region;
    struct region_change change;
    int device;
    bool json;
};

static const char usage_text[] =
    "usage: vgpu set [--memory SIZE] [--cores PERCENT] [--soft-cores PERCENT]\n"
    "                [--priority N] [--device N] [--region FILE | --pid PID] [--json]\n"
    "\n"
    "Changes the limits of a container while its programs run. They take effect at once.\n"
    "  --memory SIZE    device memory: 2GiB, 1.5g, 512m; 0: no limit. If more is in use,\n"
    "                   further allocations are refused\n"
    "  --cores PERCENT  share of the GPU's time; 0: no limit\n"
    "  --soft-cores PERCENT\n"
    "                   share that it may use while the GPU is otherwise idle; 0: none\n"
    "  --priority N     of the whole container: 0 is high, larger is lower\n"
    "  --device N       only of this device, numbered in the order in which the container's\n"
    "                   programs first used them; without it of all devices, also of those\n"
    "                   that they have not used yet\n"
    "  --region FILE    the container with this shared region\n"
    "  --pid PID        the container of this process, or of those that it started\n"
    "  --json           the limits that are in force now, as JSON\n"
    "  -h, --help       this text\n"
    "Without --region and --pid: the container that a program started here would join.\n";

enum { MEMORY = OPTION_FIRST, CORES, SOFT_CORES, PRIORITY, DEVICE, REGION, PID, JSON };

static int take_option(int option, void *context)
{
    struct set_options *options = context;
    switch (option) {
    case MEMORY:
        return limits_parse_memory("--memory", optarg, &options->change);
    case CORES:
        return limits_parse_cores("--cores", optarg, &options->change);
    case SOFT_CORES:
        return limits_parse_soft_cores("--soft-cores", optarg, &options->change);
    case PRIORITY:
        return limits_parse_priority("--priority", optarg, &options->change);
    case DEVICE:
        return limits_parse_device("--device", optarg, &options->device);
    case REGION:
        options->region.file = optarg;
        return 0;
    case JSON:
        options->json = true;
        return 0;
    default:
        options->region.pid = optarg;
        return 0;
    }
}

static int check_change(const struct set_options *options)
{
    const struct region_change *change = &options->change;
    if (!change->memory && !change->cores && !change->soft_cores && !change->priority)
        say_error("nothing to set; 'vgpu set --help' tells how");
    else if (change->priority && options->device != REGION_ALL_DEVICES)
        say_error("--priority is of the whole container and excludes --device");
    else
        return 0;
    return TOOL_USAGE;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct set_options *options, bool *ret_done)
{
    static const struct option known[] = {{"memory", required_argument, NULL, MEMORY},
        {"cores", required_argument, NULL, CORES},
        {"soft-cores", required_argument, NULL, SOFT_CORES},
        {"priority", required_argument, NULL, PRIORITY},
        {"device", required_argument, NULL, DEVICE}, {"region", required_argument, NULL, REGION},
        {"pid", required_argument, NULL, PID}, {"json", no_argument, NULL, JSON}, OPTION_HELP, {0}};
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    if (status || *ret_done)
        return status;
    return optind < argc ? say_refuse_word(argv[optind]) : check_change(options);
}

int tool_set(int argc, char **argv)
{
    struct set_options options = {.device = REGION_ALL_DEVICES};
    static struct chosen_region chosen;
    bool done;
    int status = parse_options(argc, argv, &options, &done);
    if (done || status)
        return status;
    status = choose_region(&options.region, &chosen);
    if (!status)
        status = (options.json ? limits_change_json : limits_change)(
            &chosen, options.device, &options.change);
    region_detach(&chosen.region);
    return status;
}
