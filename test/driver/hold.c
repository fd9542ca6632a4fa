/* SPDX-License-Identifier: Apache-2.0 */
/* hold [--fork] MIB SECONDS: allocates and holds; prints one line when it does. --fork: a child
 * holds the driver's descriptors on for SECONDS while the parent waits to be killed. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    bool forks = argc > 1 && !strcmp(argv[1], "--fork");
    argv += forks;
    CUdeviceptr pointer;
    if (argc - forks < 3 || !driver_load())
        return 77;
    (void)driver_enter();
    CUresult result = driver.cuMemAlloc_v2(&pointer, (size_t)strtoull(argv[1], NULL, 10) << 20);
    struct vgpu_usage usage = driver_region_usage();
    pid_t child = forks ? fork() : 0;
    if (forks && child == 0) {
        sleep((unsigned)strtoul(argv[2], NULL, 10));
        _exit(0);
    }
    printf("pid %d child %d %s %.0f MiB by the ledger\n", (int)getpid(), (int)child,
        driver_error(result), (double)usage.bytes / 1048576.0);
    fflush(stdout);
    sleep((unsigned)strtoul(argv[2], NULL, 10));
    return result != CUDA_SUCCESS;
}
