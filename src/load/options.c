/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of vgpu-load. */
#include "load/options.h"

#include "base/parse.h"
#include "load/driver.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 1000000.0
#define UNSET UINT64_MAX

static const char *const shape_names[SHAPES] = {"full", "one-block", "graph", "cooperative",
    "per-thread-stream", "persistent", "streams", "copies", "hostbound", "sync", "burst",
    "host-function", "wait", "copy"};

static const char usage_text[] =
    "usage: vgpu-load [OPTION]...\n"
    "\n"
    "Loads a GPU with kernels of a fixed amount of work, and reports work per second: kernels per\n"
    "second times their native duration; 1.0 is a device that is used all the time.\n"
    "\n"
    "  --shape S       one of (default full):\n"
    "      full               kernels that fill all multiprocessors, one after the other\n"
    "      one-block          kernels of one block\n"
    "      graph              a CUDA graph of 20 full kernels\n"
    "      cooperative        full kernels by cooperative launches\n"
    "      per-thread-stream  full kernels on the thread's own default stream\n"
    "      persistent         one full kernel that runs until the end, counting its work\n"
    "      streams            full kernels on --streams streams\n"
    "      copies             full kernels, and copies to the device on another stream\n"
    "      hostbound          a kernel, then --host-us of work on the host, and so on\n"
    "      sync               a kernel, cuStreamSynchronize, and so on, or each --period-ms\n"
    "      burst              --burst-ms of kernels each --period-ms\n"
    "      host-function      a kernel, a host function of --pause-ms, a kernel, and so on\n"
    "      wait               the same with a wait for a value (or an event) instead\n"
    "      copy               the same with a copy to the device instead, and a kernel beside it,\n"
    "                         and so on, or each --period-ms\n"
    "  --kernel-us N   a kernel's native duration, 1 to 1000000 (1000; hostbound: 20)\n"
    "  --streams N     1 to 32 (streams: 4)\n"
    "  --contexts N    full kernels in N contexts of the process, 1 to 16 (default 1)\n"
    "  --seconds N     seconds to measure; 0: until it is stopped (default 5)\n"
    "  --warmup N      seconds of the same load before, not measured (default 0)\n"
    "  --processes N   processes at the same time, 1 to 64 (default 1)\n"
    "  --device N      CUDA's number of the device (default 0)\n"
    "  --host-us N     (30)    --burst-ms N  (10)    --period-ms N  (burst: 50)\n"
    "  --pause-ms N    (1000)  --copy-size SIZE  (1GiB)\n"
    "  --json          one JSON object at the end, instead of a line each half second\n"
    "  --window-ms N   the length of its windows (500)\n"
    "  --calibration FILE       read the durations from there: a file of --save-calibration or a\n"
    "                           report of --json\n"
    "  --save-calibration FILE  measure the durations of all shapes and write them there\n"
    "\n"
    "Save a calibration without a compute limit, on a device that no other program uses. Without "
    "a\n"
    "calibration each run calibrates itself by short kernels, which is inexact under a limit.\n"
    "SIGINT and SIGTERM end it with its report, or without it if no driver call returns for 5 s,\n"
    "as in a paused container. Exit status: 0 done or stopped, 1 a driver call failed or a file\n"
    "cannot be used, 2 invalid arguments.\n";

const char *load_shape_name(enum load_shape shape)
{
    return shape_names[shape];
}

static bool parse_shape(const char *text, enum load_shape *ret_shape)
{
    for (int i = 0; i < SHAPES; i++) {
        if (!strcmp(text, shape_names[i])) {
            *ret_shape = (enum load_shape)i;
            return true;
        }
    }
    return false;
}

static bool parse_seconds(const char *text, double *ret_seconds)
{
    if (!*text || strspn(text, "0123456789.") != strlen(text))
        return false;
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || value > SECONDS_MAX)
        return false;
    *ret_seconds = value;
    return true;
}

struct number_option {
    const char *name;
    size_t offset;
    uint64_t min, max;
};

