/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a container and letting it go on. */
#include "host/order.h"

#include "host/limits.h"
#include "host/living.h"
#include "host/options.h"
#include "host/say.h"

#include <stdio.h>

enum { REGION = OPTION_FIRST, PID, JSON };

struct order_options {
    struct region_choice region;
    bool json;
};

static int take_option(int option, void *context)
{
    struct order_options *options = context;
    if (option == REGION)
        options->region.file = optarg;
    else if (option == PID)
        options->region.pid = optarg;
    else
        options->json = true;
    return 0;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(const struct order *order, int argc, char **argv,
    struct order_options *ret_options, bool *ret_done)
{
    static const struct option known[] = {{"region", required_argument, NULL, REGION},
        {"pid", required_argument, NULL, PID}, {"json", no_argument, NULL, JSON}, OPTION_HELP, {0}};
    const struct command_options options = {order->usage, known, take_option};
    int status = options_take(&options, argc, argv, ret_options, ret_done);
    if (!status && !*ret_done && optind < argc)
        status = say_refuse_word(argv[optind]);
    return status;
}

static void say(
    const struct chosen_region *chosen, bool paused, const struct pause_outcome *outcome)
{
    limits_print_region(chosen);
    if (paused)
        printf("paused%s: its programs wait until 'vgpu resume'\n", outcome->was ? " already" : "");
    else
        printf("%s\n", outcome->was ? "resumed" : "it was not paused");
    if (outcome->living.count && (paused || outcome->was))
        living_print(&outcome->living);
    if (!paused && outcome->state.held)
        printf("HAMi's monitor has it wait all the same\n");
}

/* json: the command that is said in JSON to have done it; NULL: in words. */
static int pause_chosen(
    const struct region_choice *choice, bool paused, const char *json, int empty_status)
{
    static struct chosen_region chosen;
    static struct pause_outcome outcome;
    int status = choose_region(choice, &chosen);
    int error = status ? 0 : living_pause(&chosen, paused, &outcome);
    if (error) {
        status = limits_refuse(&chosen, error);
    } else if (!status && outcome.empty) {
        living_refuse_empty(&chosen, &outcome);
        status = empty_status;
    } else if (!status && json) {
        limits_pause_json(json, &chosen, outcome.was, &outcome.state, &outcome.living);
    } else if (!status) {
        say(&chosen, paused, &outcome);
    }
    region_detach(&chosen.region);
    return status;
}

int order_pause(const struct region_choice *choice, bool paused, int empty_status)
{
    return pause_chosen(choice, paused, NULL, empty_status);
}

int order_give(const struct order *order, int argc, char **argv)
{
    struct order_options options = {0};
    bool done;
    int status = parse_options(order, argc, argv, &options, &done);
    if (done || status)
        return status;
    return pause_chosen(
        &options.region, order->paused, options.json ? order->command : NULL, TOOL_FAILED);
}
