/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated machine's timeline: who runs when, and what streams, events and NVML say of it. All
 * figures are the machine's own, read at one instant of its time, so that a loaded computer, on
 * which looks come late, changes none of them. */
#include "program.h"

#include "abi/rm.h"
#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include "check.h"

#define MS 1000000ull
#define SLICE_NS 2048000ull
#define SWITCH_NS 185000ull
#define NEVER UINT64_MAX

static int64_t elapsed_us(CUevent from, CUevent to)
{
    float ms = 0;
    DRIVER_CALL(driver.cuEventElapsedTime(&ms, from, to));
    return (int64_t)((double)ms * 1000 + 0.5);
}

/* The compute group of a process, as the machine has it. */
static uint32_t compute_group(pid_t pid)
{
    for (uint32_t i = 0; i < sim_machine->timeline.groups_end; i++) {
        const struct sim_group *group = &sim_machine->timeline.groups[i];
        if (group->live && group->pid == pid)
            return i;
    }
    return SIM_NONE;
}

/* Controls as the process' own, on a descriptor of its own. */
static uint32_t control(uint32_t client, uint32_t object, uint32_t cmd, void *params, size_t size)
{
    static int fd = -1;
    struct rm_control form = {.client = client,
        .object = object,
        .cmd = cmd,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = (uint32_t)size};
    if (fd < 0)
        fd = sim_rm_open();
    REQUIRE(fd >= 0 && sim_rm_execute(fd, RM_IOCTL_CONTROL, &form) == 0);
    return form.status;
}

struct handles {
    uint32_t client;
    uint32_t group;
    uint32_t subdevice;
    uint32_t channels[RM_DISABLE_CHANNELS_MAX];
    uint32_t count;
};

static struct handles own_handles(void)
{
    struct handles found = {0};
    sim_lock();
    uint32_t index = compute_group(getpid());
    REQUIRE(index != SIM_NONE);
    uint32_t group = sim_machine->timeline.groups[index].object;
    const struct sim_object *objects = sim_machine->objects;
    uint32_t client = objects[group].client;
    found.client = sim_machine->clients[client].handle;
    found.group = objects[group].handle;
    for (uint32_t i = 0; i < sim_machine->objects_end; i++) {
        if (!objects[i].live || objects[i].client != client)
            continue;
        if (objects[i].class_id == RM_CLASS_SUBDEVICE)
            found.subdevice = objects[i].handle;
        if (objects[i].parent == group)
            found.channels[found.count++] = objects[i].handle;
    }
    sim_unlock();
    return found;
}

static uint32_t channels_switch(bool disable)
{
    struct handles own = own_handles();
    struct rm_disable_channels params = {.disable = disable, .count = own.count};
    for (uint32_t i = 0; i < own.count; i++) {
        params.clients[i] = own.client;
        params.channels[i] = own.channels[i];
    }
    return control(
        own.client, own.subdevice, RM_CTRL_FIFO_DISABLE_CHANNELS, &params, sizeof(params));
}

static void slice_set(uint64_t us)
{
    struct handles own = own_handles();
    struct rm_timeslice params = {us};
    CHECK_EQ(control(own.client, own.group, RM_CTRL_SET_TIMESLICE, &params, sizeof(params)), RM_OK);
    params.timeslice_us = 0;
    CHECK_EQ(control(own.client, own.group, RM_CTRL_GET_TIMESLICE, &params, sizeof(params)), RM_OK);
    CHECK_EQ(params.timeslice_us, us);
}

/* ---- peers: programs that do as they are told, a letter at a time ---- */
struct peer {
    pid_t pid;
    int to;
    int from;
};

/* Kernels, copies, events and waits on two streams, without end. */
__attribute__((noreturn)) static void work_on(CUdeviceptr memory)
{
    CUstream streams[2] = {stream_new(), stream_new()};
    CUevent events[2] = {event_new(), event_new()};
    for (unsigned i = 0;; i++) {
        launch(streams[i % 2], 10000);
        DRIVER_CALL(driver.cuMemcpyDtoDAsync_v2(memory, memory + 512, 512, streams[i % 2]));
        DRIVER_CALL(driver.cuEventRecord(events[i % 2], streams[i % 2]));
        DRIVER_CALL(driver.cuStreamWaitEvent(streams[(i + 1) % 2], events[i % 2], 0));
        if (i % 256 == 255)
            DRIVER_CALL(driver.cuStreamSynchronize(streams[0]));
        for (unsigned look = 0; look < 50; look++)
            (void)driver.cuEventQuery(events[(i + 1) % 2]);
    }
}

