/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu COMMAND [ARG…] */
#include "tool/tool.h"

#include "doctor/doctor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char tool_name[] = "vgpu";

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

static const struct command commands[] = {
    {"run", tool_run, "run a command inside a slice of the GPU"},
    {"ps", tool_ps, "list containers and their processes: memory, GPU time, limits"},
    {"top", tool_top, "show them on the screen, change limits, pause and resume"},
    {"set", tool_set, "change the limits of a container while it runs"},
    {"pause", tool_pause, "take a container's programs off the GPU until they are resumed"},
    {"resume", tool_resume, "let a paused container continue"},
    {"bench", tool_bench, "measure what a library costs, and whether its limits hold"},
    {"doctor", doctor_main, "check what works here, and how to correct what does not"},
    {"region", tool_region, "decode, check and repair a container's shared region"},
};

static int usage(FILE *stream, int status)
{
    fputs("usage: vgpu COMMAND [ARGUMENT...]\n\ncommands:\n", stream);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(stream, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\n'vgpu help COMMAND' and 'vgpu COMMAND --help' print more; 'vgpu --version' the "
          "version.\n",
        stream);
    return status;
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[0], commands[i].name) != 0)
            continue;
        say_for_command(commands[i].name);
        return commands[i].run(argc, argv);
    }
    say_error("\"%.64s\" is not a command; 'vgpu --help' lists them", argv[0]);
    return TOOL_USAGE;
}

static bool is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

/* `words` stand behind vgpu's own word for help. */
static int help(int count, char **words)
{
    static char option[] = "--help";
    if (!count || is_help(words[0]))
        return usage(stdout, 0);
    if (count > 1) {
        say_error("help: \"%.64s\" is one command too many; accepted: one", words[1]);
        return TOOL_USAGE;
    }
    return run_command(2, (char *[]){words[0], option, NULL});
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr, TOOL_USAGE);
    if (is_help(argv[1]))
        return help(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--version")) {
        puts("vgpu " VGPU_VERSION);
        return 0;
    }
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    return say_end(run(argc, argv));
}
