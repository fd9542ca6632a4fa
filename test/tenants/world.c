/* SPDX-License-Identifier: Apache-2.0 */
/* Starts tenants, and reads from the machine what they got. */
#include "world.h"

#include "vgpu/board.h"

#include "scratch.h"
#include "sim/machine/machine_layout.h"

#include <unistd.h>
#include <sys/mman.h>
#include <string.h>
#include <stdio.h>
#include <fcntl.h>
#include <dirent.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define LOOKS_MAX 20000u
#define WORDS_MAX 24

static char root[PATH_MAX], directory[64], boards[128], calibration[128];
static unsigned started;
static struct look looks[LOOKS_MAX];

static void write_calibration(void)
{
    static const char *const forms[] = {"full", "one-block", "graph", "cooperative", "persistent"};
    FILE *file = fopen(calibration, "w");
    REQUIRE(file != NULL);
    fprintf(file, "{\"calibrated_on\": \"NVIDIA H200\"");
    for (unsigned i = 0; i < 5; i++)
        fprintf(file, ", \"%s\": {\"steps_per_us\": 1000, \"overhead_us\": 0}", forms[i]);
    fprintf(file, "}\n");
    REQUIRE(fclose(file) == 0);
}

void world_begin(const char *machine)
{
    char path[160];
    if (*directory)
        return;
    ssize_t length = readlink("/proc/self/exe", root, sizeof(root) - 1);
    REQUIRE(length > 0);
    for (unsigned up = 0; up < 3; up++)
        *strrchr(root, '/') = 0;
    REQUIRE(scratch_make(directory));
    snprintf(boards, sizeof(boards), "%s/boards", directory);
    snprintf(calibration, sizeof(calibration), "%s/calibration", directory);
    REQUIRE(mkdir(boards, 0777) == 0);
    write_calibration();
    snprintf(path, sizeof(path), "%s/machine", directory);
    setenv("VGPU_SIM", machine, 1);
    setenv("VGPU_SIM_MACHINE", path, 1);
    REQUIRE(sim_attach() == 0);
}

const char *world_boards(void)
{
    return boards;
}

void world_path(const char *name, char ret_path[160])
{
    snprintf(ret_path, 160, "%s/%s", directory, name);
}

/* ---- tenants ---- */

