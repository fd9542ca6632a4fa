/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a container and letting it go on. */
#include "tool/order.h"

#include "tool/limits.h"
#include "tool/options.h"
#include "tool/tool.h"

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
        status = tool_refuse_word(argv[optind]);
    return status;
}

static void say(const struct chosen_region *chosen, bool paused, bool was, bool held)
{
    limits_print_region(chosen);
    if (paused)
        printf("paused%s: its programs wait until 'vgpu resume'\n", was ? " already" : "");
    else
        printf("%s\n", was ? "resumed" : "it was not paused");
    if (!paused && held)
        printf("HAMi's monitor has it wait all the same\n");
}

static int give(bool paused, struct chosen_region *chosen)
{
    struct region_state state;
    bool was;
    int error = region_set_paused(&chosen->region, paused, &was);
    if (!error)
        error = region_set_state(&chosen->region, &state);
    if (error)
        return limits_refuse(chosen, error);
    say(chosen, paused, was, state.held);
    return 0;
}

int order_pause(const struct region_choice *choice, bool paused)
{
    static struct chosen_region chosen;
    int status = region_choose(choice, &chosen);
    if (!status)
        status = give(paused, &chosen);
    region_detach(&chosen.region);
    return status;
}

static int give_json(const struct order *order, const struct region_choice *choice)
{
    static struct chosen_region chosen;
    struct region_state state;
    bool was;
    int status = region_choose(choice, &chosen);
    int error = status ? 0 : region_set_paused(&chosen.region, order->paused, &was);
    if (!status && !error)
        error = region_set_state(&chosen.region, &state);
    if (error)
        status = limits_refuse(&chosen, error);
    else if (!status)
        limits_pause_json(order->command, &chosen, was, &state);
    region_detach(&chosen.region);
    return status;
}

int order_give(const struct order *order, int argc, char **argv)
{
    struct order_options options = {0};
    bool done;
    int status = parse_options(order, argc, argv, &options, &done);
    if (done || status)
        return status;
    if (options.json)
        return give_json(order, &options.region);
    return order_pause(&options.region, order->paused);
}