static const struct number_option numbers[] = {
    {"kernel-us", offsetof(struct load_options, kernel_us), 1, 1000000},
    {"streams", offsetof(struct load_options, streams), 1, LOAD_STREAMS_MAX},
    {"contexts", offsetof(struct load_options, contexts), 1, LOAD_CONTEXTS_MAX},
    {"processes", offsetof(struct load_options, processes), 1, LOAD_PROCESSES_MAX},
    {"device", offsetof(struct load_options, device), 0, 63},
    {"host-us", offsetof(struct load_options, host_us), 0, 1000000},
    {"burst-ms", offsetof(struct load_options, burst_ms), 1, 60000},
    {"period-ms", offsetof(struct load_options, period_ms), 1, 60000},
    {"pause-ms", offsetof(struct load_options, pause_ms), 1, 60000},
    {"window-ms", offsetof(struct load_options, window_ms), 1, 60000},
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static bool refuse(const char *option, const char *value, const char *accepted)
{
    load_error("--%s \"%.64s\" is not accepted; accepted: %s", option, value, accepted);
    return false;
}

static bool take_number(
    const struct number_option *option, const char *text, struct load_options *options)
{
    uint64_t value;
    if (parse_number(text, option->max, &value) == 0 && value >= option->min) {
        memcpy((char *)options + option->offset, &value, sizeof(value));
        return true;
    }
    char accepted[64];
    snprintf(accepted, sizeof(accepted), "a whole number from %llu to %llu",
        (unsigned long long)option->min, (unsigned long long)option->max);
    return refuse(option->name, text, accepted);
}

static bool take_shape(const char *text, struct load_options *options)
{
    char accepted[256];
    size_t length = 0;
    if (parse_shape(text, &options->shape))
        return true;
    for (int i = 0; i < SHAPES; i++)
        length += (size_t)snprintf(
            accepted + length, sizeof(accepted) - length, "%s%s", i ? ", " : "", shape_names[i]);
    return refuse("shape", text, accepted);
}

enum { SHAPE = 256, SECONDS, WARMUP, COPY_SIZE, JSON, CALIBRATION, SAVE, HELP, NUMBER };

static const struct option other_options[] = {{"shape", required_argument, NULL, SHAPE},
    {"seconds", required_argument, NULL, SECONDS}, {"warmup", required_argument, NULL, WARMUP},
    {"copy-size", required_argument, NULL, COPY_SIZE}, {"json", no_argument, NULL, JSON},
    {"calibration", required_argument, NULL, CALIBRATION},
    {"save-calibration", required_argument, NULL, SAVE}, {"help", no_argument, NULL, HELP}};
#define OTHERS (sizeof(other_options) / sizeof(other_options[0]))

static bool take(int option, struct load_options *options)
{
    static const char seconds_accepted[] = "seconds from 0 to 1000000, as 5 or 0.5";
    switch (option) {
    case SHAPE:
        return take_shape(optarg, options);
    case SECONDS:
        return parse_seconds(optarg, &options->seconds) ||
               refuse("seconds", optarg, seconds_accepted);
    case WARMUP:
        return parse_seconds(optarg, &options->warmup_s) ||
               refuse("warmup", optarg, seconds_accepted);
    case COPY_SIZE:
        return (parse_size(optarg, &options->copy_bytes) == 0 && options->copy_bytes) ||
               refuse("copy-size", optarg, PARSE_SIZE_ACCEPTED);
    case JSON:
        options->json = true;
        return true;
    case CALIBRATION:
        options->calibration = optarg;
        return true;
    case SAVE:
        options->save_calibration = optarg;
        return true;
    default:
        return option >= NUMBER && take_number(&numbers[option - NUMBER], optarg, options);
    }
}

static bool check_together(struct load_options *options)
{
    if (options->kernel_us == UNSET)
        options->kernel_us = options->shape == SHAPE_HOSTBOUND ? 20 : 1000;
    if (options->streams == UNSET)
        options->streams = options->shape == SHAPE_STREAMS ? 4 : 1;
    else if (options->shape != SHAPE_STREAMS && options->streams != 1)
        options->shape = options->shape == SHAPE_FULL ? SHAPE_STREAMS : options->shape;
    if (options->streams != 1 && options->shape != SHAPE_STREAMS) {
        load_error(
            "--streams is for the shapes full and streams, not %s", shape_names[options->shape]);
        return false;
    }
    if (options->contexts != 1 && options->shape != SHAPE_FULL) {
        load_error("--contexts is for the shape full, not %s", shape_names[options->shape]);
        return false;
    }
    if (options->period_ms == UNSET)
        options->period_ms = options->shape == SHAPE_BURST ? 50 : 0;
    if (options->calibration && options->save_calibration) {
        load_error("--calibration and --save-calibration exclude each other");
        return false;
    }
    return true;
}

/* What getopt_long stopped at. */
static bool refuse_option(int option, char **argv)
{
    const char letter[] = {'-', (char)optopt, '\0'};
    bool is_letter = option == '?' && optopt > 0 && optopt < SHAPE;
    load_error("\"%.64s\" %s; --help lists the options", is_letter ? letter : argv[optind - 1],
        option == ':'     ? "needs a value"
        : optopt >= SHAPE ? "takes no value"
                          : "is not an option");
    return false;
}

bool load_options_parse(int argc, char **argv, struct load_options *options, int *ret_status)
{
    struct option known[OTHERS + NUMBERS + 1] = {0};
    memcpy(known, other_options, sizeof(other_options));
    for (size_t i = 0; i < NUMBERS; i++)
        known[OTHERS + i] =
            (struct option){numbers[i].name, required_argument, NULL, NUMBER + (int)i};
    *options = (struct load_options){.kernel_us = UNSET,
        .streams = UNSET,
        .contexts = 1,
        .processes = 1,
        .host_us = 30,
        .burst_ms = 10,
        .period_ms = UNSET,
        .pause_ms = 1000,
        .copy_bytes = 1ull << 30,
        .seconds = 5,
        .report_ms = 500,
        .window_ms = 500};
    *ret_status = LOAD_USAGE;
    for (int option; (option = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        if (option == HELP) {
            fputs(usage_text, stdout);
            *ret_status = EXIT_SUCCESS;
            return false;
        }
        if (option < SHAPE)
            return refuse_option(option, argv);
        if (!take(option, options))
            return false;
    }
    if (optind != argc) {
        load_error("\"%.64s\" is not accepted; --help lists the options", argv[optind]);
        return false;
    }
    return check_together(options);
}
