/* SPDX-License-Identifier: Apache-2.0 */
/* A program that knows nothing of vgpu: allocates device memory until it is refused, says what it
 * saw, and goes on. The driver is opened at run time, so that no toolkit is needed to build it. */
#include "abi/cuda.h"
#include "base/parse.h"

#include <dlfcn.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB(bytes) ((double)(bytes) / (1 << 20))
#define WAIT_MS_MAX 10000
#define NAP_MS 10

/* The functions that it calls. */
#define FUNCTIONS(ROW)                                                                             \
    ROW(cuInit)                                                                                    \
    ROW(cuDeviceGet)                                                                               \
    ROW(cuDeviceGetName)                                                                           \
    ROW(cuDeviceTotalMem_v2)                                                                       \
    ROW(cuDevicePrimaryCtxRetain)                                                                  \
    ROW(cuCtxSetCurrent)                                                                           \
    ROW(cuMemGetInfo_v2)                                                                           \
    ROW(cuMemAlloc_v2)                                                                             \
    ROW(cuMemFree_v2)                                                                              \
    ROW(cuGetErrorName)

static struct {
#define ROW(name) __typeof__(name) *name;
    FUNCTIONS(ROW)
#undef ROW
} cuda;

struct options {
    uint64_t step_bytes, hold_s, pace_ms;
    const char *label, *wait_for;
    bool probe;
};

struct blocks {
    CUdeviceptr *items;
    size_t count, room;
};

static const char usage_text[] =
    "usage: vgpu-example-fill [--step SIZE] [--pace MS] [--hold SECONDS] [--wait FILE]\n"
    "                         [--label TEXT] [--probe]\n"
    "\n"
    "Allocates device memory until it is refused, and says what it saw.\n"
    "  --step SIZE     of one allocation (default 100MiB)\n"
    "  --pace MS       between two allocations (default 0)\n"
    "  --hold SECONDS  keep the memory that long, or until SIGTERM\n"
    "  --wait FILE     with a context made, begin when FILE exists\n"
    "  --label TEXT    before each line\n"
    "  --probe         make a context, name the device and end\n";

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        fprintf(stderr, "vgpu-example-fill: this driver has no %s\n", name);
    return function;
}

static bool load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "vgpu-example-fill: %s\n", dlerror());
        return false;
    }
#define ROW(name)                                                                                  \
    cuda.name = (__typeof__(name) *)find(library, #name);                                          \
    found = found && cuda.name;
    bool found = true;
    FUNCTIONS(ROW)
#undef ROW
    return found;
}

