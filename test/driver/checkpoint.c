/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's checkpoint calls, which one process (the test's own) makes about another (the
 * target), over a machine of the test's own. */
#include "program.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "abi/rm.h"
#include "sim/machine/machine_layout.h"

#define MS 1000000ull
#define MIB (1ull << 20)
#define PAGE (2 * MIB)
#define NEVER UINT64_MAX
#define HOST_BYTES (4 * MIB)

/* ---- the target: it does one thing at a time, as the test says ---- */

enum action {
    ACTION_NONE,
    ACTION_LAUNCH, /* of `number` ns */
    ACTION_IS_DONE,
    ACTION_QUERY,
    ACTION_SYNCHRONIZE,
    ACTION_ALLOCATE,
    ACTION_COPY,
    ACTION_CONTENTS, /* whether they are as written */
    ACTION_DISABLE,  /* of all channels; `number` 0: enable */
    ACTION_MANAGED,
    ACTION_MANAGED_FREE,
    ACTION_HOST_MAP,
    ACTION_HOST_UNMAP,
    ACTION_HOST_EXPORT,
    ACTION_HOST_IMPORT,
    ACTION_HOST_RELEASE,
};

static struct {
    volatile int asked, done; /* counts of actions */
    volatile enum action action;
    volatile uint64_t number;
    volatile int64_t answer;
    volatile unsigned frees, allocations; /* by ioctl, of the target */
    CUipcMemHandle shared;
} * common;

/* What libcuda calls; the machine of this test has no RM device, so that libcuda then goes without.
 */
int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    const struct rm_alloc21 *form = va_arg(arguments, const void *);
    va_end(arguments);
    (void)fd;
    if (common && RM_REQUEST_NR(request) == RM_NR_FREE)
        common->frees++;
    if (common && RM_REQUEST_NR(request) == RM_NR_ALLOC && form->class_id == RM_CLASS_MEMORY_LOCAL)
        common->allocations++;
    errno = ENOTTY;
    return -1;
}

static unsigned char out[PAGE], in[PAGE];
static CUdeviceptr plain, small, pooled, mapped, host_address, managed;
static CUmemGenericAllocationHandle host_handle;
static int host_fd = -1;
static CUstream stream;
static CUevent event;

static void pattern(unsigned seed)
{
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (unsigned char)((i + seed) * 2654435761u >> 13);
}

static CUmemAllocationProp property_of(CUmemLocationType type)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    property.location.type = type;
    return property;
}

static void map_at(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    DRIVER_CALL(driver.cuMemMap(address, bytes, 0, handle, 0));
    DRIVER_CALL(driver.cuMemSetAccess(address, bytes, &access, 1));
}

static void write_to(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    pattern(seed);
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(address, out, bytes));
}

static bool is_written(CUdeviceptr address, uint64_t bytes, unsigned seed)
{
    pattern(seed);
    memset(in, 0, sizeof(in));
    DRIVER_CALL(driver.cuMemcpyDtoH_v2(in, address, bytes));
    return !memcmp(in, out, bytes);
}

