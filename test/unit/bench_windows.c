/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench makes of the windows of loads, of which the test says what they did. */
#include "bench/windows.h"

#include "check.h"

#include <math.h>

#define BEGIN_NS 1000000000000u
#define WINDOWS_MOST 400

static bool near(double one, double other)
{
    bool is = fabs(one - other) < 1e-9;
    if (!is)
        printf("# %.12g is not %.12g\n", one, other);
    return is;
}

static uint64_t after(double ms)
{
    return BEGIN_NS + (uint64_t)(ms * 1e6);
}

/* A load with windows of 10 ms that does `first` until so many have passed, then `then`. */
static struct bench_report load(
    double *windows, size_t count, size_t turn, double first, double then)
{
    for (size_t i = 0; i < count; i++)
        windows[i] = i < turn ? first : then;
    return (struct bench_report){
        .begin_ns = BEGIN_NS, .window_s = 0.01, .windows = windows, .window_count = count};
}

TEST("a new limit is reached when the next 50 ms are within a tenth of it, and it stays there")
{
    double windows[WINDOWS_MOST];
    struct bench_report report = load(windows, 300, 130, 0.8, 0.2);
    /* What is looked at begins with the first whole window: 5 ms before it is as good. */
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1200), 0.2), 95));
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1300), 0.2), 0));
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1203), 0.2), 90));
    windows[129] = 0.2;
    windows[128] = 0.35;
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1200), 0.2), 85));
    report = load(windows, 300, 130, 0.8, 0.2199);
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1200), 0.2), 95));
    report = load(windows, 300, 130, 0.8, 0.23);
    CHECK(bench_windows_reached_ms(&report, 1, after(1200), 0.2) < 0);
    report = load(windows, 300, 250, 0.8, 0.2); /* later than is looked */
    CHECK(bench_windows_reached_ms(&report, 1, after(500), 0.2) < 0);
    report = load(windows, 134, 130, 0.8, 0.2); /* it ended first */
    CHECK(bench_windows_reached_ms(&report, 1, after(1200), 0.2) < 0);
}

TEST("a share that swings around the new limit, or only passes it, has not reached it")
{
    double windows[WINDOWS_MOST];
    struct bench_report report = load(windows, 300, 130, 0.8, 0.2);
    for (size_t i = 130; i < 300; i++) /* 50 ms of it, 100 of nothing, 50 of twice as much */
        windows[i] = i % 20 < 5 ? 0.2 : i % 20 < 15 ? 0 : 0.4;
    CHECK(bench_windows_reached_ms(&report, 1, after(1200), 0.2) < 0);
    report = load(windows, 300, 130, 0.8, 0.2);
    for (size_t i = 150; i < 160; i++) /* once more before it stays */
        windows[i] = 0.5;
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1200), 0.2), 395));
    report = load(windows, 300, 130, 0.8, 0.2);
    for (size_t i = 135; i < 165; i++) /* it scatters, by a fifth */
        windows[i] = i / 5 % 2 ? 0.16 : 0.24;
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1300), 0.2), 0));
    for (size_t i = 135; i < 165; i++) /* it is a fifth more */
        windows[i] = 0.24;
    CHECK(bench_windows_reached_ms(&report, 1, after(1300), 0.2) > 0);
    report = load(windows, 165, 130, 0.8, 0.2); /* it ended before that was seen */
    CHECK(bench_windows_reached_ms(&report, 1, after(1300), 0.2) < 0);
    report = load(windows, 170, 130, 0.8, 0.2);
    CHECK(near(bench_windows_reached_ms(&report, 1, after(1300), 0.2), 0));
}

TEST("loads of one container reach their limit together")
{
    double one[WINDOWS_MOST], other[WINDOWS_MOST];
    struct bench_report reports[2] = {load(one, 300, 140, 0.5, 0.25), load(other, 150, 0, 0, 0.25)};
    reports[1].begin_ns = after(1200);
    CHECK(near(bench_windows_reached_ms(reports, 2, reports[1].begin_ns, 0.5), 190));
    CHECK(bench_windows_reached_ms(reports, 1, reports[1].begin_ns, 0.5) < 0); /* alone it goes */
}

