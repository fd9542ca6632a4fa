/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu region: one region's file, decoded, checked, repaired. */
#include "tool/region.h"

#include "region/region_file.h"
#include "region/region_set.h"
#include "host/choose.h"
#include "host/options.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct region_options {
    bool json, check, repair;
    const char *file;
};

static const char usage_text[] =
    "usage: vgpu region [--json] [--check | --repair] FILE\n"
    "\n"
    "Shows the content of the shared region FILE: limits, devices, processes, GPU time, its "
    "owner.\n"
    "  --check     print the errors in it instead, a line for each impossible value\n"
    "  --repair    also repair what can be repaired while programs use it: free the slots of dead\n"
    "              processes and reset invalid words. Only for its owner and root\n"
    "  --json      the same as JSON\n"
    "  -h, --help  this text\n"
    "Exit status: 0; 1 it has errors (with --repair: that remain), or cannot be read or changed;\n"
    "2 invalid arguments.\n";

enum { JSON = OPTION_FIRST, CHECK, REPAIR };

static const struct option known[] = {{"json", no_argument, NULL, JSON},
    {"check", no_argument, NULL, CHECK}, {"repair", no_argument, NULL, REPAIR}, OPTION_HELP, {0}};

static int take_option(int option, void *context)
{
    struct region_options *options = context;
    options->json |= option == JSON;
    options->check |= option == CHECK;
    options->repair |= option == REPAIR;
    return 0;
}

static int check_options(int argc, char **argv, const struct region_options *options)
{
    if (options->check && options->repair)
        say_error("--check and --repair exclude each other");
    else if (!options->file)
        say_error("no file given; 'vgpu ps' shows which there are");
    else if (optind < argc)
        say_error("\"%.64s\" is one file too many; accepted: one", argv[optind]);
    else if (!*options->file)
        say_error("\"\" is not accepted; accepted: the path of a file");
    else
        return 0;
    return TOOL_USAGE;
}

/* Options may follow the file. 0, or the exit status after the reason was said; *ret_done: nothing
 * is left to do. */
static int parse_options(int argc, char **argv, struct region_options *options, bool *ret_done)
{
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    bool behind = optind > 1 && !strcmp(argv[optind - 1], "--");
    if (!status && !*ret_done && optind < argc) {
        options->file = argv[optind++];
        if (!behind)
            status = options_take(&taken, argc, argv, options, ret_done);
    }
    return status || *ret_done ? status : check_options(argc, argv, options);
}

static int refuse(const char *file, int error)
{
    say_error("%.256s: %s", file, choose_explain(error));
    return TOOL_FAILED;
}

/* For reading alone, and only what is regular. A link may lead there: it was named by the reader.
 */
static int open_to_read(const char *file)
{
    struct stat status;
    if (stat(file, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? -EISDIR : -EPROTO;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

static int repair(const char *file, struct findings *findings)
{
    struct region region = {.fd = -1, .slot = -1};
    int fd = region_file_open(file, false);
    int error = fd < 0 ? fd : region_set_open(&region, fd);
    if (!error)
        error = region_repair(&region, findings);
    region_detach(&region);
    if (!error)
        return 0;
    say_error("%.256s cannot be repaired: %s", file,
        error == -EPERM       ? "only its owner and root may"
        : error == -ETIMEDOUT ? "another process has held its lock for 2 s"
                              : choose_explain(error));
    return TOOL_FAILED;
}

static int examine(
    const struct region_options *options, const struct region_copy *copy, struct findings *findings)
{
    region_check(copy, findings);
    bool repaired = options->repair && copy->is_ours;
    if (repaired && findings->count) {
        int status = repair(options->file, findings);
        if (status)
            return status;
    }
    if (options->json)
        region_print_json(options->file, copy, findings, repaired);
    else
        region_print_findings(findings, repaired);
    return region_faults(findings, repaired) ? TOOL_FAILED : 0;
}

static int look(const struct region_options *options)
{
    static struct findings findings;
    int fd = open_to_read(options->file), error = fd < 0 ? fd : 0;
    struct region_copy *copy = error ? NULL : region_copy(fd, &error);
    int status = 0;
    if (fd >= 0)
        close(fd);
    if (!copy)
        return refuse(options->file, error);
    if (options->check || options->repair) {
        status = examine(options, copy, &findings);
    } else if (!copy->is_ours) {
        region_check(copy, &findings);
        say_error("%.256s: %s: %s", options->file, findings.list[0].where, findings.list[0].text);
        status = TOOL_FAILED;
    } else if (options->json) {
        region_print_json(options->file, copy, NULL, false);
    } else {
        region_print(options->file, copy);
    }
    free(copy);
    return status;
}

int tool_region(int argc, char **argv)
{
    struct region_options options = {0};
    bool done = false;
    int status = parse_options(argc, argv, &options, &done);
    return done || status ? status : look(&options);
}
