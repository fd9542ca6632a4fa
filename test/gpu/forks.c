/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that fork around CUDA, for forks.py to look at from outside. Each says what it did in
 * lines and then waits for the end of its input, or to be killed.
 * forks exec|execcuda PROGRAM|prefork|daemon|closeall MIB */
#define _GNU_SOURCE
#include "../driver/driver.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4

static size_t bytes;

static void context_begin(void)
{
    CUcontext context;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
}

static void allocate(void)
{
    CUdeviceptr pointer;
    context_begin();
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, bytes));
}

static void wait_for_end(void)
{
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

/* The child becomes another program: what it keeps of the parent's descriptors, the kernel says. */
static int child_execs(const char *program)
{
    allocate();
    pid_t child = fork();
    if (child == 0) {
        if (program)
            execl(program, program, "--fill", "64", (char *)NULL);
        else
            execl("/bin/sleep", "sleep", "120", (char *)NULL);
        _exit(127);
    }
    printf("pid %d child %d\n", (int)getpid(), (int)child);
    wait_for_end();
    return 0;
}

/* A server that forks its workers before any of them uses CUDA. None takes more than its context
 * before all have one. */
static int prefork(void)
{
    pid_t children[CHILDREN];
    int ready[2], start[2], status, bad = 0;
    char byte = 0;
    if (pipe(ready) != 0 || pipe(start) != 0)
        return 3;
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            CUdeviceptr pointer;
            unsigned long blocks = 0;
            close(start[1]);
            context_begin();
            if (write(ready[1], &byte, 1) != 1 || read(start[0], &byte, 1) != 0)
                _exit(3);
            while (driver.cuMemAlloc_v2(&pointer, 64 << 20) == CUDA_SUCCESS)
                blocks++;
            DRIVER_CALL(driver.cuCtxSynchronize());
            printf("child %d took %lu MiB\n", (int)getpid(), blocks * 64);
            wait_for_end();
            _exit(0);
        }
    }
    close(ready[1]);
    for (int i = 0; i < CHILDREN; i++)
        bad += read(ready[0], &byte, 1) != 1;
    close(start[1]);
    for (int i = 0; i < CHILDREN; i++) {
        waitpid(children[i], &status, 0);
        bad += status != 0;
    }
    return bad;
}

static void close_all(void)
{
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
}

/* NVML is asked first, as by programs that choose a card; then the process goes into the background
 * with its descriptors closed, and there it uses CUDA. */
static int daemonise(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    __typeof__(nvmlInit_v2) *init =
        library ? (__typeof__(init))dlsym(library, "nvmlInit_v2") : NULL;
    if (!init || init() != NVML_SUCCESS)
        return 3;
    if (fork() != 0)
        _exit(0);
    setsid();
    if (fork() != 0)
        _exit(0);
    close_all();
    allocate();
    printf("pid %d child 0\n", (int)getpid());
    wait_for_end();
    return 0;
}

/* All descriptors, the driver's among them, closed under a living context. */
static int closes_all(void)
{
    allocate();
    close_all();
    printf("pid %d child 0\n", (int)getpid());
    wait_for_end();
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 3 || !driver_load())
        return 77;
    const char *what = argv[1];
    bytes = (size_t)atoll(argv[argc - 1]) << 20;
    if (!strcmp(what, "exec"))
        return child_execs(NULL);
    if (!strcmp(what, "execcuda"))
        return child_execs(argv[2]);
    if (!strcmp(what, "prefork"))
        return prefork();
    if (!strcmp(what, "daemon"))
        return daemonise();
    return strcmp(what, "closeall") ? 2 : closes_all();
}