/* Memory of each kind. */
static void target_fill(void)
{
    CUmemAllocationProp property = property_of(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handle;
    stream = stream_new();
    event = record(stream);
    DRIVER_CALL(driver.cuMemAlloc_v2(&plain, 64 * MIB));
    DRIVER_CALL(driver.cuMemAlloc_v2(&small, 4096));
    DRIVER_CALL(driver.cuMemAllocAsync(&pooled, PAGE, stream));
    DRIVER_CALL(driver.cuMemCreate(&handle, PAGE, &property, 0));
    DRIVER_CALL(driver.cuMemAddressReserve(&mapped, PAGE, 0, 0, 0));
    map_at(mapped, PAGE, handle);
    DRIVER_CALL(driver.cuMemRelease(handle));
    write_to(plain + 62 * MIB, PAGE, 1);
    write_to(small, 4096, 2);
    write_to(pooled, PAGE, 3);
    write_to(mapped, PAGE, 4);
    DRIVER_CALL(driver.cuIpcGetMemHandle(&common->shared, plain));
    DRIVER_CALL(driver.cuCtxSynchronize());
}

/* The channel gate's control, as the process' own. */
static uint32_t channels_disable(bool disabled)
{
    struct rm_disable_channels params = {.disable = disabled};
    uint32_t subdevice = 0, client = SIM_NONE;
    sim_lock();
    const struct sim_object *objects = sim_machine->objects;
    for (uint32_t i = 0; i < sim_machine->objects_end; i++) {
        const struct sim_object *object = &objects[i];
        if (!object->live || sim_machine->clients[object->client].pid != getpid())
            continue;
        client = sim_machine->clients[object->client].handle;
        if (object->class_id == RM_CLASS_SUBDEVICE)
            subdevice = object->handle;
        if (RM_CLASS_IS_CHANNEL(object->class_id) && params.count < RM_DISABLE_CHANNELS_MAX) {
            params.clients[params.count] = client;
            params.channels[params.count++] = object->handle;
        }
    }
    sim_unlock();
    struct rm_control form = {.client = client,
        .object = subdevice,
        .cmd = RM_CTRL_FIFO_DISABLE_CHANNELS,
        .params = (uint64_t)(uintptr_t)&params,
        .params_size = sizeof(params)};
    int fd = sim_rm_open();
    REQUIRE(fd >= 0 && sim_rm_execute(fd, RM_IOCTL_CONTROL, &form) == 0);
    close(fd);
    return form.status;
}

static int64_t host_act(enum action action)
{
    CUmemAllocationProp property = property_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    void *fd = (void *)(intptr_t)host_fd;
    switch (action) {
    case ACTION_HOST_MAP:
        DRIVER_CALL(driver.cuMemCreate(&host_handle, HOST_BYTES, &property, 0));
        DRIVER_CALL(driver.cuMemAddressReserve(&host_address, HOST_BYTES, 0, 0, 0));
        map_at(host_address, HOST_BYTES, host_handle);
        write_to(host_address + PAGE, PAGE, 5);
        return 0;
    case ACTION_HOST_UNMAP:
        return driver.cuMemUnmap(host_address, HOST_BYTES);
    case ACTION_HOST_RELEASE:
        return driver.cuMemRelease(host_handle);
    case ACTION_HOST_EXPORT: {
        int made = -1;
        CUresult r = driver.cuMemExportToShareableHandle(
            &made, host_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        host_fd = r == CUDA_SUCCESS ? made : host_fd;
        return r;
    }
    default:
        DRIVER_CALL(driver.cuMemImportFromShareableHandle(
            &host_handle, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        map_at(host_address, HOST_BYTES, host_handle);
        return is_written(host_address + PAGE, PAGE, 5);
    }
}

static int64_t act(enum action action, uint64_t number)
{
    CUdeviceptr more;
    switch (action) {
    case ACTION_LAUNCH:
        launch(stream, number);
        return 0;
    case ACTION_IS_DONE:
        return driver.cuStreamQuery(stream);
    case ACTION_QUERY:
        return driver.cuEventQuery(event);
    case ACTION_SYNCHRONIZE:
        return driver.cuCtxSynchronize();
    case ACTION_ALLOCATE:
        return driver.cuMemAlloc_v2(&more, MIB);
    case ACTION_COPY:
        return driver.cuMemcpyDtoH_v2(in, plain, 4096);
    case ACTION_CONTENTS:
        return is_written(plain + 62 * MIB, PAGE, 1) && is_written(small, 4096, 2) &&
               is_written(pooled, PAGE, 3) && is_written(mapped, PAGE, 4);
    case ACTION_DISABLE:
        return channels_disable(number != 0);
    case ACTION_MANAGED:
        return driver.cuMemAllocManaged(&managed, PAGE, CU_MEM_ATTACH_GLOBAL);
    case ACTION_MANAGED_FREE:
        return driver.cuMemFree_v2(managed);
    default:
        return host_act(action);
    }
}

static void target_run(void)
{
    for (;;) {
        while (common->asked == common->done)
            nap_ms(1);
        common->answer = act(common->action, common->number);
        common->done++;
    }
}

static pid_t target;

/* Ends the test where the target has died, which would never answer. */
static void wait_for_target(void)
{
    while (common->asked != common->done) {
        siginfo_t end = {0};
        nap_ms(1);
        (void)waitid(P_PID, (id_t)target, &end, WEXITED | WNOHANG | WNOWAIT);
        REQUIRE(end.si_pid == 0);
    }
}

/* Before the test's own process starts the driver. */
static void target_begin(const char *description)
{
    begin(description);
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(common != MAP_FAILED);
    common->asked = 1;
    target = fork();
    if (target == 0) {
        program_begin();
        target_fill();
        common->done = 1;
        target_run();
    }
    wait_for_target();
}

static void tool_begin(void)
{
    REQUIRE(driver_load());
    DRIVER_CALL(driver.cuInit(0));
}

static void both_begin(const char *description)
{
    target_begin(description);
    tool_begin();
}

static void ask(enum action action, uint64_t number)
{
    common->action = action;
    common->number = number;
    common->asked++;
}

static bool is_answered(void)
{
    return common->asked == common->done;
}

static int64_t answer(void)
{
    wait_for_target();
    return common->answer;
}

static int64_t told(enum action action, uint64_t number)
{
    ask(action, number);
    return answer();
}

static int status_after_end(void)
{
    int status = 0;
    REQUIRE(waitpid(target, &status, 0) == target);
    return status;
}

/* ---- the tool ---- */

static CUresult lock_for(unsigned ms)
{
    CUcheckpointLockArgs args = {.timeoutMs = ms};
    return driver.cuCheckpointProcessLock(target, &args);
}

static int state_of_target(void)
{
    CUprocessState state;
    CUresult r = driver.cuCheckpointProcessGetState(target, &state);
    return r == CUDA_SUCCESS ? (int)state : -(int)r;
}

static void checkpointed(void)
{
    REQUIRE(lock_for(0) == CUDA_SUCCESS);
    REQUIRE(driver.cuCheckpointProcessCheckpoint(target, NULL) == CUDA_SUCCESS);
}

static void running_again(void)
{
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
}

static uint64_t held_by_target(void)
{
    struct sim_process processes[8];
    unsigned count = sim_device_processes(0, processes, 8);
    for (unsigned i = 0; i < count && i < 8; i++) {
        if (processes[i].pid == target)
            return processes[i].private_bytes + processes[i].shared_owned_bytes +
                   processes[i].shared_duped_bytes;
    }
    return 0;
}

static uint64_t used(void)
{
    struct sim_usage usage;
    sim_device_usage(0, &usage);
    return usage.used_bytes;
}

#define OBJECTS_MAX 256

/* Of the target's memory, in the order of their handles' places; how many there are. */
static size_t objects_of_target(struct sim_memory_object objects[OBJECTS_MAX])
{
    uint32_t client = 0;
    sim_lock();
    for (uint32_t i = 0; i < sim_machine->clients_end; i++) {
        if (sim_machine->clients[i].live && sim_machine->clients[i].pid == target)
            client = sim_machine->clients[i].handle;
    }
    sim_unlock();
    memset(objects, 0, OBJECTS_MAX * sizeof(*objects));
    return sim_memory_objects(client, objects, OBJECTS_MAX);
}

static int compare_handles(const void *left, const void *right)
{
    const struct sim_memory_object *a = left, *b = right;
    return (a->handle > b->handle) - (a->handle < b->handle);
}

/* ---- tests ---- */

TEST("a checkpoint takes all device memory, and a restore brings it back with its contents")
{
    both_begin("checkpoint");
    for (int round = 0; round < 2; round++) {
        uint64_t held = held_by_target();
        CHECK(held > 580 * MIB);
        CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
        CHECK_EQ(lock_for(0), CUDA_SUCCESS);
        CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
        CHECK_EQ(held_by_target(), held);
        CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
        CHECK_EQ(state_of_target(), CU_PROCESS_STATE_CHECKPOINTED);
        CHECK_EQ(held_by_target(), 0);
        CHECK_EQ(used(), 0);
        CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_SUCCESS);
        CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
        CHECK_EQ(held_by_target(), held);
        CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
        CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
        CHECK_EQ(told(ACTION_CONTENTS, 0), true);
        CHECK_EQ(told(ACTION_ALLOCATE, 0), CUDA_SUCCESS);
    }
}

/* What is not memory goes with the client, and comes back below a new one. */
TEST("memory goes and comes back by RM calls of the process, under the same handles, as it was")
{
    struct sim_memory_object before[OBJECTS_MAX], after[OBJECTS_MAX];
    both_begin("checkpoint");
    size_t count = objects_of_target(before);
    REQUIRE(count > 0 && count <= OBJECTS_MAX);
    unsigned frees = common->frees, allocations = common->allocations;
    checkpointed();
    CHECK_EQ(objects_of_target(after), 0);
    CHECK_EQ(common->frees - frees, count + 1);
    running_again();
    CHECK_EQ(common->allocations - allocations, count);
    CHECK_EQ(objects_of_target(after), count);
    qsort(before, count, sizeof(*before), compare_handles);
    qsort(after, count, sizeof(*after), compare_handles);
    unsigned shared = 0;
    for (size_t i = 0; i < count; i++) {
        shared += before[i].shared;
        CHECK(before[i].handle == after[i].handle && before[i].parent == after[i].parent &&
              before[i].bytes == after[i].bytes && before[i].mapped == after[i].mapped &&
              before[i].shared == after[i].shared);
    }
    CHECK_EQ(shared, 1);
}

TEST("a step in the wrong state answers ILLEGAL_STATE and does nothing")
{
    both_begin("checkpoint");
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(lock_for(0), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(lock_for(0), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_CHECKPOINTED);
    running_again();
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
}

TEST("a lock gives up at its time beside work that does not end, and the process goes on")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_LAUNCH, NEVER), 0);
    CHECK_EQ(lock_for(30), CUDA_ERROR_NOT_READY);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    CHECK_EQ(told(ACTION_QUERY, 0), CUDA_SUCCESS);
    CHECK_EQ(told(ACTION_IS_DONE, 0), CUDA_ERROR_NOT_READY);
}

TEST("a lock waits for the work of the process")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_LAUNCH, 50 * MS), 0);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    sim_lock();
    (void)sim_timeline_advance_locked();
    unsigned live = 0;
    for (uint32_t i = 0; i < sim_machine->timeline.rings_end; i++)
        live += sim_machine->timeline.rings[i].live;
    sim_unlock();
    CHECK_EQ(live, 0);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(told(ACTION_IS_DONE, 0), CUDA_SUCCESS);
}

