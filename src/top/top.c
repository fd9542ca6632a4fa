/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-top, which vgpu top executes: the containers of this machine on a screen. One thread draws
 * and reads keys; what could wait for a file system is done by two others. */
#include "base/clock.h"
#include "base/parse.h"
#include "host/choose.h"
#include "collect/collect.h"
#include "host/options.h"
#include "host/say.h"
#include "top/keys.h"
#include "top/screen.h"
#include "top/table.h"
#include "top/terminal.h"
#include "top/worker.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define BATCH_MOST 1000000u
#define STILL_BUSY "the change before is still on its way: nothing was done"
#define LAST_CHANGE_S 3 /* a second more than it waits for a region's lock */

const char tool_name[] = "vgpu";

struct top_options {
    const char **files; /* room for all arguments */
    struct collect_choice choice;
    uint64_t delay_ns, batch; /* looks; 0: on the screen */
    enum top_sort sort;
    bool no_colour;
};

/* The newest look, while its worker is not busy. */
struct look {
    const struct collect_choice *choice;
    struct collection collection;
    int error;
};

struct top {
    struct top_model model;
    struct top_input input;
    struct top_notice notice;
    struct top_worker looker, changer;
    struct look look;
    struct top_order order;       /* the changer's */
    char done[TOP_MESSAGE_BYTES]; /* what is said when it is done */
    bool dropped;                 /* a change, and the screen has not said so yet */
    uint64_t due_ns;              /* the next look */
    int signals;
};

static const char usage_text[] =
    "usage: vgpu top [--delay SECONDS] [--sort KEY] [--no-color] [--batch N]\n"
    "                [--region FILE... | --search LIST]\n"
    "\n"
    "Shows the containers that are visible from here and their processes on the whole screen, "
    "with\n"
    "graphs of GPU time and memory; sorts and filters them, changes limits, pauses and resumes.\n"
    "  --delay SECONDS  time between two updates, 0.1 to 3600; without it 1\n"
    "  --sort KEY       gpu, minute, memory, priority, processes or name; without it gpu\n"
    "  --no-color       without colours, as if NO_COLOR is set\n"
    "  --batch N        no screen: N updates as plain text on stdout\n"
    "  --region FILE    only the container with this shared region; may be given several times\n"
    "  --search LIST    where to look for regions, as in vgpu ps\n"
    "  -h, --help       this text\n"
    "On the screen, h lists the keys. Exit status: 0; 1 it failed; 2 invalid arguments, or no\n"
    "terminal.\n";

enum { DELAY = OPTION_FIRST, SORT, NO_COLOR, BATCH, REGION, SEARCH };

static const struct option known[] = {{"delay", required_argument, NULL, DELAY},
    {"sort", required_argument, NULL, SORT}, {"no-color", no_argument, NULL, NO_COLOR},
    {"batch", required_argument, NULL, BATCH}, {"region", required_argument, NULL, REGION},
    {"search", required_argument, NULL, SEARCH}, OPTION_HELP, {0}};

/* ---- options ---- */

static int refuse(const char *option, const char *value, const char *accepted)
{
    say_error("%s \"%.64s\" is not accepted; accepted: %s", option, value, accepted);
    return TOOL_USAGE;
}

static int take_delay(const char *text, uint64_t *ret_delay_ns)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || text[strspn(text, "0123456789.")] || !isfinite(seconds) ||
        seconds < (double)TOP_DELAY_LEAST_NS / 1e9 || seconds > (double)TOP_DELAY_MOST_NS / 1e9)
        return refuse("--delay", text, "seconds from 0.1 to 3600");
    *ret_delay_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

