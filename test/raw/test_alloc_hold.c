/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc_hold [MIB [SECONDS]]: holds 128 MiB, or so many, for others to look at, until it is
 * stopped or so many seconds are over; what it holds counts as long as that. */
#include "raw.h"

#include "base/parse.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define HELD_MIB 128
#define LARGEST_MIB (1u << 20)

static bool read_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    if (!text || parse_number(text, most, ret_number) == 0)
        return true;
    fprintf(stderr, "test_alloc_hold: \"%.64s\" is not accepted; accepted: 0 to %llu\n", text,
        (unsigned long long)most);
    return false;
}

/* Until SIGINT, SIGTERM or SIGHUP, which main has blocked. */
static void hold(const sigset_t *signals, uint64_t seconds)
{
    int got = 0;
    if (seconds == UINT64_MAX)
        sigwait(signals, &got);
    else
        sigtimedwait(signals, NULL, &(struct timespec){.tv_sec = (time_t)seconds});
}

int main(int argc, char **argv)
{
    uint64_t mib = HELD_MIB, seconds = UINT64_MAX;
    CUdeviceptr pointer;
    sigset_t signals;
    if (!read_number(argc > 1 ? argv[1] : NULL, LARGEST_MIB, &mib) ||
        !read_number(argc > 2 ? argv[2] : NULL, UINT32_MAX, &seconds))
        return 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    raw_begin();
    uint64_t before = raw_used();
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, mib * RAW_MIB));
    printf("pid %d holds %llu MiB\n", (int)getpid(), (unsigned long long)mib);
    hold(&signals, seconds);
    if (raw_in_slice())
        raw_check(raw_used() >= before + mib * RAW_MIB, "it counted to the end");
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
    return raw_end();
}