/* p: a kernel that never ends; d, e: disable and enable; digits: slices of so many ms; w: work. */
static void peer_serve(int from, int to)
{
    char letter;
    CUdeviceptr memory;
    program_begin();
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&memory, 1024));
    do {
        letter = 'r';
        if (write(to, &letter, 1) != 1 || read(from, &letter, 1) != 1)
            _exit(0);
        if (letter == 'p')
            launch(stream, NEVER);
        else if (letter == 'd' || letter == 'e')
            CHECK_EQ(channels_switch(letter == 'd'), RM_OK);
        else if (letter == 'w')
            work_on(memory);
        else
            slice_set((uint64_t)(letter - '0') * 1000);
    } while (true);
}

static void peer_ready(const struct peer *peer)
{
    char letter = 0;
    REQUIRE(read(peer->from, &letter, 1) == 1);
}

static struct peer peer_start(void)
{
    int down[2], up[2];
    REQUIRE(pipe(down) == 0 && pipe(up) == 0);
    struct peer peer = {.pid = fork(), .to = down[1], .from = up[0]};
    REQUIRE(peer.pid >= 0);
    if (peer.pid == 0) {
        close(down[1]);
        peer_serve(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    peer_ready(&peer);
    return peer;
}

static void peer_send(const struct peer *peer, char letter)
{
    REQUIRE(write(peer->to, &letter, 1) == 1);
}

static void peer_tell(const struct peer *peer, char letter)
{
    peer_send(peer, letter);
    peer_ready(peer);
}

static void peer_kill(const struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
    close(peer->to);
    close(peer->from);
}

/* ---- what the machine says, at one instant ---- */
struct instant {
    uint64_t now_ns;
    uint64_t busy_ns[3];
};

static uint64_t busy_of(pid_t pid)
{
    uint32_t group = compute_group(pid);
    return group == SIM_NONE
               ? 0
               : sim_machine->slots[sim_machine->timeline.groups[group].slot].busy_ns[0];
}

static struct instant instant_of(const struct peer *peers, unsigned count)
{
    struct instant at = {0};
    sim_lock();
    sim_timeline_look_locked();
    at.now_ns = sim_machine->timeline.now_ns;
    for (unsigned i = 0; i < count; i++)
        at.busy_ns[i] = busy_of(peers[i].pid);
    sim_unlock();
    return at;
}

/* Thousandths of the time in which the peer's kernels ran. */
static void shares_over(unsigned ms, const struct peer *peers, unsigned count, int *ret_shares)
{
    struct instant from = instant_of(peers, count);
    nap_ms(ms);
    struct instant to = instant_of(peers, count);
    for (unsigned i = 0; i < count; i++)
        ret_shares[i] = (int)((to.busy_ns[i] - from.busy_ns[i]) * 1000 / (to.now_ns - from.now_ns));
}

static bool about(int got, int wanted, int tolerance)
{
    if (got >= wanted - tolerance && got <= wanted + tolerance)
        return true;
    dprintf(STDOUT_FILENO, "# %d is not %d, within %d\n", got, wanted, tolerance);
    return false;
}

static uint64_t own_busy_ns(void)
{
    const struct peer own = {.pid = getpid()};
    return instant_of(&own, 1).busy_ns[0];
}

TEST("two busy processes get half each of 0.917 of the GPU, of 0.98 with slices of 9 ms")
{
    int shares[2];
    begin("");
    struct peer peers[2] = {peer_start(), peer_start()};
    for (int i = 0; i < 2; i++)
        peer_tell(&peers[i], 'p');
    shares_over(400, peers, 2, shares);
    CHECK(about(shares[0] + shares[1], 917, 10));
    CHECK(about(shares[0], 458, 15));
    for (int i = 0; i < 2; i++)
        peer_tell(&peers[i], '9');
    shares_over(600, peers, 2, shares);
    CHECK(about(shares[0] + shares[1], 980, 8));
    CHECK(about(shares[0], 490, 25));
}

TEST("three busy processes share by their time slices")
{
    int shares[3];
    begin("");
    struct peer peers[3] = {peer_start(), peer_start(), peer_start()};
    for (int i = 0; i < 3; i++) {
        peer_tell(&peers[i], "136"[i]);
        peer_tell(&peers[i], 'p');
    }
    shares_over(500, peers, 3, shares);
    /* of 10 ms and three switches */
    CHECK(about(shares[0], 95, 15));
    CHECK(about(shares[1], 284, 20));
    CHECK(about(shares[2], 568, 25));
}

TEST("a persistent kernel whose channels are disabled does not run, and goes on when enabled")
{
    begin("");
    struct peer peer = peer_start();
    peer_tell(&peer, 'p');
    peer_tell(&peer, 'd');
    struct instant from = instant_of(&peer, 1);
    nap_ms(30);
    struct instant to = instant_of(&peer, 1);
    CHECK_EQ(to.busy_ns[0] - from.busy_ns[0], 0);
    CHECK(from.busy_ns[0] > 0);
    uint64_t before_ns = sim_clock_ns();
    peer_tell(&peer, 'e');
    from = instant_of(&peer, 1);
    CHECK(from.now_ns - before_ns >= from.busy_ns[0] - to.busy_ns[0] + SWITCH_NS);
    nap_ms(2); /* it turns to the group by now */
    from = instant_of(&peer, 1);
    nap_ms(30);
    to = instant_of(&peer, 1);
    CHECK_EQ(to.busy_ns[0] - from.busy_ns[0], to.now_ns - from.now_ns);
}

TEST("a disabled process leaves the whole GPU to the other")
{
    int shares[2];
    begin("");
    struct peer peers[2] = {peer_start(), peer_start()};
    for (int i = 0; i < 2; i++)
        peer_tell(&peers[i], 'p');
    peer_tell(&peers[0], 'd');
    nap_ms(5);
    shares_over(50, peers, 2, shares);
    CHECK_EQ(shares[0], 0);
    CHECK_EQ(shares[1], 1000);
}

TEST("a killed process' time goes to the other")
{
    int shares[2];
    begin("");
    struct peer peers[2] = {peer_start(), peer_start()};
    for (int i = 0; i < 2; i++)
        peer_tell(&peers[i], 'p');
    nap_ms(20);
    peer_kill(&peers[1]);
    nap_ms(10);
    (void)instant_of(peers, 1);
    nap_ms(5);
    shares_over(50, peers, 1, shares);
    CHECK_EQ(shares[0], 1000);
}

TEST("event times are exact however late they are asked for")
{
    begin("");
    program_begin();
    CUstream stream = stream_new();
    /* Nothing starts before all is queued. */
    REQUIRE(channels_switch(true) == RM_OK);
    launch(stream, 1 * MS);
    CUevent first = record(stream);
    launch(stream, 1500000);
    CUevent second = record(stream);
    launch(stream, 20000);
    launch(stream, 30000);
    CUevent third = record(stream);
    CHECK_EQ(driver.cuEventQuery(first), CUDA_ERROR_NOT_READY);
    float ms;
    CHECK_EQ(driver.cuEventElapsedTime(&ms, first, third), CUDA_ERROR_NOT_READY);
    REQUIRE(channels_switch(false) == RM_OK);
    nap_ms(20);
    CHECK_EQ(driver.cuEventQuery(third), CUDA_SUCCESS);
    CHECK_EQ(elapsed_us(first, second), 1500);
    CHECK_EQ(elapsed_us(second, third), 50);
    CHECK_EQ(elapsed_us(first, third), 1550);
    CHECK_EQ(own_busy_ns(), 2550000);
}

TEST("an event recorded again stands for the later work alone")
{
    begin("");
    program_begin();
    CUstream stream = stream_new();
    REQUIRE(channels_switch(true) == RM_OK);
    launch(stream, 1000);
    CUevent first = record(stream);
    launch(stream, 1 * MS);
    CUevent again = record(stream);
    launch(stream, 2 * MS);
    DRIVER_CALL(driver.cuEventRecord(again, stream));
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuEventSynchronize(again));
    CHECK_EQ(elapsed_us(first, again), 3000);
}

TEST("a kernel longer than the slice is preempted, and its events show for how long")
{
    begin("");
    struct peer peer = peer_start();
    program_begin();
    CUstream stream = stream_new();
    REQUIRE(channels_switch(true) == RM_OK);
    launch(stream, 1000);
    CUevent from = record(stream);
    launch(stream, 20 * MS);
    CUevent to = record(stream);
    peer_tell(&peer, 'p');
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuEventSynchronize(to));
    /* The first slice has 2,047 µs left for it; nine others follow, each after one of the peer's.
     */
    CHECK_EQ(elapsed_us(from, to), (int64_t)(20 * MS + 9 * (SLICE_NS + 2 * SWITCH_NS)) / 1000);
}