static int take_option(int option, void *context)
{
    struct top_options *options = context;
    switch (option) {
    case DELAY:
        return take_delay(optarg, &options->delay_ns);
    case SORT:
        return top_sort_parse(optarg, &options->sort)
                   ? 0
                   : refuse("--sort", optarg, "gpu, minute, memory, priority, processes, name");
    case NO_COLOR:
        options->no_colour = true;
        return 0;
    case BATCH:
        return parse_number(optarg, BATCH_MOST, &options->batch) == 0 && options->batch
                   ? 0
                   : refuse("--batch", optarg, "a number of looks from 1 to 1000000");
    case REGION:
        options->files[options->choice.file_count++] = optarg;
        return 0;
    default:
        options->choice.search = optarg;
        return 0;
    }
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct top_options *options, bool *ret_done)
{
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    if (status || *ret_done)
        return status;
    if (optind < argc)
        return say_refuse_word(argv[optind]);
    if (options->choice.file_count && options->choice.search)
        say_error("--region and --search exclude each other");
    else
        return 0;
    return TOOL_USAGE;
}

/* ---- looks as plain text ---- */

static unsigned output_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static bool say_problems(const struct collection *collection)
{
    for (size_t i = 0; i < collection->problem_count; i++)
        say_error("%.256s: %s", collection->problems[i].path,
            choose_explain(collection->problems[i].error));
    return collection->problem_count != 0;
}

