/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate on the simulated machine: whose kernels run while it is closed, and where it
 * says that it does not work. What kernels did is read off the machine, by its own time. */
#include "gate.h"

#include "bed.h"
#include "load.h"
#include "sim/machine/machine.h"

#include <dlfcn.h>
#include <pthread.h>

#define GATE .native = true, .behind = "test/pace/libtest-gate.so"
#define FOREVER UINT64_MAX
#define WAIT_MS 20
#define PATIENCE_MS 20000

/* The one that is preloaded. */
static struct gate gate;

static void gate_find(void)
{
    const struct gate *preloaded = dlsym(RTLD_DEFAULT, "gate_functions");
    REQUIRE(preloaded != NULL);
    gate = *preloaded;
}

static void begin(void)
{
    gate_find();
    REQUIRE(sim_attach() == 0);
    load_begin(0);
}

static uint64_t busy_ns(unsigned device)
{
    return load_busy_ns(device, getpid());
}

/* Kernels of this process run on the device. */
static bool runs(unsigned device)
{
    uint64_t before = busy_ns(device);
    for (unsigned waited = 0; waited < PATIENCE_MS && busy_ns(device) == before; waited++)
        bed_sleep_ms(1);
    return busy_ns(device) != before;
}

/* None does: not for a nanosecond. */
static bool stands(unsigned device)
{
    uint64_t before = busy_ns(device);
    bed_sleep_ms(WAIT_MS);
    return busy_ns(device) == before;
}

BED_TEST("a kernel that never ends is taken off the GPU when the call returns, and goes on", GATE)
{
    begin();
    CHECK_EQ(gate.test(0), RM_CHANNELS_WORKS);
    CHECK_EQ(load_launch(load_stream(), FOREVER), CUDA_SUCCESS);
    CHECK(runs(0));
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(gate.close(0, NULL), (int)gate.count(0));
        CHECK(stands(0));
        CHECK_EQ(gate.open(0, NULL), (int)gate.count(0));
        CHECK(runs(0));
    }
    CHECK_EQ(gate.state(0), RM_CHANNELS_WORKS);
}

BED_TEST("four contexts stop together and go on together", GATE)
{
    CUcontext contexts[4];
    CUevent events[4];
    begin();
    unsigned count = gate.count(0);
    CHECK(count > 0);
    for (int i = 0; i < 4; i++) {
        REQUIRE(CU(cuCtxCreate_v2)(&contexts[i], 0, 0) == CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(load_kernel(), NULL, 5 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuEventCreate)(&events[i], 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuEventRecord)(events[i], NULL), CUDA_SUCCESS);
        CHECK_EQ(gate.close(0, NULL), (int)count * (i + 2));
        CHECK(stands(0));
        CHECK_EQ(gate.open(0, NULL), (int)count * (i + 2));
    }
    CHECK_EQ(gate.count(0), count * 5);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(CU(cuCtxSetCurrent)(contexts[i]), CUDA_SUCCESS);
        CHECK_EQ(CU(cuEventSynchronize)(events[i]), CUDA_SUCCESS);
    }
}

BED_TEST("an idle context is destroyed while closed, the others go on afterwards", GATE)
{
    CUcontext contexts[3];
    begin();
    unsigned count = gate.count(0);
    for (int i = 0; i < 3; i++)
        REQUIRE(CU(cuCtxCreate_v2)(&contexts[i], 0, 0) == CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(load_kernel(), NULL, FOREVER), CUDA_SUCCESS);
    CHECK_EQ(gate.close(0, NULL), (int)count * 4);
    CHECK_EQ(CU(cuCtxDestroy_v2)(contexts[0]), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(contexts[1]), CUDA_SUCCESS);
    CHECK_EQ(gate.count(0), count * 2);
    CHECK(stands(0));
    CHECK_EQ(gate.open(0, NULL), (int)count * 2);
    CHECK(runs(0));
    CHECK_EQ(gate.state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(bed_stderr_lines("channel gate"), 0);
}

BED_TEST("a context that is held open while it is destroyed ends, whatever is still to run", GATE)
{
    CUcontext context;
    begin();
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(load_kernel(), NULL, 20 * MS), CUDA_SUCCESS);
    CHECK(gate.close(0, NULL) > 0);
    gate.hold_open();
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQ(gate.close(0, NULL), -EBUSY);
    gate.release();
    CHECK_EQ(gate.close(0, NULL), (int)gate.count(0));
}

BED_TEST("the kernels of a context that is made while closed wait for the opening", GATE)
{
    CUcontext context;
    begin();
    unsigned count = gate.count(0);
    CHECK_EQ(gate.close(0, NULL), (int)count);
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(load_kernel(), NULL, 1 * MS), CUDA_SUCCESS);
    CHECK(stands(0));
    CHECK_EQ(gate.open(0, NULL), (int)count * 2);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

