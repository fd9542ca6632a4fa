/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML says of the processes on a card that two containers share: each list names the
 * container's own processes, and the questions of size agree with it. */
#include "abi/nvml.h"
#include "load.h"
#include "sim/machine/machine.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>

#define LIMIT "8GiB"
#define ROOM 64
#define UNTOUCHED 0xA5
/* Drivers that write the third lists' elements in 32 bytes, and the first that has version 2 of
 * accounting. */
#define LONG_LISTS "driver=535.54.03,cuda=12020"
#define NEW_DRIVER "driver=590.44.01,accounting"

/* One more process of the container, and one of another. */
struct peers {
    pid_t own, neighbour;
};

struct peer {
    bool is_neighbour, works;
    int pipes[2];
};

static void live(void *argument)
{
    struct peer *peer = argument;
    char path[300];
    snprintf(path, sizeof(path), "%s/other-region", bed_directory());
    if (peer->is_neighbour)
        setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    load_begin(0);
    for (int i = 0; peer->works && i < 4; i++)
        CHECK_EQ(load_launch(NULL, 200 * MS), CUDA_SUCCESS);
    (void)!write(peer->pipes[1], "x", 1);
    for (;;)
        pause();
}

static pid_t start(bool is_neighbour, bool works)
{
    struct peer peer = {.is_neighbour = is_neighbour, .works = works};
    char told;
    REQUIRE(pipe(peer.pipes) == 0);
    pid_t pid = bed_fork(live, &peer);
    close(peer.pipes[1]);
    REQUIRE(read(peer.pipes[0], &told, 1) == 1);
    return pid;
}

static struct peers begin(bool works)
{
    struct peers peers = {.own = start(false, works), .neighbour = start(true, works)};
    bed_context(0);
    return peers;
}

static nvmlDevice_t device(void)
{
    nvmlDevice_t handle = NULL;
    REQUIRE(ML(nvmlInit_v2)() == NVML_SUCCESS);
    REQUIRE(ML(nvmlDeviceGetHandleByIndex_v2)(0, &handle) == NVML_SUCCESS);
    return handle;
}

static bool is_own(const struct peers *peers, unsigned pid)
{
    return pid == (unsigned)getpid() || pid == (unsigned)peers->own;
}

static unsigned pid_at(const void *elements, size_t stride, size_t offset, unsigned i)
{
    unsigned pid;
    memcpy(&pid, (const char *)elements + i * stride + offset, sizeof(pid));
    return pid;
}

/* ---- the layout of process lists ---- */

static unsigned char list_bytes[ROOM * sizeof(nvmlProcessDetail_v1_t)];

static bool is_untouched(size_t from)
{
    for (size_t i = from; i < sizeof(list_bytes); i++) {
        if (list_bytes[i] != UNTOUCHED)
            return false;
    }
    return true;
}

/* Two processes, in elements of that length, and nothing behind them. */
static void check_third_list(const struct peers *peers, size_t stride)
{
    unsigned count = ROOM;
    memset(list_bytes, UNTOUCHED, sizeof(list_bytes));
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device(), &count, (void *)list_bytes),
        NVML_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK(is_own(peers, pid_at(list_bytes, stride, 0, 0)));
    CHECK(is_own(peers, pid_at(list_bytes, stride, 0, 1)));
    CHECK(is_untouched(2 * stride));
    CHECK(!is_untouched(2 * stride - 1));
}

BED_TEST("the third lists are laid out as today's drivers do", .limit = LIMIT,
    .sim = "driver=535.104.05,cuda=12020")
{
    struct peers peers = begin(false);
    check_third_list(&peers, sizeof(nvmlProcessInfo_t));
}

BED_TEST("the third lists are laid out as drivers 535.43 to 535.86 do", .limit = LIMIT,
    .sim = LONG_LISTS)
{
    struct peers peers = begin(false);
    check_third_list(&peers, sizeof(nvmlProcessDetail_v1_t));
}

BED_TEST("those drivers do so without the library", .native = true, .sim = LONG_LISTS)
{
    struct peers peers = {.own = start(false, false)};
    bed_context(0);
    check_third_list(&peers, sizeof(nvmlProcessDetail_v1_t));
}

BED_TEST("the second lists of those drivers are as ever", .limit = LIMIT, .sim = LONG_LISTS)
{
    struct peers peers = begin(false);
    nvmlProcessInfo_v2_t list[ROOM];
    unsigned count = ROOM;
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v2)(device(), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK(is_own(&peers, list[0].pid) && is_own(&peers, list[1].pid));
}

