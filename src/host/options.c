/* SPDX-License-Identifier: Apache-2.0 */
#include "host/options.h"

#include "host/say.h"

#include <stdio.h>

int options_take(
    const struct command_options *options, int argc, char **argv, void *context, bool *ret_done)
{
    *ret_done = true;
    const char *word = argv[optind];
    for (int option; (option = getopt_long(argc, argv, "+:h", options->known, NULL)) != -1;
         word = argv[optind]) {
        if (option == 'h') {
            fputs(options->usage, stdout);
            return 0;
        }
        int status = option < OPTION_FIRST ? say_refuse_option(option, word)
                                           : options->take(option, context);
        if (status)
            return status;
    }
    *ret_done = false;
    return 0;
}