TEST("a lock waits while the channels are disabled")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_DISABLE, 1), RM_OK);
    CHECK_EQ(lock_for(30), CUDA_ERROR_NOT_READY);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    CHECK_EQ(told(ACTION_DISABLE, 0), RM_OK);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
}

/* Another tool, which makes one call. */
static pid_t tool_fork(CUresult (*call)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        tool_begin();
        _exit(call() == CUDA_SUCCESS ? 0 : 1);
    }
    return pid;
}

static CUresult unlock_call(void)
{
    return driver.cuCheckpointProcessUnlock(target, NULL);
}

static CUresult lock_call(void)
{
    return driver.cuCheckpointProcessLock(target, NULL);
}

/* For a tool that has not called yet this takes longer, and is right as well. */
static bool has_ended(pid_t pid, unsigned after_ms)
{
    nap_ms(after_ms);
    return waitpid(pid, NULL, WNOHANG) == pid;
}

static bool ended_well(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST("checkpoint and restore work while the channels are disabled, and unlock waits")
{
    target_begin("checkpoint");
    pid_t locker = tool_fork(lock_call);
    CHECK(ended_well(locker));
    CHECK_EQ(told(ACTION_DISABLE, 1), RM_OK);
    pid_t unlocker = tool_fork(unlock_call);
    CHECK(!has_ended(unlocker, 100));
    CHECK_EQ(told(ACTION_DISABLE, 0), RM_OK);
    CHECK(ended_well(unlocker));
    tool_begin();
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(told(ACTION_DISABLE, 1), RM_OK);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    CHECK_EQ(told(ACTION_DISABLE, 0), RM_OK);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
}

TEST("a process with managed memory is not checkpointed, and goes on after an unlock")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_MANAGED, 0), CUDA_SUCCESS);
    uint64_t held = held_by_target();
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    CHECK_EQ(held_by_target(), held);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
    CHECK_EQ(told(ACTION_MANAGED_FREE, 0), CUDA_SUCCESS);
    checkpointed();
}