static const char *error_name(CUresult result)
{
    const char *name = NULL;
    return cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

/* Says what failed; true where nothing did. */
static bool succeeded(const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "vgpu-example-fill: %s: %s\n", call, error_name(result));
    return result == CUDA_SUCCESS;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* 0, or an exit status after the reason was said. */
static int parse_options(int argc, char **argv, struct options *options)
{
    enum { STEP = 256, PACE, HOLD, WAIT, LABEL, PROBE };
    static const struct option known[] = {{"step", required_argument, NULL, STEP},
        {"pace", required_argument, NULL, PACE}, {"hold", required_argument, NULL, HOLD},
        {"wait", required_argument, NULL, WAIT}, {"label", required_argument, NULL, LABEL},
        {"probe", no_argument, NULL, PROBE}, {0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        int error = 0;
        const char *accepted = "a whole number up to 86400";
        switch (option) {
        case STEP:
            error = parse_size(optarg, &options->step_bytes) || !options->step_bytes;
            accepted = PARSE_SIZE_ACCEPTED;
            break;
        case PACE:
            error = parse_number(optarg, 86400, &options->pace_ms);
            break;
        case HOLD:
            error = parse_number(optarg, 86400, &options->hold_s);
            break;
        case WAIT:
            options->wait_for = optarg;
            break;
        case LABEL:
            options->label = optarg;
            break;
        case PROBE:
            options->probe = true;
            break;
        default:
            error = -1;
        }
        if (error && optarg)
            fprintf(stderr, "vgpu-example-fill: \"%s\" is not accepted; accepted: %s\n", optarg,
                accepted);
        if (error)
            return 2;
    }
    if (optind == argc)
        return 0;
    fputs(usage_text, stderr);
    return 2;
}

/* Makes the device's context current and says what the program sees. */
static bool open_device(const struct options *options)
{
    CUdevice device;
    CUcontext context;
    char name[128];
    size_t total_bytes, free_bytes, context_total_bytes;
    if (!succeeded("cuInit", cuda.cuInit(0)) ||
        !succeeded("cuDeviceGet", cuda.cuDeviceGet(&device, 0)) ||
        !succeeded("cuDeviceGetName", cuda.cuDeviceGetName(name, sizeof(name), device)) ||
        !succeeded("cuDeviceTotalMem", cuda.cuDeviceTotalMem_v2(&total_bytes, device)) ||
        !succeeded("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context, device)) ||
        !succeeded("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context)) ||
        !succeeded("cuMemGetInfo", cuda.cuMemGetInfo_v2(&free_bytes, &context_total_bytes)))
        return false;
    if (options->probe)
        puts(name);
    else
        printf("%spid %d sees %.0f MiB, %.0f MiB of it free at the start\n", options->label,
            getpid(), MIB(total_bytes), MIB(free_bytes));
    return true;
}

static bool wait_for_file(const char *path)
{
    for (int waited_ms = 0; path && access(path, F_OK) != 0; waited_ms += NAP_MS) {
        if (waited_ms >= WAIT_MS_MAX) {
            fprintf(stderr, "vgpu-example-fill: no %s after %d s\n", path, WAIT_MS_MAX / 1000);
            return false;
        }
        sleep_ms(NAP_MS);
    }
    return true;
}

static CUresult take(struct blocks *blocks, uint64_t bytes)
{
    if (blocks->count == blocks->room) {
        size_t room = blocks->room ? 2 * blocks->room : 64;
        void *items = realloc(blocks->items, room * sizeof(blocks->items[0]));
        if (!items)
            abort(); /* host memory, and of no interest here */
        blocks->items = items;
        blocks->room = room;
    }
    CUresult result = cuda.cuMemAlloc_v2(&blocks->items[blocks->count], bytes);
    if (result == CUDA_SUCCESS)
        blocks->count++;
    return result;
}

/* True where it ended as a program at its limit may expect: refused for lack of memory, and the
 * room of a freed block can be had again, unless a neighbour was quicker. */
static bool fill(const struct options *options, struct blocks *blocks)
{
    CUresult result;
    while ((result = take(blocks, options->step_bytes)) == CUDA_SUCCESS)
        sleep_ms(options->pace_ms);
    printf("%sallocated %.0f MiB (%zu x %.0f MiB), then got %s\n", options->label,
        MIB(blocks->count * options->step_bytes), blocks->count, MIB(options->step_bytes),
        error_name(result));
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    if (!blocks->count)
        return true;
    if (!succeeded("cuMemFree", cuda.cuMemFree_v2(blocks->items[--blocks->count])))
        return false;
    result = take(blocks, options->step_bytes);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        return succeeded("cuMemAlloc", result);
    printf("%sgoes on: freed one block, %s\n", options->label,
        result ? "a neighbour was quicker to take it" : "allocated it again");
    return true;
}

static volatile sig_atomic_t told_to_end;

static void note_end(int number)
{
    (void)number;
    told_to_end = 1;
}

/* Naps, since the signal may arrive in a thread of the driver's. */
static void hold(const struct options *options, const struct blocks *blocks)
{
    struct sigaction action = {.sa_handler = note_end};
    sigaction(SIGTERM, &action, NULL);
    printf("%sholds %.0f MiB\n", options->label, MIB(blocks->count * options->step_bytes));
    for (uint64_t left = options->hold_s * 1000 / NAP_MS; left && !told_to_end; left--)
        sleep_ms(NAP_MS);
}

int main(int argc, char **argv)
{
    struct options options = {.step_bytes = 100 << 20, .label = ""};
    struct blocks blocks = {0};
    int status = parse_options(argc, argv, &options);
    if (status)
        return status;
    setvbuf(stdout, NULL, _IOLBF, 0); /* whoever watches sees each line at once */
    if (!load() || !open_device(&options))
        return EXIT_FAILURE;
    if (options.probe)
        return EXIT_SUCCESS;
    if (!wait_for_file(options.wait_for))
        return EXIT_FAILURE;
    bool as_expected = fill(&options, &blocks);
    if (as_expected && options.hold_s)
        hold(&options, &blocks);
    while (blocks.count) {
        if (!succeeded("cuMemFree", cuda.cuMemFree_v2(blocks.items[--blocks.count])))
            as_expected = false;
    }
    free(blocks.items);
    return as_expected ? EXIT_SUCCESS : EXIT_FAILURE;
}
