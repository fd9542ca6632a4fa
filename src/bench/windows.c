/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/windows.h"

#include <math.h>

#define STEP_MS 5      /* in which a time of reaction is looked for */
#define LOOKED_MS 1200 /* how long */
#define LOOK_MS 50     /* over which a share is reached */
#define STAYS_MS 300   /* how long it stays there then */
#define WITHIN 0.1     /* of the wanted share: it is */
#define NEAR 0.25      /* and each 50 ms of how long it stays, which scatter */

uint64_t bench_report_end_ns(const struct bench_report *report)
{
    return report->begin_ns + (uint64_t)((double)report->window_count * report->window_s * 1e9);
}

double bench_report_between(const struct bench_report *report, uint64_t from_ns, uint64_t to_ns)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < report->window_count; i++) {
        double begin = (double)report->begin_ns + (double)i * report->window_s * 1e9;
        if (begin >= (double)from_ns && begin + report->window_s * 1e9 <= (double)to_ns) {
            sum += report->windows[i];
            count++;
        }
    }
    return count ? sum / (double)count : -1;
}

enum look { AWAY, THERE, ENDED };

/* Whether what the loads do together in the time from then on is what is wanted, within that part.
 */
static enum look look_at(const struct bench_report *reports, size_t count, uint64_t begin_ns,
    unsigned long_ms, double wanted, double within)
{
    uint64_t end_ns = begin_ns + (uint64_t)(long_ms + WINDOWS_FINE_MS) * 1000000u;
    double share = 0;
    for (size_t i = 0; i < count; i++) {
        double part = bench_report_between(&reports[i], begin_ns, end_ns);
        if (end_ns > bench_report_end_ns(&reports[i]))
            return ENDED;
        share += part > 0 ? part : 0;
    }
    return fabs(share - wanted) <= within * wanted ? THERE : AWAY;
}

static enum look look_from(
    const struct bench_report *reports, size_t count, uint64_t begin_ns, double wanted)
{
    enum look look = look_at(reports, count, begin_ns, LOOK_MS, wanted, WITHIN);
    for (uint64_t later = LOOK_MS; later <= STAYS_MS && look == THERE; later += LOOK_MS)
        look = look_at(reports, count, begin_ns + later * 1000000u, LOOK_MS, wanted, NEAR);
    return look == THERE ? look_at(reports, count, begin_ns, LOOK_MS + STAYS_MS, wanted, WITHIN)
                         : look;
}

double bench_windows_reached_ms(
    const struct bench_report *reports, size_t count, uint64_t from_ns, double wanted)
{
    for (uint64_t ms = 0; ms <= LOOKED_MS; ms += STEP_MS) {
        enum look look = look_from(reports, count, from_ns + ms * 1000000u, wanted);
        if (look == ENDED)
            return -1;
        if (look == THERE)
            return (double)ms;
    }
    return -1;
}

void bench_windows_due(bool paced, unsigned limit, double native, double utilization,
    double *ret_due, double *ret_scale)
{
    double all = paced ? (utilization > 0 ? utilization : native) : 1;
    *ret_scale = native > 0 ? all / native : 1;
    *ret_due = native > 0 ? fmin(all, limit / 100.0) : limit / 100.0;
}

size_t bench_windows_judge(const struct bench_report *report, size_t factor, double scale,
    double due, double *ret_error, double *ret_deviation)
{
    double distance = 0, sum = 0, squares = 0;
    size_t count = report->window_count / factor;
    for (size_t i = 0; i < count; i++) {
        double share = 0;
        for (size_t k = 0; k < factor; k++)
            share += report->windows[i * factor + k] * scale / (double)factor;
        distance += fabs(share - due);
        sum += share;
        squares += share * share;
    }
    double mean = count ? sum / (double)count : 0;
    double variance = count ? squares / (double)count - mean * mean : 0;
    *ret_error = count ? distance / (double)count * 100 : 0;
    *ret_deviation = variance > 0 ? sqrt(variance) * 100 : 0;
    return count;
}

bool bench_windows_together(
    const struct bench_report *reports, size_t count, uint64_t after_ns, double *ret_works)
{
    uint64_t from_ns = 0, to_ns = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint64_t end_ns = bench_report_end_ns(&reports[i]);
        from_ns = reports[i].begin_ns > from_ns ? reports[i].begin_ns : from_ns;
        to_ns = end_ns < to_ns ? end_ns : to_ns;
    }
    for (size_t i = 0; i < count; i++) {
        if (bench_report_between(&reports[i], from_ns + after_ns, to_ns) < 0)
            return false;
    }
    for (size_t i = 0; i < count; i++)
        ret_works[i] = bench_report_between(&reports[i], from_ns + after_ns, to_ns);
    return true;
}

double bench_windows_gap_ms(const struct bench_report *report, uint64_t from_ns)
{
    double longest = 0, now = 0;
    for (size_t i = 0; i < report->window_count; i++) {
        uint64_t begin_ns = report->begin_ns + (uint64_t)((double)i * report->window_s * 1e9);
        if (begin_ns < from_ns)
            continue;
        now = report->windows[i] > 0 ? 0 : now + report->window_s * 1e3;
        longest = now > longest ? now : longest;
    }
    return longest;
}
