/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed at each instruction in turn between the doors and the region's words: its
 * peers go on, and the account is what the living hold. */
#include "allocate.h"
#include "bed.h"
#include "stepper.h"

#include <dlfcn.h>
#include <poll.h>

#define LIMIT "4GiB" /* contexts take 520 MiB by the API ledger */
#define LIMIT_BYTES (4 * GIB)
#define SIZE (64 * MIB)
#define BLOCK (2 * MIB)
#define REPEATS 3 /* of an instruction in a loop, and then its 4th, 8th, 16th ... time */
#define HANG_MS 20000
#define SECONDS_MAX 15 /* where the machine is slow, what is left is left out */

/* What the process does before it is watched, and then. */
struct scene {
    void (*prepare)(void);
    void (*act)(void);
    void (*before)(void); /* in the parent, before each */
    unsigned every;       /* of the instructions outside of src/region */
    bool own_region;      /* made by the process itself; its peers come afterwards */
};

static struct stepper_trace *trace;
static unsigned short seen[1 << 20]; /* how often an instruction has come so far */
static int to_witness[2], from_witness[2];
static CUdeviceptr pointer;

/* Exactly what is left can be had, and no more; the dead hold nothing. */
static void check_container(void)
{
    size_t free, total;
    CUdeviceptr all = 0, more;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    uint64_t own = allocation_charged();
    CHECK_EQ(bed_region_bytes(0), own);
    CHECK(bed_card_bytes(0) <= own);
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(bed_card_bytes(0), own);
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, LIMIT_BYTES - own + BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&all, LIMIT_BYTES - own), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocManaged)(&more, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(all), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), own);
    CHECK(bed_region()->slot_high <= 4); /* the dead one's slot is claimed by the next */
}

static void witness(void *argument)
{
    char order;
    (void)argument;
    bed_context(0);
    while (read(to_witness[0], &order, 1) == 1) {
        if (order == 'c')
            check_container();
        REQUIRE(write(from_witness[1], &order, 1) == 1);
    }
}

static void ask_witness(char order)
{
    struct pollfd answer = {.fd = from_witness[0], .events = POLLIN};
    REQUIRE(write(to_witness[1], &order, 1) == 1);
    REQUIRE(poll(&answer, 1, HANG_MS) == 1);
    REQUIRE(read(from_witness[0], &order, 1) == 1);
}

static void enter_alone(void *argument)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", argument, 1);
    bed_context(0);
    check_container();
}

static char *own_path(void)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/own", bed_directory());
    return path;
}

/* occurrence 0: records instead. Returns the process's wait status. */
static int run_once(const struct scene *scene, uintptr_t step, unsigned occurrence)
{
    void *doors[] = {dlsym(RTLD_DEFAULT, "ioctl"), bed_cuda("cuInit"), bed_cuda("cuMemAlloc_v2"),
        bed_cuda("cuMemFree_v2"), bed_cuda("cuMemAllocManaged"),
        bed_cuda("cuDevicePrimaryCtxRetain"), bed_cuda("cuMemGetInfo_v2"), NULL};
    int status = -1;
    if (scene->before)
        scene->before();
    pid_t pid = fork();
    if (pid == 0) {
        if (scene->own_region)
            setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", own_path(), 1);
        if (scene->prepare)
            scene->prepare();
        if (occurrence)
            stepper_kill_at(step, occurrence);
        else
            stepper_record(doors, trace);
        scene->act();
        stepper_stop();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status;
}

static void check_after(const struct scene *scene)
{
    if (!scene->own_region) {
        ask_witness('c');
        return;
    }
    CHECK(bed_ended_well(bed_fork(enter_alone, own_path())));
    unlink(own_path());
}

static bool is_chosen(
    const struct scene *scene, uintptr_t step, unsigned occurrence, unsigned *others)
{
    bool is_early = occurrence <= REPEATS || !(occurrence & (occurrence - 1));
    return is_early && (stepper_is_region(step) || (*others)++ % scene->every == 0);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void play(const struct scene *scene)
{
    unsigned killed = 0, missed = 0, chosen = 0, in_region = 0, others = 0;
    double start = seconds();
    const char *reason = stepper_prepare();
    if (reason)
        SKIP(reason);
    trace = mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(trace != MAP_FAILED && pipe(to_witness) == 0 && pipe(from_witness) == 0);
    pid_t peer = scene->own_region ? 0 : bed_fork(witness, NULL);
    if (peer)
        ask_witness('h');
    REQUIRE(run_once(scene, 0, 0) == 0);
    check_after(scene);
    uintptr_t lowest = UINTPTR_MAX;
    for (unsigned i = 0; i < trace->count; i++)
        lowest = trace->steps[i] < lowest ? trace->steps[i] : lowest;
    for (unsigned i = 0; i < trace->count && check_shared->failures == 0; i++) {
        uintptr_t step = trace->steps[i];
        if (!is_chosen(scene, step, ++seen[step - lowest], &others))
            continue;
        chosen++;
        if (seconds() - start > SECONDS_MAX)
            continue;
        int status = run_once(scene, step, seen[step - lowest]);
        bool hit = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(hit || status == 0);
        killed += hit;
        missed += !hit;
        in_region += hit && stepper_is_region(step);
        check_after(scene);
        if (check_shared->failures)
            dprintf(STDOUT_FILENO, "# at instruction %u: %#lx of the first at %#lx\n", i,
                (unsigned long)step, (unsigned long)lowest);
    }
    dprintf(STDOUT_FILENO,
        "# %u instructions; %u chosen, killed at %u (%u in src/region), %u not met; %.1f s\n",
        trace->count, chosen, killed, in_region, missed, seconds() - start);
    CHECK(trace->count > 100);
    CHECK(killed > 20);
    CHECK(missed <= killed / 4);
    if (peer)
        kill(peer, SIGKILL);
}

static void have_context(void)
{
    bed_context(0);
}

static void have_memory(void)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
}

static void allocate(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
}

static void allocate_managed(void)
{
    CHECK_EQ(CU(cuMemAllocManaged)(&pointer, SIZE, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
}

static void allocate_too_much(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES - BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
}

static void release(void)
{
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

static void enter(void)
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
}

BED_TEST("killed at each instruction of a linear allocation", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate, .every = 1});
}

BED_TEST("killed at each instruction of a cuMemFree", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_memory, .act = release, .every = 1});
}

BED_TEST(
    "killed at each instruction of a refused cuMemAlloc", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate_too_much, .every = 1});
}

BED_TEST("killed at each instruction of a managed one", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate_managed, .every = 1});
}

BED_TEST("killed at each instruction of the first entry", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.act = enter, .every = 17});
}

BED_TEST("killed at each instruction of an entry that makes the region", .limit = LIMIT,
    .sim = "context=2MiB")
{
    play(&(struct scene){.act = enter, .every = 37, .own_region = true});
}

static void hold_much(void *argument)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(argument, LIMIT_BYTES / 2) == CUDA_SUCCESS);
    kill(getpid(), SIGKILL);
}

static void leave_a_dead_peer(void)
{
    waitpid(bed_fork(hold_much, &pointer), NULL, 0);
}

static void allocate_much(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES / 8 * 5), CUDA_SUCCESS);
}

BED_TEST("killed at each instruction of an allocation in a dead peer's place", .limit = LIMIT,
    .sim = "context=2MiB")
{
    play(&(struct scene){
        .prepare = have_context, .act = allocate_much, .before = leave_a_dead_peer, .every = 5});
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
