/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a device's time a container had of late. */
#include "collect/collect_parts.h"

#include "region/region_history.h"
#include "region/region_read.h"

#include <string.h>

#define SECOND_NS 1000000000ull

static double share(const struct vgpu_history *history, const struct region_reading *reading,
    unsigned device, uint64_t span_ns)
{
    uint64_t busy, known;
    if (!region_history_share(
            history, reading->compute[device].busy_ns, reading->read_ns, span_ns, &busy, &known))
        return reading->compute[device].busy_ns ? COLLECT_UNKNOWN : 0;
    return 100.0 * (double)busy / (double)known;
}

/* Where no measurement is required, a share that does not grow may be one that is no longer
 * measured. */
void collect_shares(const struct region_reading *reading, unsigned device, bool measured,
    struct collected_device *collected)
{
    struct vgpu_history history;
    bool read = region_read_history(reading, device, &history) == 0;
    collected->share_now = collected->share_minute = read ? 0 : COLLECT_UNKNOWN;
    if (read) {
        collected->share_now = share(&history, reading, device, SECOND_NS);
        collected->share_minute = share(&history, reading, device, 60 * SECOND_NS);
    }
    if (!measured && collected->share_now <= 0)
        collected->share_now = collected->share_minute = COLLECT_UNKNOWN;
}
