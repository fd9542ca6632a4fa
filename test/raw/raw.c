/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the raw-API programs. */
#include "raw.h"

#include "base/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_BYTES 4096
#define ROUND_BYTES (64 * RAW_MIB) /* rows, arrays and heaps are rounded up by the driver */
#define PINNED_BYTES (8 * RAW_MIB) /* device memory that pinning may take: page tables */

static uint64_t limit_bytes;
static unsigned failures;

void raw_check(bool good, const char *format, ...)
{
    va_list arguments;
    fputs(good ? "ok: " : "FAILED: ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    failures += !good;
}

struct memory {
    size_t free, total;
};

static struct memory memory_now(void)
{
    struct memory now = {0};
    DRIVER_CALL(driver.cuMemGetInfo_v2(&now.free, &now.total));
    return now;
}

uint64_t raw_total(void)
{
    return memory_now().total;
}

uint64_t raw_used(void)
{
    struct memory now = memory_now();
    return now.total - now.free;
}

bool raw_in_slice(void)
{
    return limit_bytes != 0;
}

static void read_limit(void)
{
    static const char *const names[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0"};
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        if (text && *text && parse_size(text, &limit_bytes) != 0) {
            printf("FAILED: %s=\"%s\" is not a size\n", names[i], text);
            exit(1);
        }
    }
}

void raw_begin(void)
{
    CUcontext context;
    CUdevice device;
    char name[128] = "";
    size_t total = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!driver_load())
        exit(77);
    read_limit();
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDeviceGet(&device, 0));
    DRIVER_CALL(driver.cuDeviceGetName(name, sizeof(name), device));
    DRIVER_CALL(driver.cuDeviceTotalMem_v2(&total, device));
    printf("%s, %llu MiB%s\n", name, (unsigned long long)(total / RAW_MIB),
        limit_bytes ? " by the limit" : ", no limit");
    if (limit_bytes && total > limit_bytes) {
        raw_check(false,
            "the device shows %llu MiB, not the limit of %llu: is libvgpu.so preloaded?",
            (unsigned long long)(total / RAW_MIB), (unsigned long long)(limit_bytes / RAW_MIB));
        exit(1);
    }
    limit_bytes = limit_bytes && total == limit_bytes ? limit_bytes : 0; /* above the card: none */
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, device));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    if (raw_in_slice())
        raw_check(raw_total() == limit_bytes,
            "cuMemGetInfo shows the limit, and %llu MiB in use "
            "by contexts",
            (unsigned long long)(raw_used() / RAW_MIB));
}

void raw_check_refused(CUresult result, const char *what)
{
    raw_check(
        result == CUDA_ERROR_OUT_OF_MEMORY, "%s: %s (%d)", what, driver_error(result), (int)result);
}

static void fill(unsigned char *sample, unsigned seed)
{
    for (unsigned i = 0; i < SAMPLE_BYTES; i++)
        sample[i] = (unsigned char)(i * 7 + seed);
}

void raw_check_contents(CUdeviceptr pointer, uint64_t bytes)
{
    static unsigned char sent[2][SAMPLE_BYTES], got[2][SAMPLE_BYTES];
    CUdeviceptr at[2] = {pointer, pointer + bytes - SAMPLE_BYTES};
    for (unsigned i = 0; i < 2; i++) {
        fill(sent[i], i + 1);
        DRIVER_CALL(driver.cuMemcpyHtoD_v2(at[i], sent[i], SAMPLE_BYTES));
    }
    for (unsigned i = 0; i < 2; i++)
        DRIVER_CALL(driver.cuMemcpyDtoH_v2(got[i], at[i], SAMPLE_BYTES));
    raw_check(!memcmp(sent, got, sizeof(got)), "it keeps what is written to its ends");
}

void raw_check_host(void *host, uint64_t bytes)
{
    unsigned char *first = host, *last = first + bytes - SAMPLE_BYTES;
    CUdeviceptr device;
    fill(first, 3);
    memset(last, 0, SAMPLE_BYTES);
    DRIVER_CALL(driver.cuMemAlloc_v2(&device, SAMPLE_BYTES));
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(device, first, SAMPLE_BYTES));
    DRIVER_CALL(driver.cuMemcpyDtoH_v2(last, device, SAMPLE_BYTES));
    DRIVER_CALL(driver.cuMemFree_v2(device));
    raw_check(!memcmp(first, last, SAMPLE_BYTES), "the device reads and writes it");
}

int raw_end(void)
{
    puts(failures ? "FAILED" : "passed");
    return failures != 0;
}

/* The first memory of a kind may bring the context a heap, which it keeps. */
static void warm(const struct raw_kind *kind, uint64_t bytes)
{
    driver_must(kind->take(bytes), kind->name, __FILE__, __LINE__);
    driver_must(kind->give(), "giving it back", __FILE__, __LINE__);
}

static uint64_t more(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void check_counted(const struct raw_kind *kind, uint64_t before)
{
    uint64_t held = more(raw_used(), before);
    raw_check(held >= RAW_BYTES && held <= RAW_BYTES + ROUND_BYTES,
        "%llu MiB by %s count as %.1f MiB", (unsigned long long)(RAW_BYTES / RAW_MIB), kind->name,
        (double)held / RAW_MIB);
}

static void check_refusal(const struct raw_kind *kind)
{
    uint64_t bytes = raw_total();
    char what[96];
    if ((kind->may_exceed && !raw_in_slice()) || (kind->largest && bytes > kind->largest)) {
        printf("%s of the whole device is not asked for here\n", kind->name);
        return;
    }
    snprintf(what, sizeof(what), "%s of the whole device, %llu MiB", kind->name,
        (unsigned long long)(bytes / RAW_MIB));
    raw_check_refused(kind->take(bytes), what);
}

int raw_device_memory(const struct raw_kind *kind)
{
    raw_begin();
    warm(kind, RAW_BYTES);
    uint64_t before = raw_used();
    driver_must(kind->take(RAW_BYTES), kind->name, __FILE__, __LINE__);
    if (raw_in_slice())
        check_counted(kind, before);
    kind->use(RAW_BYTES);
    driver_must(kind->give(), "giving it back", __FILE__, __LINE__);
    if (raw_in_slice())
        raw_check(raw_used() == before, "given back, it does not count");
    check_refusal(kind);
    CUresult again = kind->take(RAW_BYTES);
    raw_check(again == CUDA_SUCCESS, "the program goes on: %s", driver_error(again));
    if (again == CUDA_SUCCESS)
        driver_must(kind->give(), "giving it back", __FILE__, __LINE__);
    return raw_end();
}

int raw_host_memory(const struct raw_kind *kind)
{
    raw_begin();
    warm(kind, RAW_BYTES);
    uint64_t before = raw_used();
    driver_must(kind->take(RAW_BYTES), kind->name, __FILE__, __LINE__);
    uint64_t held = more(raw_used(), before);
    if (raw_in_slice())
        raw_check(held <= PINNED_BYTES, "%llu MiB of host memory by %s take %.1f MiB of the device",
            (unsigned long long)(RAW_BYTES / RAW_MIB), kind->name, (double)held / RAW_MIB);
    kind->use(RAW_BYTES);
    driver_must(kind->give(), "giving it back", __FILE__, __LINE__);
    return raw_end();
}
