/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a container and letting it go on. */
#include "host/order.h"

#include "base/file_lock.h"
#include "host/limits.h"
#include "host/living.h"
#include "host/options.h"
#include "host/release.h"
#include "host/say.h"

#include <errno.h>
#include <stdio.h>

enum { REGION = OPTION_FIRST, PID, JSON, RELEASE, ON_DEMAND, CHECKPOINT };

struct order_options {
    struct region_choice region;
    bool json, release, on_demand, checkpoint;
};

/* An order, and what came of it. */
struct done {
    bool paused, moves;     /* a pause or its end; memory moves with it */
    enum vgpu_release kind; /* of a pause with which it does */
    struct pause_outcome outcome;
    struct release_outcome release;
};

static int take_option(int option, void *context)
{
    struct order_options *options = context;
    if (option == REGION)
        options->region.file = optarg;
    else if (option == PID)
        options->region.pid = optarg;
    else if (option == JSON)
        options->json = true;
    else if (option == RELEASE)
        options->release = true;
    else if (option == CHECKPOINT)
        options->checkpoint = true;
    else
        options->on_demand = true;
    return 0;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(const struct order *order, int argc, char **argv,
    struct order_options *ret_options, bool *ret_done)
{
    static const struct option known[] = {{"region", required_argument, NULL, REGION},
        {"pid", required_argument, NULL, PID}, {"json", no_argument, NULL, JSON}, OPTION_HELP, {0}};
    static const struct option known_of_pause[] = {{"region", required_argument, NULL, REGION},
        {"pid", required_argument, NULL, PID}, {"json", no_argument, NULL, JSON},
        {"release", no_argument, NULL, RELEASE}, {"on-demand", no_argument, NULL, ON_DEMAND},
        {"checkpoint", no_argument, NULL, CHECKPOINT}, OPTION_HELP, {0}};
    const struct command_options options = {
        order->usage, order->paused ? known_of_pause : known, take_option};
    int status = options_take(&options, argc, argv, ret_options, ret_done);
    if (!status && !*ret_done && optind < argc)
        status = say_refuse_word(argv[optind]);
    if (!status && !*ret_done && ret_options->on_demand && !ret_options->release) {
        say_error("--on-demand goes with --release: without that no memory moves");
        status = TOOL_USAGE;
    }
    if (!status && !*ret_done && ret_options->checkpoint &&
        (!ret_options->release || ret_options->on_demand)) {
        say_error("--checkpoint goes with --release, and not with --on-demand: 'vgpu resume' "
                  "alone restores what is checkpointed");
        status = TOOL_USAGE;
    }
    return status;
}

static void say(const struct chosen_region *chosen, const struct done *done)
{
    const struct pause_outcome *outcome = &done->outcome;
    limits_print_region(chosen);
    bool on_demand = done->moves && done->kind == VGPU_RELEASE_ON_DEMAND;
    if (done->paused && on_demand && done->release.checkpointed)
        printf("checkpointed: 'vgpu resume' alone brings it back\n");
    else if (done->paused && on_demand)
        printf("not paused: the next work brings its memory back\n");
    else if (done->paused)
        printf("paused%s: its programs wait until 'vgpu resume'\n", outcome->was ? " already" : "");
    else
        printf("%s\n", outcome->was || done->moves ? "resumed" : "it was not paused");
    if (done->paused && done->moves)
        release_print(&done->release, done->kind);
    else if (done->moves)
        release_print_end(&done->release);
    if (outcome->living.count && (done->paused || outcome->was))
        living_print(&outcome->living);
    if (!done->paused && outcome->state.held)
        printf("HAMi's monitor has it wait all the same\n");
}

/* Commands do one after the other what takes several steps; by a lock on a byte behind the region,
 * which ends with the command. A tenant that holds it keeps its own container from being paused. */
#define COMMAND_BYTE ((off_t)1 << 40)
#define COMMAND_WAIT_NS 60000000000ull

/* Moves what is to be moved; then, and where nothing is, the pause. */
static int give(struct chosen_region *chosen, struct done *done)
{
    int error = file_lock_wait(chosen->region.fd, COMMAND_BYTE, COMMAND_WAIT_NS);
    if (error)
        return -EALREADY;
    error = living_look(chosen, &done->outcome);
    struct pause_outcome *outcome = &done->outcome;
    outcome->empty = done->paused && !outcome->living.count;
    if (error || outcome->empty)
        return error;
    if (!done->paused)
        done->moves =
            outcome->state.release != VGPU_RELEASE_NONE || release_has_checkpointed(chosen);
    if (done->moves && done->paused)
        error = release_give(chosen, done->kind, &done->release);
    else if (done->moves)
        error = release_end(chosen, &done->release);
    else
        error = region_set_paused(&chosen->region, done->paused, &outcome->was);
    return error ? error : region_set_state(&chosen->region, &outcome->state);
}

static bool is_restored(const struct done *done)
{
    return !done->release.checkpoint.refused && !done->release.checkpoint.lacks;
}

/* json: the command that is said in JSON to have done it; NULL: in words. */
static int pause_chosen(
    const struct region_choice *choice, struct done *done, const char *json, int empty_status)
{
    static struct chosen_region chosen;
    int status = choose_region(choice, &chosen);
    int error = status ? 0 : give(&chosen, done);
    if (error) {
        status = limits_refuse(&chosen, error);
    } else if (!status && done->outcome.empty) {
        living_refuse_empty(&chosen, &done->outcome);
        status = empty_status;
    } else if (!status && done->paused && done->release.lacking_bytes) {
        release_refuse(&done->release);
        status = TOOL_FAILED;
    } else if (!status && !done->paused &&
               (done->release.checkpoint.lacking_bytes || done->release.checkpoint.lacks)) {
        release_refuse_end(&done->release);
        status = TOOL_FAILED;
    } else if (!status) {
        if (json)
            limits_pause_json(json, &chosen, &done->outcome, done->moves ? &done->release : NULL);
        else
            say(&chosen, done);
        status = done->paused || is_restored(done) ? 0 : TOOL_FAILED;
    }
    region_detach(&chosen.region);
    return status;
}

int order_pause(const struct region_choice *choice, bool paused, int empty_status)
{
    struct done done = {.paused = paused};
    return pause_chosen(choice, &done, NULL, empty_status);
}

int order_give(const struct order *order, int argc, char **argv)
{
    struct order_options options = {0};
    bool done;
    int status = parse_options(order, argc, argv, &options, &done);
    if (done || status)
        return status;
    struct done what = {.paused = order->paused,
        .moves = options.release,
        .kind = options.checkpoint  ? VGPU_RELEASE_CHECKPOINT
                : options.on_demand ? VGPU_RELEASE_ON_DEMAND
                                    : VGPU_RELEASE_PAUSE};
    return pause_chosen(&options.region, &what, options.json ? order->command : NULL, TOOL_FAILED);
}
