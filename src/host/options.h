/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command, by getopt_long(3). */
#ifndef VGPU_HOST_OPTIONS_H
#define VGPU_HOST_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>

/* --help's row; the others' values are OPTION_FIRST and up. */
#define OPTION_HELP                                                                                \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }
#define OPTION_FIRST 256

struct command_options {
    const char *usage; /* what --help and -h say */
    const struct option *known;
    /* Takes one of them; its value is optarg. Returns 0, or the exit status after one line. */
    int (*take)(int option, void *context);
};

/* Takes options up to the first word that is none, where optind then stands. Returns 0, or the exit
 * status after one line on stderr. *ret_done: nothing is left to do, by that or because --help was
 * answered. */
int options_take(const struct command_options *options, int argc, char **argv, void *context,
    bool *ret_done) __attribute__((warn_unused_result));

#endif