TEST("what is due is the limit, or what a load that waits for the host needs where that is less")
{
    double due, scale;
    bench_windows_due(false, 50, 0.8, 0.9, &due, &scale);
    CHECK(near(due, 0.5) && near(scale, 1.25));
    bench_windows_due(false, 50, 0, -1, &due, &scale);
    CHECK(near(due, 0.5) && near(scale, 1));
    bench_windows_due(true, 50, 0.4, -1, &due, &scale);
    CHECK(near(due, 0.4) && near(scale, 1));
    bench_windows_due(true, 50, 0.6, -1, &due, &scale);
    CHECK(near(due, 0.5) && near(scale, 1));
}

TEST("a load that waits for the host uses natively what NVML says")
{
    double due, scale;
    bench_windows_due(true, 50, 0.6, 0.63, &due, &scale);
    CHECK(near(due, 0.5) && near(scale, 1.05));
    bench_windows_due(true, 80, 0.6, 0.63, &due, &scale);
    CHECK(near(due, 0.63) && near(scale, 1.05));
    bench_windows_due(true, 50, 0, 0.63, &due, &scale);
    CHECK(near(due, 0.5) && near(scale, 1));
}

TEST("an error is the mean distance of windows, and a deviation what they differ by")
{
    double windows[] = {0.1, 0.3, 0.2, 0.4, 0.9}, error, deviation;
    struct bench_report report = {.window_s = 0.1, .windows = windows, .window_count = 5};
    CHECK_EQ(bench_windows_judge(&report, 1, 1, 0.2, &error, &deviation), 5);
    CHECK(near(error, (10 + 10 + 0 + 20 + 70) / 5.0));
    CHECK(near(deviation, 100 * sqrt((0.01 + 0.09 + 0.04 + 0.16 + 0.81) / 5 - 0.38 * 0.38)));
    CHECK_EQ(bench_windows_judge(&report, 2, 1, 0.2, &error, &deviation), 2); /* 0.2, 0.3 */
    CHECK(near(error, 5) && near(deviation, 5));
    CHECK_EQ(bench_windows_judge(&report, 2, 2, 0.4, &error, &deviation), 2);
    CHECK(near(error, 10) && near(deviation, 10));
    CHECK_EQ(bench_windows_judge(&report, 6, 1, 0.2, &error, &deviation), 0);
    CHECK(near(error, 0) && near(deviation, 0));
}

TEST("tenants' work is of the time in which all work")
{
    double one[WINDOWS_MOST], other[WINDOWS_MOST], works[2] = {7, 7};
    struct bench_report reports[2] = {
        load(one, 200, 130, 0.9, 0.27), load(other, 200, 30, 0.1, 0.54)};
    reports[1].begin_ns = after(1000);
    /* From 0.3 s after the second's begin to the first's end. */
    CHECK(bench_windows_together(reports, 2, 300000000, works));
    CHECK(near(works[0], 0.27) && near(works[1], 0.54));
    CHECK(bench_windows_together(reports, 2, 0, works));
    CHECK(near(works[0], (30 * 0.9 + 70 * 0.27) / 100));
    works[0] = 7;
    reports[1].begin_ns = after(1800);
    CHECK(!bench_windows_together(reports, 2, 300000000, works));
    CHECK(near(works[0], 7));
}

TEST("a standstill is the longest time without a kernel's end from a death on")
{
    double windows[WINDOWS_MOST];
    struct bench_report report = load(windows, 100, 100, 0.5, 0);
    CHECK(near(bench_windows_gap_ms(&report, after(500)), 0));
    for (size_t i = 10; i < 30; i++) /* before it */
        windows[i] = 0;
    windows[60] = windows[70] = windows[71] = windows[72] = windows[99] = 0;
    CHECK(near(bench_windows_gap_ms(&report, after(500)), 30));
    CHECK(near(bench_windows_gap_ms(&report, after(715)), 10));
    CHECK(near(bench_windows_gap_ms(&report, after(0)), 200));
}

TEST("work between two times is of whole windows")
{
    double windows[WINDOWS_MOST];
    struct bench_report report = load(windows, 10, 5, 0.2, 0.6);
    CHECK_EQ(bench_report_end_ns(&report), after(100));
    CHECK(near(bench_report_between(&report, after(30), after(70)), 0.4));
    CHECK(near(bench_report_between(&report, after(31), after(69)), 0.4));
    CHECK(near(bench_report_between(&report, after(45), UINT64_MAX), 0.6));
    CHECK(bench_report_between(&report, after(45), after(54)) < 0);
    CHECK(bench_report_between(&report, after(100), UINT64_MAX) < 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