/* Of a process that does nothing else, while another has the GPU. */
static int64_t mark_and_launch_us(CUstream stream, uint64_t duration_ns)
{
    CUevent from = record(stream);
    launch(stream, duration_ns);
    CUevent to = record(stream);
    DRIVER_CALL(driver.cuEventSynchronize(to));
    return elapsed_us(from, to);
}

TEST("an event on an idle stream waits for its process' turn, and the launch behind it comes then")
{
    begin("");
    struct peer peer = peer_start();
    program_begin();
    CUstream stream = stream_new();
    int64_t least_us = INT64_MAX;
    (void)mark_and_launch_us(stream, 500000);
    peer_tell(&peer, 'p');
    /* A thread that is kept from running in between comes a turn too late. */
    for (unsigned i = 0; i < 20 && least_us > 500; i++) {
        int64_t took_us = mark_and_launch_us(stream, 500000);
        least_us = took_us < least_us ? took_us : least_us;
        nap_ms(3);
    }
    CHECK_EQ(least_us, 500);
}

TEST("an event of a process whose channels are disabled waits until they are enabled")
{
    begin("");
    program_begin();
    CUstream stream = stream_new();
    launch(stream, 1000);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    REQUIRE(channels_switch(true) == RM_OK);
    CUevent event = record(stream);
    nap_ms(2);
    CHECK_EQ(driver.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuEventSynchronize(event));
}