static void set_or_not(const char *variable, const char *value)
{
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

static void set_environment(const struct tenant *tenant, const struct tenant_how *how)
{
    char preload[2 * PATH_MAX + 64], libraries[PATH_MAX + 16];
    snprintf(preload, sizeof(preload), "%s/libvgpu.so:%s/src/sim/libvgpu-sim-rm.so", root, root);
    snprintf(libraries, sizeof(libraries), "%s/src/sim", root);
    setenv("LD_PRELOAD", preload, 1);
    setenv("LD_LIBRARY_PATH", libraries, 1);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", tenant->region, 1);
    setenv("VGPU_BOARD_DIR", how->board ? how->board : boards, 1);
    set_or_not("CUDA_DEVICE_SM_LIMIT", how->cores);
    set_or_not("CUDA_DEVICE_SM_LIMIT_1", how->cores_second);
    set_or_not("CUDA_CORE_SOFT_LIMIT", how->soft);
    set_or_not("CUDA_TASK_PRIORITY", how->priority);
    set_or_not("CUDA_DEVICE_MEMORY_LIMIT", how->memory);
    set_or_not("VGPU_GATE", how->gate);
}

static void run_load(const struct tenant_how *how)
{
    char program[PATH_MAX + 64], words[512], *list[WORDS_MAX], *rest = words;
    const char *arguments = how->load ? how->load : "";
    unsigned count = 0;
    if (how->program) {
        snprintf(program, sizeof(program), "%s/test/tenants/%s", root, how->program);
        snprintf(words, sizeof(words), "%s %s", how->program, arguments);
    } else {
        snprintf(program, sizeof(program), "%s/vgpu-load", root);
        snprintf(words, sizeof(words), "vgpu-load --calibration %s --json --seconds 0 %s",
            calibration, arguments);
    }
    for (char *word; count < WORDS_MAX - 1 && (word = strtok_r(rest, " ", &rest));)
        list[count++] = word;
    list[count] = NULL;
    execv(program, list);
    _exit(127);
}

struct tenant tenant_start(const struct tenant_how *how)
{
    struct tenant tenant = {.pid = 0};
    if (how->joins)
        snprintf(tenant.region, sizeof(tenant.region), "%s", how->joins);
    else
        snprintf(tenant.region, sizeof(tenant.region), "%s/region-%u", directory, started++);
    tenant.pid = fork();
    REQUIRE(tenant.pid >= 0);
    if (tenant.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test itself is killed */
        set_environment(&tenant, how);
        REQUIRE(freopen("/dev/null", "w", stdout) != NULL);
        run_load(how);
    }
    return tenant;
}

void tenant_kill(struct tenant *tenant)
{
    kill(tenant->pid, SIGKILL);
    waitpid(tenant->pid, NULL, 0);
}

int tenant_stop(struct tenant *tenant)
{
    int status = -1;
    kill(tenant->pid, SIGTERM);
    waitpid(tenant->pid, &status, 0);
    return status;
}

void tenant_order(
    const struct tenant *tenant, const char *command, const char *option, const char *value)
{
    char program[PATH_MAX + 8];
    int status = -1;
    pid_t pid = fork();
    snprintf(program, sizeof(program), "%s/vgpu", root);
    if (pid == 0) {
        REQUIRE(freopen("/dev/null", "w", stdout) != NULL);
        execl(program, "vgpu", command, "--region", tenant->region, option, value, NULL);
        _exit(127);
    }
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

/* ---- the machine ---- */

static void look_at(const struct tenant *tenants, unsigned count, struct look *ret_look)
{
    *ret_look = (struct look){0};
    sim_lock();
    sim_timeline_look_locked();
    const struct sim_timeline *line = &sim_machine->timeline;
    ret_look->now_ns = line->now_ns;
    for (uint32_t i = 0; i < line->groups_end; i++) {
        const struct sim_group *group = &line->groups[i];
        for (unsigned t = 0; group->live && t < count; t++) {
            if (group->pid != tenants[t].pid || group->device >= TENANTS_DEVICES)
                continue;
            ret_look->busy_ns[t] = 0;
            for (unsigned d = 0; d < TENANTS_DEVICES; d++)
                ret_look->busy_ns[t] += sim_machine->slots[group->slot].busy_ns[d];
            ret_look->stopped[t][group->device] = group->stopped;
        }
    }
    sim_unlock();
}

uint64_t tenant_busy_ns(const struct tenant *tenant)
{
    struct look look;
    look_at(tenant, 1, &look);
    return look.busy_ns[0];
}

uint64_t world_busy_ns(const struct tenant *tenants, unsigned count, uint64_t *ret_busy_ns)
{
    memset(ret_busy_ns, 0, count * sizeof(*ret_busy_ns));
    sim_lock();
    sim_timeline_look_locked();
    const struct sim_timeline *line = &sim_machine->timeline;
    uint64_t now = line->now_ns;
    for (uint32_t i = 0; i < line->groups_end; i++) {
        const struct sim_group *group = &line->groups[i];
        for (unsigned t = 0; group->live && t < count; t++) {
            if (group->pid != tenants[t].pid)
                continue;
            ret_busy_ns[t] = 0;
            for (unsigned d = 0; d < TENANTS_DEVICES; d++)
                ret_busy_ns[t] += sim_machine->slots[group->slot].busy_ns[d];
        }
    }
    sim_unlock();
    return now;
}

void tenant_until_busy(const struct tenant *tenant)
{
    while (!tenant_busy_ns(tenant)) {
        REQUIRE(waitpid(tenant->pid, NULL, WNOHANG) == 0);
        usleep(2000);
    }
}

uint32_t tenant_slice_us(const struct tenant *tenant)
{
    uint32_t slice = 0;
    sim_lock();
    for (uint32_t i = 0; i < sim_machine->timeline.groups_end; i++) {
        const struct sim_group *group = &sim_machine->timeline.groups[i];
        if (group->live && group->pid == tenant->pid && group->object != SIM_NONE)
            slice = sim_machine->objects[group->object].timeslice_us;
    }
    sim_unlock();
    return slice;
}

uint64_t world_now_ns(void)
{
    struct look look;
    look_at(NULL, 0, &look);
    return look.now_ns;
}

/* ---- traces ---- */

/* Whose process is gone has no busy time any more. */
static void keep_the_dead(struct look *look, const struct look *former)
{
    for (unsigned t = 0; t < TENANTS_MAX; t++) {
        if (look->busy_ns[t] < former->busy_ns[t])
            look->busy_ns[t] = former->busy_ns[t];
    }
}

struct trace world_watch(const struct tenant *tenants, unsigned count, unsigned ms)
{
    struct trace trace = {.looks = looks};
    uint64_t end = world_now_ns() + ms * MS;
    do {
        look_at(tenants, count, &looks[trace.count]);
        if (trace.count)
            keep_the_dead(&looks[trace.count], &looks[trace.count - 1]);
        usleep(1000);
    } while (looks[trace.count++].now_ns < end && trace.count < LOOKS_MAX);
    return trace;
}

uint64_t trace_begin(const struct trace *trace)
{
    return trace->looks[0].now_ns;
}

uint64_t trace_end(const struct trace *trace)
{
    return trace->looks[trace->count - 1].now_ns;
}

double trace_busy_at(const struct trace *trace, unsigned tenant, uint64_t at_ns)
{
    unsigned i = 1;
    while (i < trace->count - 1 && trace->looks[i].now_ns < at_ns)
        i++;
    const struct look *to = &trace->looks[i], *from = to - 1;
    double part = (double)(int64_t)(at_ns - from->now_ns) / (double)(to->now_ns - from->now_ns);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return (double)from->busy_ns[tenant] +
           part * (double)(to->busy_ns[tenant] - from->busy_ns[tenant]);
}

double trace_share(const struct trace *trace, unsigned tenant, uint64_t from_ns, uint64_t to_ns)
{
    double busy = trace_busy_at(trace, tenant, to_ns) - trace_busy_at(trace, tenant, from_ns);
    return busy / (double)(to_ns - from_ns);
}

double trace_share_all(const struct trace *trace, unsigned tenant)
{
    return trace_share(trace, tenant, trace_begin(trace), trace_end(trace));
}

uint64_t trace_falls_quiet(
    const struct trace *trace, unsigned tenant, uint64_t from_ns, uint64_t quiet_ns)
{
    unsigned last = 0;
    for (unsigned i = 1; i < trace->count; i++) {
        const struct look *look = &trace->looks[i];
        if (look->busy_ns[tenant] != trace->looks[last].busy_ns[tenant] || look->now_ns < from_ns)
            last = i;
        else if (look->now_ns - trace->looks[last].now_ns >= quiet_ns)
            return trace->looks[last].now_ns;
    }
    return 0;
}

uint64_t trace_works(const struct trace *trace, unsigned tenant, uint64_t from_ns)
{
    for (unsigned i = 1; i < trace->count; i++) {
        const struct look *look = &trace->looks[i];
        if (look[-1].now_ns >= from_ns && look->busy_ns[tenant] != look[-1].busy_ns[tenant])
            return look[-1].now_ns;
    }
    return 0;
}

uint64_t trace_longest_gap_ns(const struct trace *trace, unsigned tenant)
{
    uint64_t longest = 0, since = trace_begin(trace);
    for (unsigned i = 1; i < trace->count; i++) {
        const struct look *look = &trace->looks[i];
        if (look->busy_ns[tenant] != look[-1].busy_ns[tenant])
            since = look->now_ns;
        else if (look->now_ns - since > longest)
            longest = look->now_ns - since;
    }
    return longest;
}

struct vgpu_board *world_board(void)
{
    char path[512] = "";
    DIR *listing = opendir(world_boards());
    REQUIRE(listing != NULL);
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (!strncmp(entry->d_name, VGPU_BOARD_FILE_PREFIX, strlen(VGPU_BOARD_FILE_PREFIX)))
            snprintf(path, sizeof(path), "%s/%.255s", world_boards(), entry->d_name);
    }
    closedir(listing);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    void *shared = mmap(NULL, sizeof(struct vgpu_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(shared != MAP_FAILED);
    close(fd);
    return shared;
}
