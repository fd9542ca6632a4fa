/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's events that several processes know: recorded by one, waited for by another. */
#include "program.h"

#include "sim/machine/machine_layout.h"

#define MS 1000000ull
#define SHARED (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)

/* What the processes of a test share beside the machine. */
static struct {
    CUipcEventHandle handle;
    volatile uint32_t word; /* what the recording stream waits for */
    volatile int step;
} * common;

static void common_begin(void)
{
    begin("");
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(common != MAP_FAILED);
}

static void step_wait(int step)
{
    while (common->step < step)
        nap_ms(1);
}

static CUevent shared_event(void)
{
    CUevent event;
    DRIVER_CALL(driver.cuEventCreate(&event, SHARED));
    DRIVER_CALL(driver.cuIpcGetEventHandle(&common->handle, event));
    return event;
}

static CUevent opened_event(void)
{
    CUevent event;
    DRIVER_CALL(driver.cuIpcOpenEventHandle(&event, common->handle));
    return event;
}

static void release(void *unused)
{
    (void)unused;
    while (!common->word)
        nap_ms(1);
}

/* Behind what lasts until the word is set. */
static void record_late(CUevent event)
{
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuLaunchHostFunc(stream, release, NULL));
    launch(stream, MS);
    DRIVER_CALL(driver.cuEventRecord(event, stream));
}

/* Of an event that is recorded and not reached: each way to ask and to wait. */
static void check_waits(CUevent event)
{
    CUstream stream = stream_new();
    CHECK_EQ(driver.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_EQ(driver.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
    launch(stream, 1000);
    nap_ms(5);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    common->word = 1;
    CHECK_EQ(driver.cuEventSynchronize(event), CUDA_SUCCESS);
    CHECK_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static bool ended_well(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST("a process waits for an event of its own that another process records")
{
    common_begin();
    pid_t pid = fork();
    if (pid == 0) {
        step_wait(1);
        program_begin();
        record_late(opened_event());
        common->step = 2;
        DRIVER_CALL(driver.cuCtxSynchronize());
        _exit(0);
    }
    program_begin();
    CUevent event = shared_event();
    CHECK_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);
    common->step = 1;
    step_wait(2);
    check_waits(event);
    CHECK(ended_well(pid));
}

TEST("a process waits for another's event, recorded before it was opened and after")
{
    common_begin();
    pid_t pid = fork();
    if (pid == 0) {
        step_wait(1);
        program_begin();
        CUevent event = opened_event();
        check_waits(event);
        common->word = 0;
        common->step = 2;
        step_wait(3);
        check_waits(event);
        DRIVER_CALL(driver.cuEventDestroy_v2(event));
        _exit(0);
    }
    program_begin();
    CUevent event;
    DRIVER_CALL(driver.cuEventCreate(&event, SHARED));
    record_late(event);
    DRIVER_CALL(driver.cuIpcGetEventHandle(&common->handle, event));
    common->step = 1;
    step_wait(2);
    record_late(event);
    common->step = 3;
    CHECK(ended_well(pid));
    CHECK_EQ(driver.cuEventSynchronize(event), CUDA_SUCCESS);
    DRIVER_CALL(driver.cuEventRecord(event, stream_new()));
    CHECK_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);
}

TEST("who waits for what a killed process recorded goes on")
{
    common_begin();
    pid_t pid = fork();
    if (pid == 0) {
        step_wait(1);
        program_begin();
        record_late(opened_event());
        common->step = 2;
        pause();
    }
    program_begin();
    CUevent event = shared_event();
    common->step = 1;
    step_wait(2);
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuStreamWaitEvent(stream, event, 0));
    CHECK_EQ(driver.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_EQ(driver.cuEventSynchronize(event), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST("a stream that waits for a killed process' event goes on by itself")
{
    common_begin();
    pid_t pid = fork();
    if (pid == 0) {
        program_begin();
        record_late(shared_event());
        common->step = 1;
        pause();
    }
    program_begin();
    step_wait(1);
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuStreamWaitEvent(stream, opened_event(), 0));
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST("only events that were made for it go to other processes, while their maker has them")
{
    CUipcEventHandle none = {0};
    CUevent event, plain;
    common_begin();
    pid_t pid = fork();
    if (pid == 0) {
        program_begin();
        event = shared_event();
        common->step = 1;
        step_wait(2);
        DRIVER_CALL(driver.cuEventDestroy_v2(event));
        common->step = 3;
        _exit(0);
    }
    program_begin();
    step_wait(1);
    DRIVER_CALL(driver.cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    CHECK_EQ(driver.cuIpcGetEventHandle(&none, plain), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(driver.cuIpcOpenEventHandle(&event, none), CUDA_ERROR_INVALID_VALUE);
    event = opened_event();
    CHECK_EQ(driver.cuIpcGetEventHandle(&none, event), CUDA_ERROR_INVALID_HANDLE);
    common->step = 2;
    step_wait(3);
    CHECK_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);
    CHECK_EQ(driver.cuIpcOpenEventHandle(&event, common->handle), CUDA_ERROR_MAP_FAILED);
    (void)shared_event();
    CHECK_EQ(driver.cuIpcOpenEventHandle(&event, common->handle), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(ended_well(pid));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
