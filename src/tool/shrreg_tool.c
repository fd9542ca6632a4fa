/* SPDX-License-Identifier: Apache-2.0 */
/* shrreg-tool: HAMi-core's tool, as far as its words are used. `vgpu set` can do more. */
#include "tool/limits.h"
#include "tool/tool.h"

#include <stdio.h>
#include <string.h>

const char tool_name[] = "shrreg-tool";

static const char usage_text[] =
    "usage: shrreg-tool [--region FILE] --print\n"
    "       shrreg-tool [--region FILE] --set-sm-limit DEVICE PERCENT\n"
    "       shrreg-tool --help | --version\n"
    "\n"
    "Shows the shared region of a container, or changes the compute limit of one of its devices\n"
    "while its programs run. Without --region the region is the one that\n"
    "CUDA_DEVICE_MEMORY_SHARED_CACHE names, or the default. 'vgpu set' does more.\n";

static int refuse_word(const char *word)
{
    tool_error("\"%.64s\" is not an option; 'shrreg-tool --help' lists them", word);
    return TOOL_USAGE;
}

static int set_sm_limit(const struct region_choice *choice, int argc, char **argv)
{
    static struct chosen_region chosen;
    struct region_change change = {0};
    int device;
    if (argc < 3) {
        tool_error("--set-sm-limit needs a device and a percentage");
        return TOOL_USAGE;
    }
    if (argc > 3)
        return refuse_word(argv[3]);
    int status = limits_parse_device("--set-sm-limit: device", argv[1], &device);
    if (!status)
        status = limits_parse_cores("--set-sm-limit: percentage", argv[2], &change);
    if (status)
        return status;
    status = region_choose(choice, &chosen);
    if (!status)
        status = limits_change(&chosen, device, &change);
    region_detach(&chosen.region);
    return status;
}

static int print(const struct region_choice *choice, int argc, char **argv)
{
    static struct chosen_region chosen;
    if (argc > 1)
        return refuse_word(argv[1]);
    int status = region_choose(choice, &chosen);
    if (!status)
        status = limits_print(&chosen);
    region_detach(&chosen.region);
    return status;
}

static bool is_unsupported(const char *word)
{
    return !strcmp(word, "--create_new") || !strcmp(word, "--suspend") || !strcmp(word, "--resume");
}

/* `argv` begins with the word that says what to do. */
static int act(const struct region_choice *choice, int argc, char **argv)
{
    if (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (!strcmp(argv[0], "--version")) {
        puts("shrreg-tool " VGPU_VERSION);
        return 0;
    }
    if (!strcmp(argv[0], "--print"))
        return print(choice, argc, argv);
    if (!strcmp(argv[0], "--set-sm-limit"))
        return set_sm_limit(choice, argc, argv);
    if (!is_unsupported(argv[0]))
        return refuse_word(argv[0]);
    tool_error("%s is not supported yet", argv[0]);
    return TOOL_FAILED;
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
    if (argc)
        return act(&choice, argc, argv);
    fputs(usage_text, stderr);
    return TOOL_USAGE;
}
