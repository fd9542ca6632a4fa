/* SPDX-License-Identifier: Apache-2.0 */
#include "load/stop.h"

#include "load/driver.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Looks, one a second, that saw no call return. At a limit of 2 % what vgpu-load keeps queued, 64
 * ms, takes 3.2 s. */
#define LOOKS_MAX 5

atomic_int load_stop;
static atomic_int watched;
static unsigned looks, returned; /* touched by the handler of SIGALRM alone */

/* Async-signal-safe, as what calls it is a handler. */
static void end_by(int number)
{
    static const char words[] = ": no driver call returned for 5 s after the signal, as in a "
                                "container that is paused: ended without a report\n";
    (void)!write(STDERR_FILENO, load_program, strlen(load_program));
    (void)!write(STDERR_FILENO, words, sizeof(words) - 1);
    signal(number, SIG_DFL);
    raise(number);
}

static void look(int number)
{
    unsigned now = load_returned();
    (void)number;
    looks = now == returned ? looks + 1 : 0;
    returned = now;
    if (looks >= LOOKS_MAX)
        end_by(load_stop);
    alarm(1);
}

static void note_stop(int number)
{
    if (!load_stop && watched)
        alarm(1);
    load_stop = number;
}

void load_catch_signals(void)
{
    struct sigaction stop = {.sa_handler = note_stop, .sa_flags = SA_RESTART};
    struct sigaction alarms = {.sa_handler = look, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &alarms, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
}

void load_watch_stop(void)
{
    watched = 1;
    if (load_stop)
        alarm(1);
}
