/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/results/need.h"

#include <stdio.h>
#include <stdlib.h>

void *bench_need(void *memory)
{
    if (!memory) {
        fputs("vgpu: bench: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}
