/* SPDX-License-Identifier: Apache-2.0 */
/* Slots over the lives of processes: death, fork, exec, daemonising, a full table. */
#include "region/slot.h"

#include "base/atomic.h"
#include "base/process.h"
#include "check.h"
#include "peers.h"
#include "region/region.h"
#include "region/region_device.h"

#include <fcntl.h>

#define HELD (100 * PEERS_MIB)

static unsigned device;

static void charge(uint64_t bytes)
{
    REQUIRE(account_reserve(device, bytes, ACCOUNT_BUFFER) == 0);
    account_commit(device, bytes);
}

static void close_descriptors(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

static void hold(void)
{
    device = peers_join("1g");
    charge(HELD);
    peers->number[0] = getpid();
    peers_step(1);
    peers_wait(2);
}

TEST("a process has the first free slot from joining on")
{
    peers_begin();
    device = peers_join("1g");
    CHECK_EQ(mapping_slot_bound(&peers_region), 1);
    charge(HELD);
    CHECK_EQ(mapping_slot_bound(&peers_region), 1);
    const struct vgpu_slot *slot = &peers_region.shared->slots[0];
    struct process_status status;
    CHECK_EQ(process_status(0, &status), 0);
    CHECK_EQ(slot_word_pid(slot->state), getpid());
    CHECK_EQ(slot_word_state(slot->state), VGPU_SLOT_LIVE);
    CHECK_EQ(slot->start_time, status.start_time);
    CHECK_EQ(slot->stack_start, status.stack_start);
    CHECK_EQ(slot->pid_namespace, process_pid_namespace());
    CHECK_EQ(slot->usage[device].bytes, HELD);
    CHECK_EQ(slot->usage[device].buffer, HELD);
    CHECK_EQ(slot->usage[device].pending, 0);
}

TEST("a slot that is free again is claimed under another generation")
{
    uint64_t first, second;
    peers_begin();
    device = peers_join("1g");
    REQUIRE(slot_claim(&peers_region, &first) == 1);
    struct vgpu_slot *slot = &peers_region.shared->slots[1];
    store_relaxed(&slot->usage[5].bytes, 77u);
    store_release(&slot->state, first & ~3ull);
    slot_unlock(&peers_region, 1);
    REQUIRE(slot_claim(&peers_region, &second) == 1);
    CHECK(first != second);
    CHECK_EQ(slot->usage[5].bytes, 0);
}

TEST("a process that was killed gives its memory back")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    CHECK_EQ(peers_used(device), HELD);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    peers_kill(pid);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_used(device), 1024 * PEERS_MIB);
}