static int print_looks(const struct top_options *options)
{
    struct top_model model = {.sort = options->sort};
    struct collection look;
    int error = 0, status = 0;
    for (uint64_t i = 0; i < options->batch && !error; i++) {
        uint64_t due = clock_now_ns() + options->delay_ns;
        error = collect(&options->choice, &look);
        if (!error)
            error = top_model_take(&model, &look, clock_now_ns());
        if (!error) {
            top_screen_print(&model, output_width(), stdout);
            fflush(stdout);
            status = say_problems(&model.now) ? TOOL_FAILED : status;
        }
        if (i + 1 == options->batch || error)
            break;
        putchar('\n');
        struct timespec until = {(time_t)(due / SECOND_NS), (long)(due % SECOND_NS)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    top_model_finish(&model);
    if (error)
        say_error("%s", strerror(-error));
    return error ? TOOL_FAILED : status;
}

/* ---- the screen ---- */

static void take_a_look(void *context)
{
    struct look *look = context;
    look->error = collect(look->choice, &look->collection);
}

static void make_change(void *context)
{
    top_order_do(context);
}

static void take_results(struct top *top)
{
    if (top_worker_take(&top->looker)) {
        top->notice.look_error = top->look.error;
        if (!top->look.error)
            top->notice.look_error =
                top_model_take(&top->model, &top->look.collection, clock_now_ns());
    }
    if (top_worker_take(&top->changer)) {
        const struct top_order *order = &top->order;
        top_keys_say(&top->input, order->failed || order->message[0], "%s",
            order->message[0] ? order->message : top->done);
        top->due_ns = 0; /* to show it */
    }
}

static void give_order(struct top *top)
{
    top->input.wants_order = false;
    if (top_worker_busy_ns(&top->changer)) {
        top_keys_say(&top->input, true, STILL_BUSY);
        top->dropped = true;
        return;
    }
    top->order = top->input.order;
    memcpy(top->done, top->input.done, sizeof(top->done));
    top_worker_ask(&top->changer);
}

/* An order is given at its key: those behind it in the same read may be the next one's. */
static void read_keys(struct top *top)
{
    uint32_t key;
    while (!top->input.wants_end && top_terminal_key(&key)) {
        if (key)
            top_keys_press(&top->input, &top->model, key);
        if (top->input.wants_order)
            give_order(top);
    }
    if (top->input.wants_look)
        top->due_ns = 0;
    top->input.wants_look = false;
}

/* Asks for the next look when it is due. Returns the milliseconds until something is to be done. */
static int keep_looking(struct top *top)
{
    uint64_t now = clock_now_ns(), delay = top->input.delay_ns;
    uint64_t busy = top_worker_busy_ns(&top->looker);
    if (!busy && now >= top->due_ns) {
        top_worker_ask(&top->looker);
        top->due_ns = now + delay;
    }
    if (top->due_ns > now + delay) /* it was made shorter */
        top->due_ns = now + delay;
    top->notice.silent_ns = busy > 2 * SECOND_NS && busy > 2 * delay ? busy : 0;
    top->notice.is_changing = top_worker_busy_ns(&top->changer) != 0;
    uint64_t wait = top->due_ns > now ? top->due_ns - now : SECOND_NS;
    return (int)((wait < SECOND_NS ? wait : SECOND_NS) / 1000000 + 1);
}

/* Until a key or a signal ends it. Returns the signal, or 0. */
static int live(struct top *top)
{
    struct pollfd watched[] = {{.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = top->signals, .events = POLLIN}, {.fd = top->looker.event, .events = POLLIN},
        {.fd = top->changer.event, .events = POLLIN}};
    while (!top->input.wants_end) {
        int wait_ms = keep_looking(top);
        top_screen_draw(&top->model, &top->input, &top->notice);
        top->dropped = false;
        if (poll(watched, sizeof(watched) / sizeof(watched[0]), wait_ms) < 0 && errno != EINTR)
            return SIGTERM;
        int number = watched[1].revents ? top_terminal_signal(top->signals) : 0;
        if (number)
            return number;
        if (watched[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            return SIGHUP;
        take_results(top);
        read_keys(top);
    }
    return 0;
}

/* What was confirmed is done before the end. 0, or the exit status after one line. */
static int await_change(struct top *top)
{
    uint64_t until = clock_now_ns() + LAST_CHANGE_S * SECOND_NS;
    struct pollfd done = {.fd = top->changer.event, .events = POLLIN};
    if (!top_worker_busy_ns(&top->changer))
        return 0;
    if (top->dropped)
        say_error(STILL_BUSY);
    while (!top_worker_take(&top->changer)) {
        uint64_t now = clock_now_ns();
        if (now >= until) {
            say_error("the last change is not made after %u s: there is no answer yet, and it may "
                      "not be made at all",
                LAST_CHANGE_S);
            return TOOL_FAILED;
        }
        (void)poll(&done, 1, (int)((until - now) / 1000000 + 1));
    }
    if (top->order.message[0])
        say_error("%s", top->order.message);
    return top->order.failed || top->dropped ? TOOL_FAILED : 0;
}

static int show_screen(const struct top_options *options)
{
    static struct top top;
    const char *no_colour = getenv("NO_COLOR");
    top.model.sort = options->sort;
    top.input.delay_ns = options->delay_ns;
    top.look.choice = &options->choice;
    top.signals = top_terminal_block_signals();
    int error = top.signals < 0 ? top.signals : 0;
    if (!error)
        error = top_worker_start(&top.looker, take_a_look, &top.look);
    if (!error)
        error = top_worker_start(&top.changer, make_change, &top.order);
    if (error) {
        say_error("%s", strerror(-error));
        return TOOL_FAILED;
    }
    if (!top_terminal_begin(!options->no_colour && !(no_colour && no_colour[0])))
        return TOOL_USAGE;
    int number = live(&top);
    top_terminal_end();
    int status = await_change(&top);
    if (number)
        top_terminal_die(number);
    return status;
}

int main(int argc, char **argv)
{
    const char **files = calloc((size_t)argc + 1, sizeof(*files));
    struct top_options options = {.files = files, .choice.files = files, .delay_ns = SECOND_NS};
    bool done;
    say_for_command("top");
    if (!files)
        return TOOL_FAILED;
    int status = parse_options(argc, argv, &options, &done);
    if (done || status)
        _exit(say_end(status));
    setlocale(LC_CTYPE, "");
    top_text_begin();
    status = options.batch ? print_looks(&options) : show_screen(&options);
    _exit(say_end(
        status)); /* also where a thread waits for a file system; it has the options still */
}