TEST("a stream that waits for an event goes on when that is done")
{
    begin("");
    program_begin();
    CUstream one = stream_new();
    CUstream two = stream_new();
    REQUIRE(channels_switch(true) == RM_OK);
    launch(one, 3 * MS);
    CUevent done = record(one);
    DRIVER_CALL(driver.cuStreamWaitEvent(two, done, 0));
    CUevent waited = record(two);
    launch(two, 1 * MS);
    CUevent after = record(two);
    CHECK_EQ(driver.cuStreamQuery(two), CUDA_ERROR_NOT_READY);
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuStreamSynchronize(two));
    CHECK_EQ(elapsed_us(done, waited), 0);
    CHECK_EQ(elapsed_us(done, after), 1000);
}

TEST("work on the legacy stream follows all blocking streams, and they follow it")
{
    begin("");
    program_begin();
    CUstream one, two;
    DRIVER_CALL(driver.cuStreamCreate(&one, 0));
    DRIVER_CALL(driver.cuStreamCreate(&two, 0));
    REQUIRE(channels_switch(true) == RM_OK);
    launch(one, 2 * MS);
    CUevent first = record(one);
    launch(NULL, 1 * MS);
    CUevent legacy = record(NULL);
    launch(two, 3 * MS);
    CUevent last = record(two);
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuCtxSynchronize());
    CHECK_EQ(elapsed_us(first, legacy), 1000);
    CHECK_EQ(elapsed_us(legacy, last), 3000);
}

TEST("a stream that is destroyed works on, and who waits for its context waits for that")
{
    begin("");
    program_begin();
    CUstream idle = stream_new();
    REQUIRE(channels_switch(true) == RM_OK);
    for (int i = 0; i < 40; i++) {
        CUstream stream = stream_new();
        launch(stream, 2 * MS);
        DRIVER_CALL(driver.cuStreamDestroy_v2(stream));
    }
    CHECK_EQ(driver.cuStreamQuery(idle), CUDA_SUCCESS);
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuCtxSynchronize());
    CHECK_EQ(own_busy_ns(), 80 * MS);
}

TEST("the legacy stream follows a blocking stream that was destroyed")
{
    begin("");
    program_begin();
    CUstream one;
    DRIVER_CALL(driver.cuStreamCreate(&one, 0));
    REQUIRE(channels_switch(true) == RM_OK);
    for (int i = 0; i < 2; i++)
        launch(one, 1 * MS);
    CUevent first = record(one);
    DRIVER_CALL(driver.cuStreamDestroy_v2(one));
    launch(NULL, 1 * MS);
    CUevent legacy = record(NULL);
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuStreamSynchronize(NULL));
    CHECK_EQ(elapsed_us(first, legacy), 1000);
    CHECK_EQ(own_busy_ns(), 3 * MS);
}