TEST("a process that was killed and not waited for has given its memory back")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    kill(pid, SIGKILL);
    siginfo_t info;
    REQUIRE(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

static void hold_and_fork(void)
{
    device = peers_join("1g");
    charge(HELD);
    pid_t child = fork();
    if (child == 0) {
        peers->number[0] = getpid();
        peers_step(1);
        peers_wait(2);
        execl("/bin/sleep", "sleep", "20", NULL);
        _exit(1);
    }
    for (;;)
        pause();
}

TEST("a forked child that holds the descriptor keeps its dead parent's slot, until it execs")
{
    peers_begin();
    pid_t pid = peers_fork(hold_and_fork);
    peers_wait(1);
    device = peers_join("1g");
    peers_kill(pid);
    CHECK_EQ(peers_used(device), HELD);
    CHECK_EQ(account_reserve(device, 1000 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    peers_step(2);
    uint64_t used = HELD;
    for (int i = 0; i < 1000 && used; i++) {
        peers_sleep_ms(2);
        used = peers_used(device);
    }
    CHECK_EQ(used, 0);
    kill((pid_t)peers->number[0], SIGKILL);
}

TEST("a forked child's charges are its own")
{
    peers_begin();
    device = peers_join("1g");
    charge(HELD);
    pid_t pid = fork();
    if (pid == 0) {
        hold();
        _exit(0);
    }
    peers_wait(1);
    CHECK_EQ(peers_used(device), 2 * HELD);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
    CHECK_EQ(peers_used(device), HELD);
}

static void hold_as_daemon(void)
{
    device = peers_join("1g");
    charge(HELD);
    close_descriptors();
    peers_step(1);
    peers_wait(2);
    charge(HELD);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 2 * HELD);
    peers_step(3);
    peers_wait(4);
}

TEST("a process that closed all descriptors keeps its slot while it lives")
{
    peers_begin();
    pid_t pid = peers_fork(hold_as_daemon);
    peers_wait(1);
    device = peers_join("1g");
    CHECK_EQ(peers_used(device), HELD);
    charge(PEERS_MIB);
    CHECK(peers_slot_of(&peers_region, pid) != peers_slot_of(&peers_region, getpid()));
    peers_step(2);
    peers_wait(3);
    CHECK_EQ(peers_used(device), 2 * HELD + PEERS_MIB);
    peers_kill(pid);
    CHECK_EQ(peers_used(device), PEERS_MIB);
}

TEST("a descriptor number that is another file by now is left alone")
{
    peers_begin();
    device = peers_join("1g");
    int fd = peers_region.fd;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(dup2(ends[0], fd) == fd);
    CHECK(!mapping_fd_is_ours(&peers_region));
    charge(HELD);
    CHECK_EQ(peers_used(device), HELD);
    region_detach(&peers_region);
    CHECK(fcntl(fd, F_GETFD) >= 0);
}

TEST("a slot that a peer took by mistake is filled again with all that is held")
{
    peers_begin();
    device = peers_join("1g");
    charge(HELD);
    account_add(device, PEERS_MIB, ACCOUNT_CONTEXT);
    account_set_imported(device, 3);
    account_add_lingering(device, 5);
    uint64_t *state = &peers_region.shared->slots[0].state;
    store_release(state, *state & ~3ull);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    int slot = peers_slot_of(&peers_region, getpid());
    REQUIRE(slot >= 0);
    const struct vgpu_usage *usage = &peers_region.shared->slots[slot].usage[device];
    CHECK_EQ(usage->bytes, HELD + 2 * PEERS_MIB);
    CHECK_EQ(usage->pending, PEERS_MIB);
    CHECK_EQ(usage->buffer, HELD + PEERS_MIB);
    CHECK_EQ(usage->context, PEERS_MIB);
    CHECK_EQ(usage->lingering, 5);
    CHECK_EQ(usage->imported, 3);
}

TEST("a slot whose pid another process has by now is taken back")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    int slot = peers_slot_of(&peers_region, pid);
    REQUIRE(slot >= 0);
    peers_kill(pid);
    uint64_t *state = &peers_region.shared->slots[slot].state;
    store_release(state, (*state >> 32) << 32 | (uint64_t)getpid() << 2 | VGPU_SLOT_LIVE);
    struct process_status status;
    REQUIRE(process_status(0, &status) == 0);
    peers_region.shared->slots[slot].start_time = status.start_time - 1;
    CHECK_EQ(peers_used(device), 0);
}

TEST("a live process of another PID namespace keeps its slot")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    int slot = peers_slot_of(&peers_region, pid);
    REQUIRE(slot >= 0);
    peers_region.shared->slots[slot].pid_namespace += 1;
    CHECK_EQ(peers_used(device), HELD);
    peers_kill(pid);
    CHECK_EQ(peers_used(device), 0);
}