TEST("a process whose memory another one has is not checkpointed until that one lets go")
{
    CUdeviceptr address;
    target_begin("checkpoint");
    program_begin();
    DRIVER_CALL(
        driver.cuIpcOpenMemHandle_v2(&address, common->shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    DRIVER_CALL(driver.cuIpcCloseMemHandle(address));
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
    running_again();
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
}

static void check_lost(void)
{
    checkpointed();
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_FAILED);
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(lock_for(0), CUDA_ERROR_ILLEGAL_STATE);
    ask(ACTION_QUERY, 0);
    nap_ms(30);
    CHECK(!is_answered());
    CHECK_EQ(waitpid(target, NULL, WNOHANG), 0);
}

TEST("a process with mapped host memory is checkpointed and never comes back")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_HOST_MAP, 0), 0);
    CHECK_EQ(told(ACTION_HOST_RELEASE, 0), CUDA_SUCCESS);
    check_lost();
}

TEST("nor does one that holds host memory which is not mapped")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_HOST_MAP, 0), 0);
    CHECK_EQ(told(ACTION_HOST_UNMAP, 0), CUDA_SUCCESS);
    check_lost();
}

TEST("host memory that is a descriptor alone survives, twice from the same descriptor")
{
    both_begin("checkpoint");
    CHECK_EQ(told(ACTION_HOST_MAP, 0), 0);
    CHECK_EQ(told(ACTION_HOST_EXPORT, 0), CUDA_SUCCESS);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(told(ACTION_HOST_UNMAP, 0), CUDA_SUCCESS);
        CHECK_EQ(told(ACTION_HOST_RELEASE, 0), CUDA_SUCCESS);
        checkpointed();
        running_again();
        CHECK_EQ(told(ACTION_HOST_IMPORT, 0), true);
        CHECK_EQ(told(ACTION_CONTENTS, 0), true);
        CHECK_EQ(told(ACTION_HOST_EXPORT, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
}

/* That the action waits from here to the unlock. */
static void check_waits(enum action action)
{
    ask(action, 1000);
    nap_ms(30);
    CHECK(!is_answered());
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_SUCCESS);
    nap_ms(30);
    CHECK(!is_answered());
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(answer(), 0);
}

TEST("a launch and a copy that begin while the process is checkpointed wait for the unlock")
{
    both_begin("checkpoint");
    checkpointed();
    check_waits(ACTION_LAUNCH);
    checkpointed();
    check_waits(ACTION_COPY);
    CHECK_EQ(told(ACTION_SYNCHRONIZE, 0), CUDA_SUCCESS);
}

static void check_kills(enum action action)
{
    both_begin("checkpoint");
    checkpointed();
    ask(action, 0);
    int status = status_after_end();
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK_EQ(state_of_target(), -(int)CUDA_ERROR_INVALID_VALUE);
}

TEST("cuEventQuery kills a process that is checkpointed")
{
    check_kills(ACTION_QUERY);
}

TEST("cuCtxSynchronize kills a process that is checkpointed")
{
    check_kills(ACTION_SYNCHRONIZE);
}

TEST("so does an allocation")
{
    check_kills(ACTION_ALLOCATE);
}

TEST("a query that begins while the process is locked waits for the unlock")
{
    both_begin("checkpoint");
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    ask(ACTION_QUERY, 0);
    nap_ms(30);
    CHECK(!is_answered());
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
    nap_ms(30);
    CHECK(!is_answered());
    running_again();
    CHECK_EQ(answer(), CUDA_SUCCESS);
}

TEST("a restore for which there is no room fails, and can never be made again")
{
    CUdeviceptr address;
    target_begin("checkpoint,memory=1280MiB,context=128MiB");
    program_begin();
    checkpointed();
    DRIVER_CALL(driver.cuMemAlloc_v2(&address, 1024 * MIB));
    uint64_t taken = used();
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_EQ(held_by_target(), 0);
    CHECK_EQ(used(), taken);
    DRIVER_CALL(driver.cuMemFree_v2(address));
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_ERROR_OPERATING_SYSTEM);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_EQ(held_by_target(), 0);
}

