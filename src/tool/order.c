/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a container and letting it go on. */
#include "tool/order.h"

#include "tool/limits.h"
#include "tool/tool.h"

#include <getopt.h>
#include <stdio.h>

enum { REGION = 256, PID, JSON, HELP };

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(const struct order *order, int argc, char **argv,
    struct region_choice *ret_choice, bool *ret_json, bool *ret_done)
{
    static const struct option known[] = {{"region", required_argument, NULL, REGION},
        {"pid", required_argument, NULL, PID}, {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP}, {0}};
    *ret_done = true;
    const char *word = argv[optind];
    for (int option; (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1;
         word = argv[optind]) {
        if (option == HELP || option == 'h') {
            fputs(order->usage, stdout);
            return 0;
        }
        if (option == REGION)
            ret_choice->file = optarg;
        else if (option == PID)
            ret_choice->pid = optarg;
        else if (option == JSON)
            *ret_json = true;
        else
            return tool_refuse_option(order->command, option, word);
    }
    if (optind < argc)
        return tool_refuse_word(order->command, argv[optind]);
    *ret_done = false;
    return 0;
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
    struct region_choice choice = {0};
    bool json = false, done = false;
    int status = parse_options(order, argc, argv, &choice, &json, &done);
    if (done || status)
        return status;
    if (json)
        return give_json(order, &choice);
    return order_pause(&choice, order->paused);
}