BED_TEST(
    "room without an array is the driver's to refuse", .limit = LIMIT, .sim = "accounting,video")
{
    nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .numProcArrayEntries = 5};
    unsigned count = 5;
    begin(false);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device(), &count, NULL),
        NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(
        ML(nvmlDeviceGetRunningProcessDetailList)(device(), &list), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(ML(nvmlDeviceGetAccountingPids)(device(), &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(ML(nvmlDeviceGetEncoderSessions)(device(), &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(ML(nvmlDeviceGetFBCSessions)(device(), &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(count, 5);
}

/* ---- records with a count and an array ---- */

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *count, void *elements);

struct list {
    list_function *ask;
    size_t stride, pid_offset;
    nvmlReturn_t asked; /* the answer to the question how many there are */
};

static const struct list *lists(void)
{
    static struct list all[3];
    all[0] = (struct list){(list_function *)(void *)ML(nvmlDeviceGetAccountingPids),
        sizeof(unsigned), 0, NVML_ERROR_INSUFFICIENT_SIZE};
    all[1] = (struct list){(list_function *)(void *)ML(nvmlDeviceGetEncoderSessions),
        sizeof(nvmlEncoderSessionInfo_t), offsetof(nvmlEncoderSessionInfo_t, pid), NVML_SUCCESS};
    all[2] = (struct list){(list_function *)(void *)ML(nvmlDeviceGetFBCSessions),
        sizeof(nvmlFBCSessionInfo_t), offsetof(nvmlFBCSessionInfo_t, pid), NVML_SUCCESS};
    return all;
}

static void check_names(const struct peers *peers, const struct list *list, unsigned expected)
{
    char elements[ROOM * sizeof(nvmlFBCSessionInfo_t)];
    unsigned count = ROOM;
    CHECK_EQ(list->ask(device(), &count, elements), NVML_SUCCESS);
    CHECK_EQ(count, expected);
    for (unsigned i = 0; i < count; i++)
        CHECK(is_own(peers, pid_at(elements, list->stride, list->pid_offset, i)));
}

BED_TEST("accounting and sessions name the container's processes, and no others", .limit = LIMIT,
    .sim = "accounting,video")
{
    struct peers peers = begin(false);
    for (int i = 0; i < 3; i++)
        check_names(&peers, &lists()[i], 2);
}

BED_TEST("without a limit accounting and sessions are the card's", .sim = "accounting,video")
{
    char elements[ROOM * sizeof(nvmlFBCSessionInfo_t)];
    begin(false);
    for (int i = 0; i < 3; i++) {
        unsigned count = ROOM;
        CHECK_EQ(lists()[i].ask(device(), &count, elements), NVML_SUCCESS);
        CHECK_EQ(count, 3);
    }
}

BED_TEST("the questions how many there are count the container's alone", .limit = LIMIT,
    .sim = "accounting,video")
{
    char elements[ROOM * sizeof(nvmlFBCSessionInfo_t)];
    begin(false);
    for (int i = 0; i < 3; i++) {
        const struct list *list = &lists()[i];
        unsigned count = 0;
        memset(elements, UNTOUCHED, sizeof(elements));
        CHECK_EQ(list->ask(device(), &count, NULL), list->asked);
        CHECK_EQ(count, 2);
        count = 1;
        CHECK_EQ(list->ask(device(), &count, elements), NVML_ERROR_INSUFFICIENT_SIZE);
        CHECK_EQ(count, 2);
        CHECK_EQ((unsigned char)elements[0], UNTOUCHED);
        CHECK_EQ(list->ask(device(), &count, elements), NVML_SUCCESS);
        CHECK_EQ(count, 2);
        CHECK_EQ((unsigned char)elements[2 * list->stride], UNTOUCHED);
        CHECK_EQ(list->ask(device(), NULL, elements), NVML_ERROR_INVALID_ARGUMENT);
    }
}

BED_TEST("a container without processes on the card is told of none", .limit = LIMIT,
    .sim = "accounting,video")
{
    start(true, false);
    for (int i = 0; i < 3; i++) {
        unsigned count = 0;
        CHECK_EQ(lists()[i].ask(device(), &count, NULL), NVML_SUCCESS);
        CHECK_EQ(count, 0);
    }
}

BED_TEST("a device whose limit cannot be kept shows nobody's accounting and sessions",
    .limit = LIMIT, .sim = "accounting,video",
    .environment = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/proc/self/nowhere/region"})
{
    char elements[ROOM * sizeof(nvmlFBCSessionInfo_t)];
    nvmlAccountingStats_t stats;
    pid_t neighbour = start(true, false);
    for (int i = 0; i < 3; i++) {
        unsigned count = ROOM;
        CHECK_EQ(lists()[i].ask(device(), &count, elements), NVML_SUCCESS);
        CHECK_EQ(count, 0);
    }
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)neighbour, &stats),
        NVML_ERROR_NOT_FOUND);
}

BED_TEST("what the driver does not keep is its own answer", .limit = LIMIT)
{
    unsigned count = ROOM, pids[ROOM];
    nvmlAccountingStats_t stats;
    begin(false);
    CHECK_EQ(ML(nvmlDeviceGetAccountingPids)(device(), &count, pids), NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)getpid(), &stats),
        NVML_ERROR_NOT_SUPPORTED);
}

/* ---- accounting of one process ---- */

BED_TEST("accounting of a neighbour is not found", .limit = LIMIT, .sim = "accounting")
{
    struct peers peers = begin(false);
    nvmlAccountingStats_t stats = {.reserved = {4711}};
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)peers.neighbour, &stats),
        NVML_ERROR_NOT_FOUND);
    CHECK_EQ(stats.reserved[0], 4711);
    CHECK_EQ(stats.maxMemoryUsage, 0);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)peers.own, &stats), NVML_SUCCESS);
    CHECK(stats.maxMemoryUsage > 0 && stats.isRunning);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)peers.own, NULL),
        NVML_ERROR_INVALID_ARGUMENT);
}