BED_TEST("a device that is closed before the first context holds its kernels back", GATE)
{
    gate_find();
    REQUIRE(sim_attach() == 0);
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    CHECK_EQ(gate.close(0, NULL), 0);
    load_begin(0);
    CHECK_EQ(load_launch(NULL, 1 * MS), CUDA_SUCCESS);
    CHECK(stands(0));
    CHECK_EQ(gate.open(0, NULL), (int)gate.count(0));
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

BED_TEST("the other GPU runs on", GATE, .sim = "devices=2")
{
    begin();
    CHECK_EQ(load_launch(NULL, FOREVER), CUDA_SUCCESS);
    bed_context(1);
    CHECK_EQ(load_launch_of(load_kernel(), NULL, FOREVER), CUDA_SUCCESS);
    CHECK(gate.close(0, NULL) > 0);
    CHECK(stands(0));
    CHECK(runs(1));
    CHECK(gate.close(1, NULL) > 0);
    CHECK(stands(1));
    CHECK(gate.open(0, NULL) > 0);
    CHECK(runs(0));
    CHECK(stands(1));
    CHECK_EQ(gate.state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(gate.state(1), RM_CHANNELS_WORKS);
}

static void *close_and_open(void *stop)
{
    while (!__atomic_load_n((bool *)stop, __ATOMIC_ACQUIRE)) {
        (void)gate.close(0, NULL);
        (void)gate.open(0, NULL);
    }
    return NULL;
}

BED_TEST("contexts come and go while another thread closes and opens", GATE)
{
    static bool stop;
    pthread_t thread;
    begin();
    unsigned count = gate.count(0);
    CHECK_EQ(gate.test(0), RM_CHANNELS_WORKS);
    REQUIRE(pthread_create(&thread, NULL, close_and_open, &stop) == 0);
    for (int i = 0; i < 20; i++) {
        CUcontext context;
        REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(load_kernel(), NULL, 100 * US), CUDA_SUCCESS);
        gate.hold_open();
        CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
        gate.release();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK_EQ(gate.count(0), count);
    CHECK_EQ(gate.state(0), RM_CHANNELS_WORKS);
    CHECK(!gate.is_closed(0));
}

static void run_beside(void *unused)
{
    (void)unused;
    load_begin(0);
    CHECK_EQ(load_launch(NULL, 1 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void close_and_die(void *unused)
{
    (void)unused;
    begin();
    CHECK_EQ(load_launch(NULL, FOREVER), CUDA_SUCCESS);
    CHECK(gate.close(0, NULL) > 0);
    kill(getpid(), SIGKILL);
}

BED_TEST("a process that is killed while closed leaves the GPU to the others", GATE)
{
    int status;
    pid_t pid = bed_fork(close_and_die, NULL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status));
    CHECK(bed_ended_well(bed_fork(run_beside, NULL)));
}

static void close_and_stay(void *unused)
{
    (void)unused;
    begin();
    CHECK_EQ(load_launch(NULL, FOREVER), CUDA_SUCCESS);
    CHECK(gate.close(0, NULL) > 0);
    bed_sleep_ms(PATIENCE_MS);
}

BED_TEST("closing one process leaves the others their GPU", GATE)
{
    pid_t pid = bed_fork(close_and_stay, NULL);
    CHECK(bed_ended_well(bed_fork(run_beside, NULL)));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static const char *words(void)
{
    static char text[RM_CHANNELS_WORDS];
    gate.describe(0, text);
    return text;
}

/* Says why not, and is not in the way. */
static void check_does_not_work(enum rm_channels_state state, const char *why)
{
    begin();
    CHECK_EQ(gate.test(0), state);
    if (!CHECK(strstr(words(), why) != NULL))
        dprintf(STDOUT_FILENO, "# %s\n", words());
    (void)gate.close(0, NULL);
    CHECK_EQ(load_launch(NULL, 1 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

BED_TEST("a driver without GSP firmware", GATE, .sim = "no-gsp")
{
    check_does_not_work(RM_CHANNELS_REFUSED, "(status 0x56, as without GSP firmware)");
    CHECK_EQ(gate.close(0, NULL), -ENOTSUP);
}

BED_TEST("a driver of before GSP firmware", GATE, .sim = "driver=470")
{
    check_does_not_work(RM_CHANNELS_REFUSED, "status 0x56");
}

BED_TEST("a client of an MPS server", GATE, .sim = "mps")
{
    check_does_not_work(RM_CHANNELS_NO_GROUP, "no compute channels");
}

BED_TEST("a driver whose groups are of an unknown class", GATE, .sim = "driver=future")
{
    check_does_not_work(RM_CHANNELS_NO_GROUP, "no compute channels");
}

BED_TEST("a sandbox that filters controls", GATE, .sim = "filter")
{
    check_does_not_work(RM_CHANNELS_NO_GPU, "on which GPU");
}

BED_TEST("a sandbox that refuses every ioctl", GATE, .sim = "no-rm")
{
    check_does_not_work(RM_CHANNELS_NO_GROUP, "no compute channels");
}

BED_TEST("a group that does not answer", GATE, .sim = "rm-status=0x1b@0xa06c0104")
{
    check_does_not_work(RM_CHANNELS_REFUSED, "status 0x1b");
}

BED_TEST("a switch that is refused later ends the gate, and the kernel runs on", GATE,
    .sim = "rm-status=0x1f@0x2080110b:6,rm-status=0x1f@0x2080110b:7")
{
    begin();
    CHECK_EQ(gate.test(0), RM_CHANNELS_WORKS); /* calls 1 to 3 */
    CHECK_EQ(load_launch(NULL, FOREVER), CUDA_SUCCESS);
    CHECK(gate.close(0, NULL) > 0);
    CHECK(gate.open(0, NULL) > 0);
    CHECK_EQ(gate.close(0, NULL), -ENOTSUP);
    CHECK(runs(0));
    CHECK_EQ(gate.close(0, NULL), -ENOTSUP);
    CHECK_EQ(bed_stderr_lines("the channel gate is given up"), 1);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
