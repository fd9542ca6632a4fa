/* SPDX-License-Identifier: Apache-2.0 */
/* A container on two GPUs: its windows open and close together over its devices and processes. */
#include "world.h"

#define SETTLE_MS 1000
#define WATCH_MS 3000

struct overlap {
    unsigned both, one, none; /* looks at which so many of the two were closed */
};

static struct overlap overlap_of(const struct trace *trace)
{
    struct overlap overlap = {0};
    for (unsigned i = 0; i < trace->count; i++) {
        unsigned closed = trace->looks[i].stopped[0][0] + trace->looks[i].stopped[1][1];
        overlap.both += closed == 2;
        overlap.one += closed == 1;
        overlap.none += closed == 0;
    }
    printf("# of %u looks: %u closed, %u half, %u open\n", trace->count, overlap.both, overlap.one,
        overlap.none);
    fflush(stdout);
    return overlap;
}

static void check_together(const char *cores, const char *cores_second, double first, double second)
{
    struct tenant tenants[2];
    double together = 0;
    world_begin("2xh200");
    tenants[0] = tenant_start(&(struct tenant_how){.cores = cores,
        .cores_second = cores_second,
        .load = "--shape persistent --seconds 40 --device 0"});
    tenant_until_busy(&tenants[0]);
    tenants[1] = tenant_start(&(struct tenant_how){.cores = cores,
        .cores_second = cores_second,
        .joins = tenants[0].region,
        .load = "--shape persistent --seconds 40 --device 1"});
    tenant_until_busy(&tenants[1]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    for (unsigned try = 0; try < 3 && together < 0.9; try++) {
        struct trace trace = world_watch(tenants, 2, WATCH_MS);
        struct overlap overlap = overlap_of(&trace);
        double share[2] = {trace_share_all(&trace, 0), trace_share_all(&trace, 1)};
        printf("# %.3f of %.2f, %.3f of %.2f\n", share[0], first, share[1], second);
        fflush(stdout);
        /* Of the time in which one is closed, the other is closed, too. */
        together = (double)overlap.both / (double)(overlap.both + overlap.one + 1);
        CHECK(share[0] <= first + 0.03 && share[1] <= second + 0.03);
        CHECK(share[0] >= 0.2 && share[1] >= 0.2);
    }
    CHECK(together >= 0.9);
    for (unsigned i = 0; i < 2; i++)
        tenant_kill(&tenants[i]);
}

TEST("windows of two devices and two processes open and close together")
{
    check_together("50", NULL, 0.5, 0.5);
}

TEST("with limits that differ they do as the smaller says")
{
    check_together("30", "60", 0.3, 0.6);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