BED_TEST("nor is it in the second version", .limit = LIMIT, .sim = NEW_DRIVER)
{
    struct peers peers = begin(false);
    nvmlAccountingStats_v2_t stats = {.pid = (unsigned)peers.neighbour};
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats_v2)(device(), &stats), NVML_ERROR_NOT_FOUND);
    CHECK_EQ(stats.pid, peers.neighbour);
    CHECK_EQ(stats.maxMemoryUsage, 0);
    stats.pid = (unsigned)peers.own;
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats_v2)(device(), &stats), NVML_SUCCESS);
    CHECK(stats.maxMemoryUsage > 0 && stats.isRunning);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats_v2)(device(), NULL), NVML_ERROR_INVALID_ARGUMENT);
}

BED_TEST("a pid of another PID namespace is not taken for the same number in ours", .limit = LIMIT,
    .sim = "accounting,video")
{
    struct peers peers = begin(false);
    nvmlAccountingStats_t stats;
    struct vgpu_slot *slot = (struct vgpu_slot *)(uintptr_t)bed_region_slot(peers.own);
    REQUIRE(slot && bed_region_slot(getpid()));
    if (!bed_region_slot(getpid())->pid_namespace)
        SKIP("the PID namespace of a process is not told here");
    slot->pid_namespace++;
    for (int i = 0; i < 3; i++)
        check_names(&peers, &lists()[i], 1);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)peers.own, &stats),
        NVML_ERROR_NOT_FOUND);
}

static void live_below(void *argument)
{
    int *pipes = argument;
    REQUIRE(unshare(CLONE_NEWPID) == 0);
    pid_t child = fork();
    if (child) {
        (void)!write(pipes[1], &child, sizeof(child));
        _exit(bed_ended_well(child) ? 0 : 1);
    }
    struct peer peer = {.pipes = {pipes[0], pipes[1]}};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    live(&peer);
}

static bool may_unshare(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWPID) == 0 ? 0 : 1);
    return bed_ended_well(pid);
}

BED_TEST("a process of a PID namespace below is named by the caller's number", .limit = LIMIT,
    .sim = "accounting,video")
{
    int pipes[2];
    char words[512];
    struct peers peers = {0};
    nvmlProcessInfo_t infos[ROOM];
    nvmlAccountingStats_t stats;
    unsigned count = ROOM;
    if (!may_unshare())
        SKIP("no new PID namespace is permitted");
    REQUIRE(pipe(pipes) == 0);
    bed_fork(live_below, pipes);
    REQUIRE(read(pipes[0], &peers.own, sizeof(peers.own)) == sizeof(peers.own));
    REQUIRE(read(pipes[0], words, 1) == 1);
    snprintf(words, sizeof(words), "%s,nvml-pid=1:%d", getenv("VGPU_SIM"), (int)peers.own);
    setenv("VGPU_SIM", words, 1);
    start(true, false);
    bed_context(0);
    for (int i = 0; i < 3; i++)
        check_names(&peers, &lists()[i], 2);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device(), &count, infos), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK(is_own(&peers, infos[0].pid) && is_own(&peers, infos[1].pid));
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), (unsigned)peers.own, &stats), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetAccountingStats)(device(), 1, &stats), NVML_ERROR_NOT_FOUND);
}

/* ---- utilisation ---- */