TEST("a checkpoint for which the RM frees not all memory fails, and takes none")
{
    both_begin("checkpoint,rm-status=0x40@free:5");
    uint64_t held = held_by_target();
    unsigned frees = common->frees;
    CHECK_EQ(frees, 0);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(common->frees - frees, 5);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    CHECK_EQ(held_by_target(), held);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(held_by_target(), 0);
    running_again();
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
}

static CUresult checkpoint_call(void)
{
    return driver.cuCheckpointProcessCheckpoint(target, NULL);
}

static CUresult restore_call(void)
{
    return driver.cuCheckpointProcessRestore(target, NULL);
}

TEST("each step may be another process', which ends after it")
{
    CUresult (*const calls[])(void) = {lock_call, checkpoint_call, restore_call, unlock_call};
    target_begin("checkpoint");
    for (unsigned i = 0; i < 4; i++)
        CHECK(ended_well(tool_fork(calls[i])));
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
    tool_begin();
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
}

TEST("a lock whose caller is killed comes about, and another process goes on from there")
{
    target_begin("checkpoint");
    CHECK_EQ(told(ACTION_DISABLE, 1), RM_OK);
    pid_t tool = tool_fork(lock_call);
    CHECK(!has_ended(tool, 100));
    kill(tool, SIGKILL);
    waitpid(tool, NULL, 0);
    tool_begin();
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    CHECK_EQ(told(ACTION_DISABLE, 0), RM_OK);
    /* Where it was killed before it called, this is the first lock. */
    CUresult r = lock_for(0);
    CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_LOCKED);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, NULL), CUDA_SUCCESS);
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
}

