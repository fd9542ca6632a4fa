/* SPDX-License-Identifier: Apache-2.0 */
/* Work that exceeded its estimate, and what else was held back meanwhile. */
#include "pace/gang.h"

#include "base/log.h"
#include "pace/policy.h"
#include "compute/gang.h"
#include "compute/durations.h"
#include "account/account.h"

#include <string.h>

/* Kernels of a device that are followed at once, by their keys. */
#define KERNELS 4

static struct gang gangs[VGPU_REGION_DEVICES][KERNELS] GUARDED_BY(meters_lock);
static bool told;

/* Launches only, and the stream never ran dry. */
static bool tells_something(const struct stream_meter *meter, const struct meter_interval *interval)
{
    return meter->started && interval->launches && interval->work_ns && !interval->other &&
           (interval->continuous || interval->measured);
}

void gang_note(int device, const struct stream_meter *meter, uint64_t at_ns)
{
    const struct meter_interval *interval = &meter->events[meter->first].before;
    if (!tells_something(meter, interval) || policy_only_channels())
        return;
    uint64_t known = interval->measured ? duration_of(interval->key) : 0;
    uint64_t work = known > interval->work_ns ? known : interval->work_ns;
    uint64_t due = meter->reached_ns + work;
    if (meter_open_between(meter, meter->reached_ns, at_ns) < work + GANG_OVER_NS)
        return;
    uint64_t admitted = account_admitted_ns((unsigned)device, due, at_ns);
    struct gang *gang = &gangs[device][interval->key % KERNELS];
    /* Begin and end of a closure are not known well enough. */
    if (!admitted || closed_between(meter->closed, admitted, at_ns))
        return;
    if (gang_judge(gang, interval->key, at_ns - admitted, at_ns))
        account_note_gang(at_ns);
}

void gang_tell(void)
{
    if (told || !policy_has_gang())
        return;
    told = true;
    log_info("kernels of the container's devices wait for each other: they are taken off the GPUs "
             "together, where that works");
}

void gang_reset(void)
{
    memset(gangs, 0, sizeof(gangs));
    told = false;
}