static void letter_await(void *data)
{
    char letter;
    REQUIRE(read(*(int *)data, &letter, 1) == 1);
}

TEST("what comes behind a host function waits for it, and the GPU is free meanwhile")
{
    begin("");
    program_begin();
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    CUstream stream = stream_new();
    launch(stream, 1 * MS);
    CUevent from = record(stream);
    DRIVER_CALL(driver.cuLaunchHostFunc(stream, letter_await, &ends[0]));
    CUevent to = record(stream);
    launch(stream, 1 * MS);
    DRIVER_CALL(driver.cuEventSynchronize(from));
    nap_ms(20);
    CHECK_EQ(own_busy_ns(), 1 * MS);
    CHECK_EQ(driver.cuEventQuery(to), CUDA_ERROR_NOT_READY);
    REQUIRE(write(ends[1], "", 1) == 1);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    CHECK_EQ(own_busy_ns(), 2 * MS);
    CHECK(elapsed_us(from, to) >= 20000);
}

TEST("copies of a host go on beside a kernel that never ends")
{
    static char line[64];
    CUdeviceptr memory;
    begin("");
    program_begin();
    CUstream copies = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&memory, 64));
    launch(stream_new(), NEVER);
    CUevent from = record(copies);
    DRIVER_CALL(driver.cuMemcpyHtoDAsync_v2(memory, line, sizeof(line), copies));
    CUevent to = record(copies);
    DRIVER_CALL(driver.cuStreamSynchronize(copies));
    CHECK(elapsed_us(from, to) >= 1);
}

TEST("fills and copies on the card are compute time, by their size")
{
    CUdeviceptr memory;
    begin("");
    program_begin();
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&memory, 1 << 30));
    DRIVER_CALL(driver.cuMemsetD32Async(memory, 0, 240 << 20, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    /* 2 us, and 960 MiB at 2.4 TB a second. */
    CHECK_EQ(own_busy_ns(), 2000 + (960ull << 20) * 1000 / 2400000);
    DRIVER_CALL(driver.cuMemcpyDtoDAsync_v2(memory, memory + (1 << 29), 1 << 29, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    /* 1 us, and 512 MiB at 2 TB a second. */
    CHECK_EQ(own_busy_ns(), 3000 + (960ull << 20) * 1000 / 2400000 + (1ull << 29) / 2000);
}

TEST("a copy of 1 GiB is no compute time")
{
    static char line[64];
    CUdeviceptr memory;
    begin("");
    program_begin();
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&memory, 1 << 30));
    CUevent from = record(stream);
    /* The simulator keeps no contents of transfers as large as that. */
    DRIVER_CALL(driver.cuMemcpyHtoDAsync_v2(memory, line, 1 << 30, stream));
    CUevent to = record(stream);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    CHECK(elapsed_us(from, to) > 40000);
    CHECK_EQ(own_busy_ns(), 0);
    nap_ms(250);
    CHECK_EQ(sim_device_utilization(0), 0);
}

TEST("NVML's samples read full while two share, each with one of the two")
{
    struct sim_sample samples[SIM_SAMPLES_MAX];
    begin("");
    struct peer peers[2] = {peer_start(), peer_start()};
    uint64_t from = sim_clock_ns() + SIM_SAMPLE_NS;
    for (int i = 0; i < 2; i++)
        peer_tell(&peers[i], 'p');
    while (sim_clock_ns() < from + 2 * SIM_SAMPLE_NS)
        nap_ms(50);
    /* A window that ended a window's length after the start is full. */
    unsigned count = sim_device_samples(0, sim_clock_ns() - SIM_SAMPLE_NS, false, samples);
    CHECK(count >= 1);
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQ(samples[i].busy_percent, 100);
        CHECK(samples[i].pid == peers[0].pid || samples[i].pid == peers[1].pid);
    }
    CHECK_EQ(sim_device_utilization(0), 100);
}

TEST("a launch blocks while a thousand are outstanding, and none is lost")
{
    begin("");
    program_begin();
    CUstream stream = stream_new();
    launch(stream, 50 * MS);
    for (int i = 0; i < 1000; i++)
        launch(stream, 1000);
    for (int i = 0; i < 2000; i++)
        launch(stream, 1000);
    CHECK(own_busy_ns() >= 50 * MS);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    CHECK_EQ(own_busy_ns(), 50 * MS + 3000 * 1000);
}

