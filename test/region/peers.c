/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of a container. */
#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "check.h"
#include "region/region.h"
#include "region/slot.h"
#include "scratch.h"

#include <fcntl.h>

#define STEP_WAIT_NS 20000000000ull

struct peers *peers;
char peers_directory[64], peers_path[128];
struct region peers_region = {.fd = -1};

static const char *limit_asked;

static char *lookup(const char *name)
{
    if (!strcmp(name, "CUDA_DEVICE_MEMORY_SHARED_CACHE"))
        return peers_path;
    if (!strcmp(name, "CUDA_DEVICE_MEMORY_LIMIT"))
        return (char *)limit_asked;
    return NULL;
}

void peers_begin(void)
{
    REQUIRE(scratch_make(peers_directory));
    snprintf(peers_path, sizeof(peers_path), "%s/region", peers_directory);
    peers =
        mmap(NULL, sizeof(struct peers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(peers != MAP_FAILED);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
}

struct config *peers_config(const char *limit)
{
    static struct config config;
    limit_asked = limit;
    config_read(&config, lookup);
    return &config;
}

unsigned peers_join(const char *limit)
{
    struct config *config = peers_config(limit);
    REQUIRE(region_attach(&peers_region, config) == 0);
    account_start(&peers_region, 0);
    int device = account_device(PEERS_UUID, 0);
    REQUIRE(device >= 0);
    return (unsigned)device;
}

pid_t peers_fork(void (*body)(void))
{
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    return pid;
}

void peers_wait(int step)
{
    uint64_t start = clock_now_ns();
    while (load_acquire(&peers->step) < step) {
        REQUIRE(clock_now_ns() - start < STEP_WAIT_NS);
        sleep_ns(200000);
    }
}

void peers_step(int step)
{
    int now;
    do {
        now = load_acquire(&peers->step);
    } while (now < step && !swap_seq_cst(&peers->step, now, step));
}

int peers_reap(pid_t pid)
{
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return status;
}

void peers_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    peers_reap(pid);
}

void peers_sleep_ms(unsigned ms)
{
    sleep_ns(ms * 1000000ull);
}

void peers_look(struct region *region)
{
    REQUIRE(region_open(region, peers_path) == 0);
}

uint64_t peers_used(unsigned device)
{
    struct account_view view;
    account_view(device, &view);
    return view.used_bytes;
}

int peers_slot_of(const struct region *region, pid_t pid)
{
    for (unsigned i = 0; i < mapping_slot_bound(region); i++) {
        uint64_t word = load_acquire(&region->shared->slots[i].state);
        if (slot_word_state(word) == VGPU_SLOT_LIVE && slot_word_pid(word) == (int)pid)
            return (int)i;
    }
    return -1;
}