TEST("who closed all descriptors takes no live process of another PID namespace for dead")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    int slot = peers_slot_of(&peers_region, pid);
    REQUIRE(slot >= 0);
    peers_region.shared->slots[slot].pid_namespace += 1;
    close_descriptors();
    CHECK_EQ(peers_used(device), HELD);
    CHECK_EQ(account_reserve(device, 1000 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    charge(PEERS_MIB);
    CHECK_EQ(peers_slot_of(&peers_region, pid), slot);
}

TEST("a process killed while it claimed a slot leaves it to the next")
{
    peers_begin();
    pid_t pid = peers_fork(hold);
    peers_wait(1);
    device = peers_join("1g");
    peers_kill(pid);
    uint64_t *state = &peers_region.shared->slots[0].state;
    store_release(state, (*state & ~3ull) | VGPU_SLOT_CLAIMING);
    CHECK_EQ(peers_used(device), 0);
    uint64_t word;
    CHECK_EQ(slot_claim(&peers_region, &word), 0);
    CHECK_EQ(peers_used(device), 0);
}

TEST("a slot whose claimer seems to live without its lock is left to who finds no other")
{
    peers_begin();
    device = peers_join("1g");
    uint64_t word, claiming = 5ull << 32 | (uint64_t)getppid() << 2 | VGPU_SLOT_CLAIMING;
    store_release(&peers_region.shared->slots[1].state, claiming);
    int claimed = slot_claim(&peers_region, &word);
    CHECK(claimed > 1);
    slot_unlock(&peers_region, (unsigned)claimed);
    for (unsigned i = 2; i < VGPU_REGION_SLOTS; i++)
        store_release(&peers_region.shared->slots[i].state, claiming);
    CHECK(slot_claim(&peers_region, &word) > 0);
}

/* What a process does that has become another program by exec. */
static int exec_again(char **argv)
{
    snprintf(peers_path, sizeof(peers_path), "%s", argv[2]);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    device = peers_join("1g");
    int error = account_reserve(device, 1000 * PEERS_MIB, ACCOUNT_BUFFER);
    return error ? 3 : 0;
}

static void hold_and_exec_again(void)
{
    device = peers_join("1g");
    charge(HELD);
    execl("/proc/self/exe", "slots", "--exec-again", peers_path, NULL);
    _exit(1);
}

TEST("a process that becomes another program by exec starts with an empty account")
{
    peers_begin();
    CHECK_EQ(peers_reap(peers_fork(hold_and_exec_again)), 0);
}

static void hold_and_exec_sleep(void)
{
    device = peers_join("1g");
    charge(HELD);
    peers_step(1);
    peers_wait(2);
    execl("/bin/sleep", "sleep", "20", NULL);
    _exit(1);
}

TEST("a process that became a program without CUDA by exec holds nothing any more")
{
    peers_begin();
    pid_t pid = peers_fork(hold_and_exec_sleep);
    peers_wait(1);
    device = peers_join("1g");
    charge(PEERS_MIB);
    peers_step(2);
    uint64_t used = HELD;
    for (int i = 0; i < 250 && used > PEERS_MIB; i++) {
        peers_sleep_ms(2);
        used = peers_used(device);
    }
    CHECK_EQ(used, PEERS_MIB);
    peers_kill(pid);
}

static void fill_table(void)
{
    struct process_status status;
    REQUIRE(process_status(0, &status) == 0);
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
        struct vgpu_slot *slot = &peers_region.shared->slots[i];
        slot->start_time = status.start_time;
        slot->stack_start = status.stack_start;
        slot->pid_namespace = process_pid_namespace();
        store_release(&slot->state, 7ull << 32 | (uint64_t)getpid() << 2 | VGPU_SLOT_LIVE);
    }
    peers_region.shared->slot_high = VGPU_REGION_SLOTS;
}

TEST("where all 1,024 slots are taken a limited process is refused")
{
    peers_begin();
    device = peers_join("1g");
    fill_table();
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 0);
}

TEST("where all 1,024 slots are taken a process without a limit passes")
{
    peers_begin();
    device = peers_join(NULL);
    fill_table();
    charge(HELD);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), HELD);
    account_release(device, HELD, ACCOUNT_BUFFER);
}

TEST("a slot of 1,024 that becomes free is found, and its memory counts from then on")
{
    peers_begin();
    device = peers_join("1g");
    fill_table();
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    account_add(device, PEERS_MIB, ACCOUNT_CONTEXT);
    store_release(&peers_region.shared->slots[1000].state, 8ull << 32);
    charge(PEERS_MIB);
    CHECK_EQ(peers_used(device), 2 * PEERS_MIB);
}

TEST("numbers in the region that no process of ours wrote are survived")
{
    peers_begin();
    device = peers_join("1g");
    charge(HELD);
    peers_region.shared->slot_high = UINT32_MAX;
    peers_region.shared->device_count = UINT32_MAX;
    for (unsigned i = 1; i < VGPU_REGION_SLOTS; i++) {
        struct vgpu_slot *slot = &peers_region.shared->slots[i];
        memset(slot, 0xff, sizeof(*slot));
    }
    memset(peers_region.shared->devices[5].uuid, 'x', 48);
    CHECK_EQ(region_device_known(&peers_region, "GPU-none"), -ENOENT);
    (void)!account_check(device, PEERS_MIB);
    (void)!account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER);
    static struct account_process processes[ACCOUNT_PROCESSES_MAX];
    CHECK(account_processes(device, processes) <= ACCOUNT_PROCESSES_MAX);
    account_release(device, HELD, ACCOUNT_BUFFER);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--exec-again"))
        return exec_again(argv);
    return check_run(argc, argv);
}
