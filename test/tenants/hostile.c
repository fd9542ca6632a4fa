/* SPDX-License-Identifier: Apache-2.0 */
/* A board full of lies: limits hold, and nobody is stopped for good. */
#include "world.h"

#include "vgpu/board.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>

#define WATCH_MS 2000

static unsigned settle_ms = 700;

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* By which a board is known as one: who finds another there leaves it as it is, and has none. */
#define HEAD_BYTES offsetof(struct vgpu_board, slot_high)

enum lie { RANDOM_BYTES, ALL_ACTIVE, IN_THE_FUTURE, ALL_SATURATING };

/* One slot that is nobody's. */
static void claim(struct vgpu_board_slot *slot, unsigned number, enum lie lie)
{
    uint64_t now = monotonic_ns(), time = lie == IN_THE_FUTURE ? now + 900 * MS : now;
    slot->tenant = 0x1111111111111111ull * (number + 1);
    slot->priority = 0;
    slot->core_limit = 100;
    slot->flags = lie == ALL_SATURATING ? VGPU_BOARD_HEAVY : 0;
    slot->busy_ns += 5 * MS;
    slot->since_ns = slot->wants_ns = time;
    slot->active_ns = time;
}

static void lie_once(struct vgpu_board *board, enum lie lie, unsigned *seed)
{
    if (lie == RANDOM_BYTES) {
        for (unsigned i = 0; i < 64; i++) {
            unsigned at = HEAD_BYTES + (unsigned)rand_r(seed) % (sizeof(*board) - HEAD_BYTES);
            ((volatile unsigned char *)board)[at] = (unsigned char)rand_r(seed);
        }
        return;
    }
    board->slot_high = VGPU_BOARD_SLOTS;
    for (unsigned i = 8; i < VGPU_BOARD_SLOTS; i++)
        claim(&board->slots[i], i, lie);
}

static pid_t liar_start(enum lie lie)
{
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid)
        return pid;
    struct vgpu_board *board = world_board();
    unsigned seed = 12345;
    for (;;) {
        lie_once(board, lie, &seed);
        usleep(3000);
    }
}

/* So little is for one of them at a time. */
#define TOGETHER 0.001

/* Limits, 0: nobody; from the start on, where kernels are not known yet. */
static void check_limits(const struct tenant_how *hows, const double *limits, unsigned count,
    enum lie lie, unsigned watch_ms, double least)
{
    struct tenant tenants[TENANTS_MAX], first;
    double all = 0;
    world_begin("1xh200");
    /* Makes the board, and is gone. */
    first = tenant_start(&(struct tenant_how){.cores = "50"});
    tenant_until_busy(&first);
    usleep(200000);
    tenant_kill(&first);
    pid_t liar = liar_start(lie);
    for (unsigned i = 0; i < count; i++)
        tenants[i] = tenant_start(&hows[i]);
    for (unsigned i = 0; i < count; i++)
        tenant_until_busy(&tenants[i]);
    (void)world_watch(tenants, count, settle_ms);
    struct trace trace = world_watch(tenants, count, watch_ms);
    for (unsigned i = 0; i < count; i++) {
        double share = trace_share_all(&trace, i);
        printf("# lie %d, tenant %u: %.3f of %.2f\n", (int)lie, i, share, limits[i]);
        fflush(stdout);
        CHECK(share <= limits[i] + 0.02);
        CHECK(least < TOGETHER || share >= least * limits[i]);
        all += share;
    }
    CHECK(all >= least * limits[0]);
    kill(liar, SIGKILL);
    waitpid(liar, NULL, 0);
    /* When nobody lies any more, all have what is theirs. */
    (void)world_watch(tenants, count, 1000);
    double best = 1;
    for (unsigned try = 0; try < 3 && best > 0.03; try++) {
        double worst = 0;
        trace = world_watch(tenants, count, WATCH_MS);
        for (unsigned i = 0; i < count; i++) {
            double off = trace_share_all(&trace, i) - limits[i];
            worst = off > worst ? off : -off > worst ? -off : worst;
        }
        best = worst < best ? worst : best;
    }
    printf("# afterwards within %.3f\n", best);
    fflush(stdout);
    CHECK(best <= 0.03);
    for (unsigned i = 0; i < count; i++)
        tenant_kill(&tenants[i]);
}

static const struct tenant_how plain[] = {
    {.cores = "30", .priority = "0"}, {.cores = "50", .priority = "0"}};
static const double limits[] = {0.3, 0.5};

TEST("a board of random bytes that change all the time lets no tenant pass its limit")
{
    check_limits(plain, limits, 2, RANDOM_BYTES, WATCH_MS, 0.01);
}

TEST("118 tenants that do not exist let no tenant pass its limit")
{
    check_limits(plain, limits, 2, ALL_ACTIVE, WATCH_MS, 0.5);
}

TEST("nor do 118 that claim to use the GPU all the time")
{
    check_limits(plain, limits, 2, ALL_SATURATING, WATCH_MS, 0.5);
}

TEST("nor do they lift the limit of kernels that last many time slices")
{
    const struct tenant_how how = {.cores = "30", .priority = "0", .load = "--kernel-us 50000"};
    const double limit = 0.3;
    settle_ms = 4000; /* four of them, in time slices that are extended */
    check_limits(&how, &limit, 1, ALL_SATURATING, 4000, 0.5);
}

TEST("nor that of a kernel that never ends, by more time than there is")
{
    const struct tenant_how how = {
        .cores = "30", .priority = "0", .load = "--shape persistent --seconds 60"};
    const double limit = 0.3;
    settle_ms = 5000;
    check_limits(&how, &limit, 1, ALL_SATURATING, 6000, 0.5);
}

TEST("tenants that claim to work in the future let no tenant pass its limit")
{
    check_limits(plain, limits, 2, IN_THE_FUTURE, WATCH_MS, 0.5);
}

TEST("claims of a higher priority stop nobody for good")
{
    const struct tenant_how low[] = {
        {.cores = "30", .priority = "1"}, {.cores = "50", .priority = "1"}};
    /* 20 ms after each 4 s, which 118 claims share with them: a few kernels in 20 s. */
    check_limits(low, limits, 2, ALL_ACTIVE, 20000, 0.00005);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
