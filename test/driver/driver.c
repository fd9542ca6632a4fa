/* SPDX-License-Identifier: Apache-2.0 */
/* The test programs' common part. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct driver driver;

const char driver_ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry big(.param .u64 cell)\n{\n"
    ".local .align 4 .b8 frame[32768];\n.reg .b64 %rd<9>;\n.reg .b32 %r<9>;\n"
    "ld.param.u64 %rd1, [cell];\ncvta.to.global.u64 %rd1, %rd1;\n"
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nmov.u64 %rd3, frame;\n"
    "add.u64 %rd4, %rd3, %rd2;\nst.local.u32 [%rd4], %r1;\n"
    "ld.global.u32 %r2, [%rd1];\nmul.wide.u32 %rd5, %r2, 4;\nadd.u64 %rd6, %rd3, %rd5;\n"
    "ld.local.u32 %r3, [%rd6];\nst.global.u32 [%rd1], %r3;\nret;\n}\n"
    ".visible .entry nop(.param .u64 cell)\n{\nret;\n}\n";

const char driver_spin_ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 duration_ns)\n{\n.reg .b64 %rd<5>;\n.reg .pred %p<2>;\n"
    "ld.param.u64 %rd1, [duration_ns];\nmov.u64 %rd2, %globaltimer;\nagain:\n"
    "mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
    "setp.lt.u64 %p1, %rd4, %rd1;\n@%p1 bra again;\nret;\n}\n";

bool driver_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("SKIP: no CUDA driver: %s\n", dlerror());
        return false;
    }
#define FUNCTION(name) driver.name = (__typeof__(name) *)dlsym(library, #name);
#include "functions.def"
#undef FUNCTION
    return true;
}

const char *driver_error(CUresult result)
{
    const char *name = NULL;
    if (driver.cuGetErrorName)
        driver.cuGetErrorName(result, &name);
    return name ? name : "unknown";
}

int driver_broken;

void driver_promise(const char *what, bool kept)
{
    printf("%s - %s\n", kept ? "ok" : "NOT OK", what);
    driver_broken += !kept;
}

void driver_must(CUresult result, const char *call, const char *file, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s:%d: %s: %s (%d)\n", file, line, call, driver_error(result), (int)result);
    exit(1);
}

CUcontext driver_enter(void)
{
    CUcontext context;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    return context;
}

struct vgpu_usage driver_region_usage(void)
{
    static const struct vgpu_region *region;
    struct vgpu_usage none = {0};
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    if (!region && path) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        void *map =
            fd < 0 ? MAP_FAILED
                   : mmap(NULL, sizeof(*region), PROT_READ, MAP_SHARED, fd, VGPU_REGION_OFFSET);
        if (fd >= 0)
            close(fd);
        region = map == MAP_FAILED ? NULL : map;
    }
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        uint64_t word = region->slots[i].state;
        if ((word & 3) == VGPU_SLOT_LIVE && (int)((uint32_t)word >> 2) == getpid())
            return region->slots[i].usage[0];
    }
    return none;
}

/* The watcher: reads pids, answers bytes. Its LD_PRELOAD keeps the simulator's part alone. */
static void watcher_start(int *ret_to, int *ret_from)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        exit(1);
    char *self = realpath("/proc/self/exe", NULL);
    char path[4096];
    snprintf(path, sizeof(path), "%.*s/nvml-watch", (int)(strrchr(self, '/') - self), self);
    free(self);
    if (vfork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        const char *preload = getenv("VGPU_TEST_WATCH_PRELOAD");
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        else
            unsetenv("LD_PRELOAD");
        const char *emulator = getenv("VGPU_TEST_EMULATOR"); /* built for another machine */
        if (emulator)
            execlp(emulator, emulator, path, NULL);
        execl(path, path, NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    *ret_to = to[1];
    *ret_from = from[0];
}

int64_t driver_nvml_bytes(int pid)
{
    static int to = -1, from = -1;
    char answer[64];
    if (to < 0)
        watcher_start(&to, &from);
    dprintf(to, "%d\n", pid);
    ssize_t got = read(from, answer, sizeof(answer) - 1);
    if (got <= 0)
        return -1;
    answer[got] = '\0';
    return strtoll(answer, NULL, 10);
}
