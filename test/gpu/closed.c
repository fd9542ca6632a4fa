/* SPDX-License-Identifier: Apache-2.0 */
/* Programs for closed.py, each of which answers in lines.
 * closed primary|own: a kernel that never ends by itself, in the primary context or in one that was
 *     made; then what the lines of its input say: exit, fork, exec, end (of that context), kernel,
 *     call (of the driver, that is no launch)
 * closed none: no kernel, and the same lines
 * closed once: one kernel of 1 ms */
#define _GNU_SOURCE
#include "../driver/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HELD_BYTES (256ull << 20)
#define SHORT_NS 1000000ull
#define STOP_AFTER_MS 100
#define WORDS_BYTES 4096

static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 duration_ns, .param .u64 words)\n{\n"
    ".reg .b64 %rd<6>;\n.reg .b32 %r<2>;\n.reg .pred %p<3>;\n"
    "ld.param.u64 %rd1, [duration_ns];\nld.param.u64 %rd5, [words];\n"
    "cvta.to.global.u64 %rd5, %rd5;\nmov.u64 %rd2, %globaltimer;\nagain:\n"
    "ld.volatile.global.u32 %r1, [%rd5];\nsetp.ne.u32 %p2, %r1, 0;\n@%p2 bra done;\n"
    "mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
    "setp.lt.u64 %p1, %rd4, %rd1;\n@%p1 bra again;\ndone:\nret;\n}\n";

/* Ours, so that they outlive the context in which the card knows them: what ends kernels. */
static volatile uint32_t *words;
static CUcontext primary, own;

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

static void primary_begin(void)
{
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&primary, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
}

/* In the current context. */
static CUstream launch(uint64_t duration_ns)
{
    CUmodule module;
    CUfunction spin;
    CUstream stream;
    CUdeviceptr address;
    void *params[] = {&duration_ns, &address};
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(
        driver.cuMemHostRegister_v2((void *)words, WORDS_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    DRIVER_CALL(driver.cuMemHostGetDevicePointer_v2(&address, (void *)words, 0));
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    return stream;
}

static void run_short(void)
{
    CUstream stream = launch(SHORT_NS);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    DRIVER_CALL(driver.cuMemHostUnregister((void *)words));
}

static void run_for_ever(void)
{
    CUdeviceptr held;
    if (own)
        DRIVER_CALL(driver.cuCtxSetCurrent(own));
    DRIVER_CALL(driver.cuMemAlloc_v2(&held, HELD_BYTES));
    (void)launch(UINT64_MAX);
}

static void *stop_kernel(void *unused)
{
    struct timespec pause = {.tv_nsec = STOP_AFTER_MS * 1000000l};
    (void)unused;
    nanosleep(&pause, NULL);
    *words = 1;
    return NULL;
}

/* The driver waits for the kernel, which is told to end meanwhile, and sees that only while it
 * runs. */
static void end_context(void)
{
    pthread_t thread;
    unsigned long long began = now_ns();
    if (pthread_create(&thread, NULL, stop_kernel, NULL) != 0)
        exit(3);
    DRIVER_CALL(own ? driver.cuCtxDestroy_v2(own) : driver.cuDevicePrimaryCtxReset_v2(0));
    unsigned long long ended = now_ns();
    pthread_join(thread, NULL);
    *words = 0;
    own = NULL;
    primary_begin();
    run_short();
    printf("ended %llu %llu\n", began, ended);
}

static void fork_children(void)
{
    unsigned long long began = now_ns();
    int status, bad = 0;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0 && i == 0)
            exit(0);
        if (child == 0)
            _exit(0);
        bad += waitpid(child, &status, 0) != child || status != 0;
    }
    printf("forked %llu %llu bad %d\n", began, now_ns(), bad);
}

static void leave(bool by_exec)
{
    printf("leaves %llu\n", now_ns());
    fflush(stdout);
    if (by_exec)
        execl("/proc/self/exe", "closed", "once", (char *)NULL);
    exit(by_exec);
}

static void run_kernel(void)
{
    unsigned long long began = now_ns();
    run_short();
    printf("ran %llu %llu\n", began, now_ns());
}

static void call(void)
{
    unsigned long long began = now_ns();
    CUdeviceptr memory;
    DRIVER_CALL(driver.cuMemAlloc_v2(&memory, 1 << 20));
    printf("called %llu %llu\n", began, now_ns());
}

static void obey(void)
{
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "exit\n") || !strcmp(line, "exec\n"))
            leave(!strcmp(line, "exec\n"));
        if (!strcmp(line, "fork\n"))
            fork_children();
        else if (!strcmp(line, "end\n"))
            end_context();
        else if (!strcmp(line, "kernel\n"))
            run_kernel();
        else if (!strcmp(line, "call\n"))
            call();
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (!driver_load())
        return 77;
    words = mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        return 3;
    DRIVER_CALL(driver.cuInit(0));
    primary_begin();
    if (!strcmp(what, "own"))
        DRIVER_CALL(driver.cuCtxCreate_v2(&own, 0, 0));
    if (!strcmp(what, "own") || !strcmp(what, "primary"))
        run_for_ever();
    else
        run_short();
    printf("ready %llu\n", now_ns());
    fflush(stdout);
    if (strcmp(what, "once") != 0)
        obey();
    *words = 1;
    return 0;
}
