/* SPDX-License-Identifier: Apache-2.0 */
/* shrreg-tool: HAMi-core's tool. Its options are done one after the other, as they are given. */
#include "tool/create.h"
#include "host/limits.h"
#include "host/order.h"
#include "host/processes.h"
#include "tool/tool.h"

#include "vgpu/hami.h"

#include <stdio.h>
#include <string.h>

const char tool_name[] = "shrreg-tool";

static const char usage_text[] =
    "usage: shrreg-tool [--region FILE] OPTION...\n"
    "  --create_new     makes a new region with the limits of the environment; refused while\n"
    "                   a process of the container lives\n"
    "  --print          shows the limits, and what each process holds\n"
    "  --suspend        stops the container's work on the GPU until --resume; no effect if the\n"
    "                   container has no live process\n"
    "  --resume         lets it continue\n"
    "  --set-sm-limit DEVICE PERCENT\n"
    "                   changes the compute limit of one device, at once; 0 and 100: no limit.\n"
    "                   Devices are numbered from 0 in the order in which the container's\n"
    "                   programs first used them; --print shows the numbers\n"
    "  --region FILE    the container with this shared region; before all other options\n"
    "  --help, --version\n"
    "Options are executed in the given order, up to the first that fails. Without\n"
    "--region the region is the one that CUDA_DEVICE_MEMORY_SHARED_CACHE names, or the default.\n"
    "'vgpu set', 'vgpu pause' and 'vgpu resume' do more.\n";

struct option {
    const char *word;
    int values;                  /* that follow it */
    int (*check)(char **values); /* NULL: nothing to check */
    int (*act)(const struct region_choice *choice, char **values);
};

static int help(const struct region_choice *choice, char **values)
{
    (void)choice, (void)values;
    fputs(usage_text, stdout);
    return 0;
}

/* HAMi-core's own line below ours. */
static int version(const struct region_choice *choice, char **values)
{
    (void)choice, (void)values;
    puts("shrreg-tool " VGPU_VERSION);
    printf("shrreg size: %zu, version %u.%u\n", sizeof(struct vgpu_hami), VGPU_HAMI_MAJOR,
        VGPU_HAMI_MINOR);
    return 0;
}

static int parse_sm_limit(char **values, int *ret_device, struct region_change *ret_change)
{
    int status = limits_parse_device("--set-sm-limit: device", values[0], ret_device);
    return status ? status
                  : limits_parse_cores("--set-sm-limit: percentage", values[1], ret_change);
}

static int check_sm_limit(char **values)
{
    struct region_change change = {0};
    int device;
    return parse_sm_limit(values, &device, &change);
}

static int set_sm_limit(const struct region_choice *choice, char **values)
{
    static struct chosen_region chosen;
    struct region_change change = {0};
    int device;
    int status = parse_sm_limit(values, &device, &change);
    if (!status)
        status = choose_region(choice, &chosen);
    if (!status)
        status = limits_change(&chosen, device, &change);
    region_detach(&chosen.region);
    return status;
}

static int print(const struct region_choice *choice, char **values)
{
    static struct chosen_region chosen;
    (void)values;
    int status = choose_region(choice, &chosen);
    if (!status)
        status = limits_print(&chosen);
    if (!status)
        status = processes_print(&chosen);
    region_detach(&chosen.region);
    return status;
}

/* HAMi-core's sends a signal to each process of the region; where there is none that is success. */
static int suspend(const struct region_choice *choice, char **values)
{
    (void)values;
    return order_pause(choice, true, 0);
}

static int resume(const struct region_choice *choice, char **values)
{
    (void)values;
    return order_pause(choice, false, 0);
}

static int create(const struct region_choice *choice, char **values)
{
    (void)values;
    return create_region(choice->file);
}

static const struct option options[] = {{"--create_new", 0, NULL, create},
    {"--print", 0, NULL, print}, {"--suspend", 0, NULL, suspend}, {"--resume", 0, NULL, resume},
    {"--set-sm-limit", 2, check_sm_limit, set_sm_limit}, {"--help", 0, NULL, help},
    {"-h", 0, NULL, help}, {"--version", 0, NULL, version}};

/* NULL after one line. */
static const struct option *find(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (strcmp(options[i].word, argv[0]) != 0)
            continue;
        if (argc > options[i].values)
            return &options[i];
        say_error("%s needs a device and a percentage", argv[0]);
        return NULL;
    }
    if (!strncmp(argv[0], "--region", 8))
        say_error("\"%.64s\": --region FILE stands before all other options", argv[0]);
    else
        say_error("\"%.64s\" is not an option; 'shrreg-tool --help' lists them", argv[0]);
    return NULL;
}

/* All of them, before anything is done. */
static int check(int argc, char **argv)
{
    while (argc) {
        const struct option *option = find(argc, argv);
        int status = !option ? TOOL_USAGE : option->check ? option->check(argv + 1) : 0;
        if (status)
            return status;
        argc -= 1 + option->values, argv += 1 + option->values;
    }
    return 0;
}

static int act(const struct region_choice *choice, int argc, char **argv)
{
    int status = 0;
    while (argc && !status) {
        const struct option *option = find(argc, argv);
        if (!option)
            return TOOL_USAGE;
        status = option->act(choice, argv + 1);
        argc -= 1 + option->values, argv += 1 + option->values;
    }
    return status;
}

int main(int argc, char **argv)
{
    struct region_choice choice = {0};
    argc--, argv++;
    if (argc && !strncmp(argv[0], "--region=", 9)) {
        choice.file = argv[0] + 9;
        argc--, argv++;
    } else if (argc > 1 && !strcmp(argv[0], "--region")) {
        choice.file = argv[1];
        argc -= 2, argv += 2;
    }
    if (!argc) {
        fputs(usage_text, stderr);
        return TOOL_USAGE;
    }
    int status = check(argc, argv);
    return say_end(status ? status : act(&choice, argc, argv));
}
