/* SPDX-License-Identifier: Apache-2.0 */
/* The process without a library that asks NVML. */
#include "bench/card.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOKS_MOST 25
#define LOOK_NS 20000000u

static struct bench_process card;
static size_t card_offset;
static char card_missing[256];

void bench_card_begin(struct bench *bench)
{
    struct bench_limits none = {.place = bench->scratch};
    card_missing[0] = '\0';
    card_offset = 0;
    if (bench->options->declare)
        return;
    if (bench_start_worker(bench, &card, 0, &none, 3600, "card", bench->bus, NULL) != 0)
        snprintf(card_missing, sizeof(card_missing), "NVML could not be asked");
}

void bench_card_finish(void)
{
    bench_process_finish(&card);
}

const char *bench_card_missing(void)
{
    return card_missing[0] ? card_missing : NULL;
}

/* NVML's figure now, in MiB, and what of it is the processes' own, negative where that is not
 * known; false where nothing is. */
static bool ask_card(
    const struct bench_process *processes, size_t count, double *ret_used, double *ret_own)
{
    if (!card.pid || card_missing[0])
        return false;
    bench_process_tell(&card, "\n");
    const char *line = bench_process_line(&card, &card_offset);
    if (!line) {
        bench_process_failure(&card, card_missing, sizeof(card_missing));
        return false;
    }
    char *rest;
    size_t found = 0;
    *ret_used = strtod(line, &rest) / BENCH_MIB;
    *ret_own = 0;
    while (*rest == ' ') {
        long pid = strtol(rest, &rest, 10);
        double mib = strtod(rest, &rest) / BENCH_MIB;
        for (size_t i = 0; i < count; i++) {
            *ret_own += processes[i].pid == pid ? mib : 0;
            found += processes[i].pid == pid;
        }
    }
    *ret_own = found == count ? *ret_own : -1;
    return true;
}

double bench_card_now_mib(void)
{
    double used, own;
    return ask_card(NULL, 0, &used, &own) ? used : -1;
}

double bench_card_mib(const struct bench_process *processes, size_t count, double *ret_own)
{
    double used = -1, before, own = -1;
    for (int look = 0; look < LOOKS_MOST; look++) {
        before = used;
        if (!ask_card(processes, count, &used, &own))
            return -1;
        if (used == before)
            break;
        bench_sleep_until(clock_now_ns() + LOOK_NS);
    }
    if (ret_own)
        *ret_own = own;
    return used;
}