TEST("a process that is killed in any state leaves the machine whole")
{
    for (int steps = 0; steps < 4; steps++) {
        pid_t tester = fork();
        if (tester == 0) {
            both_begin("checkpoint");
            if (steps > 0)
                CHECK_EQ(lock_for(0), CUDA_SUCCESS);
            if (steps > 1)
                CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, NULL), CUDA_SUCCESS);
            if (steps > 2)
                CHECK_EQ(driver.cuCheckpointProcessRestore(target, NULL), CUDA_SUCCESS);
            kill(target, SIGKILL);
            (void)status_after_end();
            CHECK_EQ(used(), 0);
            CHECK_EQ(state_of_target(), -(int)CUDA_ERROR_INVALID_VALUE);
            CHECK_EQ(lock_for(0), CUDA_ERROR_INVALID_VALUE);
            _exit(0);
        }
        CHECK(ended_well(tester));
    }
}

TEST("a step that waits for a process ends when that is killed")
{
    target_begin("checkpoint");
    CHECK_EQ(told(ACTION_LAUNCH, NEVER), 0);
    pid_t tool = tool_fork(lock_call);
    CHECK(!has_ended(tool, 50));
    kill(target, SIGKILL);
    (void)status_after_end();
    int status;
    CHECK_EQ(waitpid(tool, &status, 0), tool);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST("a process that is stopped is not locked in time, and goes on as it was")
{
    both_begin("checkpoint");
    kill(target, SIGSTOP);
    int status;
    REQUIRE(waitpid(target, &status, WUNTRACED) == target && WIFSTOPPED(status));
    CHECK_EQ(lock_for(30), CUDA_ERROR_NOT_READY);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    kill(target, SIGCONT);
    CHECK_EQ(told(ACTION_CONTENTS, 0), true);
    CHECK_EQ(state_of_target(), CU_PROCESS_STATE_RUNNING);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
}

TEST("the calls are not supported without the word, of the caller or of the process called about")
{
    CUprocessState state;
    int thread;
    target_begin("");
    pid_t tool = fork();
    if (tool == 0) {
        begin("");
        tool_begin();
        CHECK_EQ(driver.cuCheckpointProcessGetState(target, &state), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQ(lock_for(0), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQ(checkpoint_call(), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQ(restore_call(), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQ(unlock_call(), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQ(driver.cuCheckpointProcessGetRestoreThreadId(target, &thread),
            CUDA_ERROR_NOT_SUPPORTED);
        _exit(0);
    }
    CHECK(ended_well(tool));
    setenv("VGPU_SIM", "checkpoint", 1);
    tool_begin();
    CHECK_EQ(driver.cuCheckpointProcessGetState(target, &state), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(driver.cuCheckpointProcessGetState(getpid(), &state), CUDA_SUCCESS);
}

TEST("a driver before CUDA 12.8 does not have them")
{
    begin("checkpoint,driver=535");
    REQUIRE(driver_load());
    CHECK(driver.cuInit && !driver.cuCheckpointProcessLock);
}

TEST("the thread that does it is the process' own and takes no signals")
{
    char path[64], line[256];
    unsigned long long blocked = 0;
    int thread = 0;
    both_begin("checkpoint");
    CHECK_EQ(driver.cuCheckpointProcessGetRestoreThreadId(target, &thread), CUDA_SUCCESS);
    CHECK(thread != target);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)target, thread);
    FILE *file = fopen(path, "re");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof(line), file))
        (void)!sscanf(line, "SigBlk: %llx", &blocked);
    fclose(file);
    /* All but SIGKILL, SIGSTOP and those that the C library keeps for itself. */
    for (int number = 1; number < 32; number++)
        CHECK(number == SIGKILL || number == SIGSTOP || (blocked >> (number - 1) & 1));
}

TEST("arguments that are not zero where they must be, and pids of no process, are refused")
{
    CUcheckpointLockArgs lock = {.reserved0 = 1};
    CUcheckpointCheckpointArgs checkpoint = {.reserved = {0, 1}};
    CUcheckpointRestoreArgs restore = {.gpuPairsCount = 1};
    CUcheckpointUnlockArgs unlock = {.reserved = {0, 0, 1}};
    CUcheckpointGpuPair same = {.oldUuid = {{1}}, .newUuid = {{1}}};
    CUprocessState state;
    target_begin("checkpoint");
    REQUIRE(driver_load());
    CHECK_EQ(driver.cuCheckpointProcessGetState(target, &state), CUDA_ERROR_NOT_INITIALIZED);
    DRIVER_CALL(driver.cuInit(0));
    CHECK_EQ(driver.cuCheckpointProcessGetState(target, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuCheckpointProcessGetRestoreThreadId(target, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuCheckpointProcessGetState(1 << 30, &state), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuCheckpointProcessGetState(-1, &state), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuCheckpointProcessLock(target, &lock), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(lock_for(0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessCheckpoint(target, &checkpoint), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(checkpoint_call(), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, &restore), CUDA_ERROR_INVALID_VALUE);
    restore.gpuPairs = &same;
    CHECK_EQ(driver.cuCheckpointProcessRestore(target, &restore), CUDA_SUCCESS);
    CHECK_EQ(driver.cuCheckpointProcessUnlock(target, &unlock), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(unlock_call(), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