/* Until the card has a sample of the process. */
static void wait_for_sample(pid_t pid)
{
    struct sim_sample samples[SIM_SAMPLES_MAX];
    REQUIRE(sim_attach() == 0);
    for (int tries = 0; tries < 6000; tries++, bed_sleep_ms(10)) {
        unsigned count = sim_device_samples(0, 0, false, samples);
        for (unsigned i = 0; i < count; i++) {
            if (samples[i].pid == pid)
                return;
        }
    }
    REQUIRE(!"no sample of the process");
}

BED_TEST(
    "samples of utilisation are of the container's processes, and of no others", .limit = LIMIT)
{
    nvmlProcessUtilizationSample_t samples[2 * SIM_SAMPLES_MAX];
    nvmlProcessUtilizationInfo_v1_t infos[2 * SIM_SAMPLES_MAX];
    nvmlProcessesUtilizationInfo_t list = {.version = nvmlProcessesUtilizationInfo_v1,
        .processSamplesCount = 2 * SIM_SAMPLES_MAX,
        .procUtilArray = infos};
    unsigned count = 2 * SIM_SAMPLES_MAX;
    struct peers peers = begin(true);
    wait_for_sample(peers.own);
    wait_for_sample(peers.neighbour);
    CHECK_EQ(ML(nvmlDeviceGetProcessUtilization)(device(), samples, &count, 0), NVML_SUCCESS);
    CHECK(count > 0);
    for (unsigned i = 0; i < count; i++)
        CHECK(is_own(&peers, samples[i].pid));
    CHECK_EQ(ML(nvmlDeviceGetProcessesUtilizationInfo)(device(), &list), NVML_SUCCESS);
    CHECK(list.processSamplesCount > 0);
    for (unsigned i = 0; i < list.processSamplesCount; i++)
        CHECK(is_own(&peers, infos[i].pid));
}

BED_TEST("where a neighbour alone has worked no sample is found", .limit = LIMIT)
{
    nvmlProcessUtilizationSample_t samples[2 * SIM_SAMPLES_MAX];
    unsigned count = 2 * SIM_SAMPLES_MAX;
    wait_for_sample(start(true, true));
    bed_context(0);
    CHECK_EQ(
        ML(nvmlDeviceGetProcessUtilization)(device(), samples, &count, 0), NVML_ERROR_NOT_FOUND);
    CHECK_EQ(count, 0);
}

BED_TEST("a version that the driver does not know is its own to refuse", .limit = LIMIT)
{
    nvmlProcessesUtilizationInfo_t utilisation = {.version = 77};
    nvmlProcessDetailList_t list = {.version = 77};
    CHECK_EQ(ML(nvmlDeviceGetProcessesUtilizationInfo)(device(), &utilisation),
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK_EQ(ML(nvmlDeviceGetRunningProcessDetailList)(device(), &list),
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK_EQ(
        ML(nvmlDeviceGetProcessesUtilizationInfo)(device(), NULL), NVML_ERROR_INVALID_ARGUMENT);
}

/* ---- confidential computing ---- */

BED_TEST("protected memory is the slice's", .limit = LIMIT, .sim = "confidential")
{
    nvmlConfComputeMemSizeInfo_t sizes;
    nvmlMemory_t memory;
    begin(false);
    CHECK_EQ(ML(nvmlDeviceGetConfComputeMemSizeInfo)(device(), &sizes), NVML_SUCCESS);
    CHECK_EQ(sizes.protectedMemSizeKib, 8 * GIB >> 10);
    CHECK_EQ(sizes.unprotectedMemSizeKib, 0);
    CHECK_EQ(ML(nvmlDeviceGetConfComputeProtectedMemoryUsage)(device(), &memory), NVML_SUCCESS);
    CHECK_EQ(memory.total, 8 * GIB);
    CHECK_EQ(memory.used, bed_region_bytes(0));
    CHECK_EQ(memory.free, 8 * GIB - memory.used);
}

BED_TEST("where nothing is protected none of the slice is", .limit = LIMIT)
{
    nvmlConfComputeMemSizeInfo_t sizes;
    nvmlMemory_t memory = {1, 1, 1};
    CHECK_EQ(ML(nvmlDeviceGetConfComputeMemSizeInfo)(device(), &sizes), NVML_SUCCESS);
    CHECK_EQ(sizes.protectedMemSizeKib, 0);
    CHECK_EQ(sizes.unprotectedMemSizeKib, 8 * GIB >> 10);
    CHECK_EQ(ML(nvmlDeviceGetConfComputeProtectedMemoryUsage)(device(), &memory), NVML_SUCCESS);
    CHECK_EQ(memory.total + memory.used + memory.free, 0);
    CHECK_EQ(ML(nvmlDeviceGetConfComputeMemSizeInfo)(device(), NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(ML(nvmlDeviceGetConfComputeProtectedMemoryUsage)(device(), NULL),
        NVML_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
