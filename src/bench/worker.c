/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker is meant, and what they share. */
#include "bench/worker.h"

#include "base/clock.h"
#include "bench/bench.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CARD_PROCESSES_MOST 256

struct worker_cuda worker_cuda;
bool worker_quiet;

void worker_open(void)
{
    void *library;
    load_cuda_open();
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        load_fail("no CUDA driver: %s", dlerror());
#define ROW(name) worker_cuda.name = (__typeof__(name) *)dlsym(library, #name);
    WORKER_CUDA(ROW)
#undef ROW
}

uint64_t worker_now_ns(void)
{
    return clock_now_ns();
}

void worker_write(const char *key, double value, unsigned long repetitions)
{
    if (worker_quiet)
        return;
    printf("%s %.9g %lu\n", key, value, repetitions);
    fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void worker_write_median(const char *key, uint64_t *values_ns, unsigned count, double divisor)
{
    qsort(values_ns, count, sizeof(*values_ns), ascending);
    uint64_t median_ns = values_ns[count / 2];
    worker_write(key, (double)median_ns / divisor, count);
}

bool worker_wait(void)
{
    char byte;
    ssize_t got;
    while ((got = read(STDIN_FILENO, &byte, 1)) == 1 && byte != '\n') {
    }
    return got == 1;
}

char worker_command(char *rest, size_t size)
{
    char byte, first = 0;
    size_t length = 0;
    ssize_t got;
    while ((got = read(STDIN_FILENO, &byte, 1)) == 1 && byte != '\n') {
        if (!first)
            first = byte;
        else if (length + 1 < size)
            rest[length++] = byte;
    }
    if (size)
        rest[length] = '\0';
    return got != 1 ? 0 : first ? first : ' ';
}

void worker_say(const char *word)
{
    puts(word);
    fflush(stdout);
}

cpu_set_t worker_pin(const char *line)
{
    const char *number = strstr(line, "cpu ");
    cpu_set_t former, one;
    CPU_ZERO(&former);
    CPU_ZERO(&one);
    if (!number || sched_getaffinity(0, sizeof(former), &former) != 0)
        return former;
    CPU_SET(strtoul(number + strlen("cpu "), NULL, 10), &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    return former;
}

void worker_unpin(const cpu_set_t *former)
{
    if (CPU_COUNT(former))
        (void)sched_setaffinity(0, sizeof(*former), former);
}

void worker_spin(uint64_t ns)
{
    uint64_t begin = worker_now_ns();
    while (worker_now_ns() - begin < ns) {
    }
}

static double seconds_of(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double worker_other_threads_s(void)
{
    return seconds_of(RUSAGE_SELF) - seconds_of(RUSAGE_THREAD);
}

/* A program that does nothing. */
static int worker_start(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

static int is_loaded(struct dl_phdr_info *object, size_t size, void *real)
{
    char path[PATH_MAX];
    (void)size;
    return realpath(object->dlpi_name, path) && !strcmp(path, real);
}

/* Whether the library is in this process: the loader only warns where it cannot load one. */
static void check_loaded(const char *path)
{
    char real[PATH_MAX];
    if (!realpath(path, real))
        snprintf(real, sizeof(real), "%s", path);
    if (!dl_iterate_phdr(is_loaded, real))
        load_fail("the loader does not preload it");
}

/* The machine, and that the subject's library lets a context be made: worker_probe [LIBRARY] */
static int worker_probe(int argc, char **argv)
{
    struct load_device device;
    CUdeviceptr pointer;
    char bus[32] = "", driver[96] = "";
    int version = 0;
    size_t bytes = 0;
    if (argc > 0)
        check_loaded(argv[0]);
    worker_open();
    load_device_open(&device, 0);
    LOAD_CALL(cuMemAlloc_v2, &pointer, 1 << 20);
    WORKER_CALL(cuMemFree_v2, pointer);
    WORKER_CALL(cuDriverGetVersion, &version);
    WORKER_CALL(cuDeviceTotalMem_v2, &bytes, device.device);
    LOAD_CALL(cuDeviceGetPCIBusId, bus, sizeof(bus), device.device);
    if (load_nvml_open()) {
        __typeof__(nvmlSystemGetDriverVersion) *ask =
            (__typeof__(nvmlSystemGetDriverVersion) *)dlsym(
                dlopen("libnvidia-ml.so.1", RTLD_NOW), "nvmlSystemGetDriverVersion");
        if (ask && ask(driver, sizeof(driver)) != NVML_SUCCESS)
            driver[0] = '\0';
    }
    printf("gpu %s\ncuda %d.%d\ndriver %s\nmemory %zu\nbus %s\n", device.name, version / 1000,
        version % 1000 / 10, driver, bytes, bus);
    return 0;
}

/* " PID BYTES" for each process that NVML knows the memory of. */
static void write_processes(
    __typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *ask, nvmlDevice_t device)
{
    static nvmlProcessInfo_t processes[CARD_PROCESSES_MOST];
    unsigned count = CARD_PROCESSES_MOST;
    if (!ask || ask(device, &count, processes) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count; i++) {
        if (processes[i].usedGpuMemory != (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
            printf(" %u %llu", processes[i].pid, processes[i].usedGpuMemory);
    }
}

/* The card's own figure, asked from outside: for each line on stdin one of its bytes in use, with
 * those of each process. worker_card BUS */
static int worker_card(int argc, char **argv)
{
    nvmlDevice_t device;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    __typeof__(nvmlDeviceGetMemoryInfo) *ask =
        library ? (__typeof__(nvmlDeviceGetMemoryInfo) *)dlsym(library, "nvmlDeviceGetMemoryInfo")
                : NULL;
    /* The second version has the third's structure. */
    void *list = library ? dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3") : NULL;
    if (library && !list)
        list = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    if (argc < 1 || !ask || !load_nvml_open() ||
        load_nvml.nvmlDeviceGetHandleByPciBusId_v2(argv[0], &device) != NVML_SUCCESS)
        load_fail("NVML does not know the GPU");
    while (worker_wait()) {
        nvmlMemory_t memory = {0};
        if (ask(device, &memory) != NVML_SUCCESS)
            load_fail("NVML does not say how much of the GPU's memory is in use");
        printf("%llu", (unsigned long long)memory.used);
        write_processes((__typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *)list, device);
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}

int bench_worker(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } workers[] = {{"start", worker_start}, {"probe", worker_probe}, {"card", worker_card},
        {"cost", worker_cost}, {"init", worker_init}, {"crowd", worker_crowd},
        {"busy", worker_busy}, {"refuse", worker_refuse}, {"refusal-time", worker_refusal_time},
        {"hold", worker_hold}, {"race", worker_race}, {"retry", worker_retry},
        {"storm", worker_storm}, {"gemm", worker_gemm}};
    load_program = "vgpu-bench";
    for (size_t i = 0; argc > 0 && i < sizeof(workers) / sizeof(workers[0]); i++) {
        if (!strcmp(workers[i].name, argv[0]))
            return workers[i].run(argc - 1, argv + 1);
    }
    load_error("--worker is its own");
    return LOAD_USAGE;
}
