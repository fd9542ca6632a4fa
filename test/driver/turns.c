/* SPDX-License-Identifier: Apache-2.0 */
/* turns MIB SECONDS: has so much device memory and reads all of it again and again. Prints how many
 * rounds that were, and each stretch of time in which rounds followed one another, by the machine's
 * clock; exit status 1 where memory does not hold what was written. `turns --copy MIB` prints the
 * rate of plain copies of pinned memory, in and out. For a card and the simulator. */
#include "driver.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576ull
#define PIECE (256 * MIB)
#define PIECES_MAX 256
#define PAUSE_NS 150000000ull
#define ROUND_NS 2000000ull /* on the simulator, where all is on the card */

static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry read(.param .u64 duration_ns, .param .u64 read_at, .param .u64 "
    "read_bytes)\n{\n"
    ".reg .u32 %r<4>;\n.reg .u64 %a<8>;\n.reg .pred %p<2>;\n"
    "mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n"
    "mad.lo.u32 %r0, %r0, %r1, %r2;\nmul.wide.u32 %a0, %r0, 8;\n"
    "mov.u32 %r2, %nctaid.x;\nmul.lo.u32 %r1, %r1, %r2;\nmul.wide.u32 %a1, %r1, 8;\n"
    "ld.param.u64 %a2, [read_at];\nld.param.u64 %a3, [read_bytes];\nmov.u64 %a5, 0;\n"
    "AGAIN:\nsetp.ge.u64 %p0, %a0, %a3;\n@%p0 bra DONE;\n"
    "add.u64 %a4, %a2, %a0;\nld.global.u64 %a6, [%a4];\nadd.u64 %a5, %a5, %a6;\n"
    "add.u64 %a0, %a0, %a1;\nbra AGAIN;\n"
    "DONE:\nsetp.ne.u64 %p1, %a5, 1234567890123457;\n@%p1 bra END;\nst.global.u64 [%a2], %a5;\n"
    "END:\nret;\n}\n";

static CUdeviceptr pieces[PIECES_MAX];
static uint64_t bytes[PIECES_MAX];
static unsigned count;
static CUfunction kernel;

static uint64_t mark_of(unsigned piece, unsigned place)
{
    return 0x5eed000000000000ull | piece << 8 | place;
}

/* At the beginning, at the end, and evenly between. */
static CUdeviceptr place_of(unsigned piece, unsigned place)
{
    return pieces[piece] + (bytes[piece] - 8) / 7 / 8 * 8 * place;
}

static void take(uint64_t total)
{
    for (uint64_t at = 0; at < total && count < PIECES_MAX; at += PIECE, count++) {
        bytes[count] = total - at < PIECE ? total - at : PIECE;
        DRIVER_CALL(driver.cuMemAlloc_v2(&pieces[count], bytes[count]));
        for (unsigned i = 0; i < 8; i++) {
            uint64_t mark = mark_of(count, i);
            DRIVER_CALL(driver.cuMemcpyHtoD_v2(place_of(count, i), &mark, 8));
        }
    }
}

static bool is_whole(unsigned piece)
{
    bool whole = true;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t mark = 0;
        DRIVER_CALL(driver.cuMemcpyDtoH_v2(&mark, place_of(piece, i), 8));
        whole &= mark == mark_of(piece, i);
    }
    return whole;
}

static void read_all(void)
{
    uint64_t duration_ns = ROUND_NS / count;
    for (unsigned i = 0; i < count; i++) {
        void *params[] = {&duration_ns, &pieces[i], &bytes[i]};
        DRIVER_CALL(driver.cuLaunchKernel(kernel, 1024, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    }
    DRIVER_CALL(driver.cuCtxSynchronize());
}

static void say_stretch(uint64_t from_ns, uint64_t to_ns, uint64_t rounds)
{
    printf("stretch %.3f %.3f %llu\n", (double)from_ns / 1e9, (double)to_ns / 1e9,
        (unsigned long long)rounds);
    fflush(stdout);
}

static int work(uint64_t seconds)
{
    uint64_t begun_ns = clock_now_ns(), from_ns = begun_ns, last_ns = begun_ns, rounds = 0,
             before = 0;
    bool whole = true;
    while (last_ns - begun_ns < seconds * 1000000000u) {
        read_all();
        whole &= is_whole((unsigned)(rounds % count));
        uint64_t now = clock_now_ns();
        if (now - last_ns > PAUSE_NS) {
            say_stretch(from_ns, last_ns, rounds - before);
            before = rounds;
            from_ns = now;
        }
        last_ns = now;
        rounds++;
    }
    say_stretch(from_ns, last_ns, rounds - before);
    for (unsigned i = 0; i < count; i++)
        whole &= is_whole(i);
    printf("rounds %llu in %.3f s, %s\n", (unsigned long long)rounds,
        (double)(last_ns - begun_ns) / 1e9, whole ? "whole" : "NOT WHOLE");
    return whole ? 0 : 1;
}

static int copy(uint64_t size)
{
    void *host;
    CUdeviceptr device;
    DRIVER_CALL(driver.cuMemAllocHost_v2(&host, size));
    DRIVER_CALL(driver.cuMemAlloc_v2(&device, size));
    memset(host, 1, size);
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(device, host, size));
    uint64_t from_ns = clock_now_ns();
    DRIVER_CALL(driver.cuMemcpyDtoH_v2(host, device, size));
    uint64_t between_ns = clock_now_ns();
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(device, host, size));
    printf("copy out %.2f GB/s, in %.2f GB/s\n", (double)size / (double)(between_ns - from_ns),
        (double)size / (double)(clock_now_ns() - between_ns));
    return 0;
}

int main(int argc, char **argv)
{
    CUmodule module;
    if (argc < 3 || !driver_load())
        return 2;
    (void)driver_enter();
    if (!strcmp(argv[1], "--copy"))
        return copy(strtoul(argv[2], NULL, 10) * MIB);
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&kernel, module, "read"));
    take(strtoul(argv[1], NULL, 10) * MIB);
    return work(strtoul(argv[2], NULL, 10));
}