TEST("streams of one context run their kernels one after another")
{
    begin("");
    program_begin();
    CUstream streams[4];
    CUevent ends[4];
    REQUIRE(channels_switch(true) == RM_OK);
    for (int i = 0; i < 4; i++) {
        streams[i] = stream_new();
        launch(streams[i], 1 * MS);
        ends[i] = record(streams[i]);
    }
    REQUIRE(channels_switch(false) == RM_OK);
    DRIVER_CALL(driver.cuCtxSynchronize());
    for (int i = 1; i < 4; i++)
        CHECK_EQ(elapsed_us(ends[i - 1], ends[i]), 1000);
}

static unsigned list_length(uint32_t ring)
{
    unsigned length = 0;
    for (; ring != SIM_NONE && length <= SIM_RINGS_MAX;
         ring = sim_machine->timeline.rings[ring].next)
        length++;
    return length;
}

static unsigned free_marks(const struct sim_timeline *line)
{
    unsigned count = 0;
    for (uint32_t i = line->free_mark; i != SIM_NONE && count <= SIM_MARKS_MAX; count++)
        i = line->marks[i].next_free;
    return count;
}

/* Each ring is in one list, and what is counted is so. */
static void machine_check(void)
{
    const struct sim_timeline *line = &sim_machine->timeline;
    unsigned live = 0, in_groups = 0, runnable = 0, marks = 0;
    sim_lock();
    sim_reap_locked();
    sim_timeline_look_locked();
    for (uint32_t i = 0; i < line->rings_end; i++)
        live += line->rings[i].live;
    for (uint32_t i = 0; i < line->groups_end; i++) {
        const struct sim_group *group = &line->groups[i];
        unsigned length = list_length(group->first_ready) + list_length(group->marked);
        in_groups += group->live ? length : 0;
        runnable += group->live && !group->stopped && length;
    }
    for (uint32_t i = 0; i < line->marks_end; i++)
        marks += line->marks[i].live;
    CHECK_EQ(list_length(line->delayed) + list_length(line->waiting) + in_groups, live);
    CHECK_EQ(list_length(line->free_ring) + live, line->rings_end);
    CHECK_EQ(line->engines[0].runnable_groups, runnable);
    CHECK_EQ(free_marks(line) + marks, line->marks_end);
    sim_unlock();
}

TEST("a process killed at any moment leaves the machine whole, and another's work goes on")
{
    begin("");
    struct peer other = peer_start();
    peer_send(&other, 'w');
    for (unsigned i = 0; i < 60; i++) {
        struct peer peer = peer_start();
        struct timespec pause = {.tv_nsec = (long)(i * 7919 % 61) * 50000};
        peer_send(&peer, 'w');
        nanosleep(&pause, NULL);
        peer_kill(&peer);
        machine_check();
    }
    struct instant from = instant_of(&other, 1);
    while (instant_of(&other, 1).busy_ns[0] < from.busy_ns[0] + 1 * MS)
        nap_ms(1);
    peer_kill(&other);
    machine_check();
    program_begin();
    CUstream stream = stream_new();
    for (int i = 0; i < 100; i++)
        launch(stream, 10000);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    CHECK_EQ(own_busy_ns(), 1 * MS);
}

TEST("channels of another client than the subdevice's are refused")
{
    begin("");
    program_begin();
    struct handles own = own_handles();
    struct rm_client_params client = {0};
    struct rm_alloc64 form = {.class_id = RM_CLASS_CLIENT, .params = (uint64_t)(uintptr_t)&client};
    int fd = sim_rm_open();
    REQUIRE(fd >= 0 && sim_rm_execute(fd, RM_IOCTL_ALLOC64, &form) == 0 && form.status == RM_OK);
    struct rm_disable_channels params = {
        .disable = 1, .count = 1, .clients = {client.client}, .channels = {own.channels[0]}};
    CHECK_EQ(
        control(own.client, own.subdevice, RM_CTRL_FIFO_DISABLE_CHANNELS, &params, sizeof(params)),
        RM_ERR_INVALID_CLIENT);
}

TEST("a driver without GSP firmware disables no channels")
{
    begin("no-gsp");
    program_begin();
    CHECK_EQ(channels_switch(true), RM_ERR_NOT_SUPPORTED);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
