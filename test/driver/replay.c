/* SPDX-License-Identifier: Apache-2.0 */
/* Plays recorded allocations (test/traces) and prints what they take on the card where most is
 * asked for, and what the calls cost: natively, and under `vgpu run --memory ... --oversubscribe`
 * beside the native figures. Exit status 1 where a promise was not kept.
 *   replay [--beside FILE] TRACE...    FILE: what a native run printed */
#include "driver.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 5
#define EVENTS_MAX 65536
#define MIB (1ull << 20)
#define LINE "%-18s %6u calls, asked %8.1f MiB, taken %8.1f MiB, allocate %8.3f ms, free %8.3f ms\n"

/* What blocks may waste, of what the driver takes natively. */
#define WASTE_MOST 0.05

static struct event {
    unsigned id;
    uint64_t bytes; /* 0: a free */
} events[EVENTS_MAX];
static CUdeviceptr pointers[EVENTS_MAX];
static uint64_t sizes[EVENTS_MAX];

struct figures {
    double asked, taken;      /* MiB */
    double allocate, release; /* ms */
};

/* Returns how many events there are; 0: it cannot be read, or is no trace. */
static unsigned read_trace(const char *path)
{
    char sign;
    unsigned count = 0, id;
    FILE *file = fopen(path, "r");
    while (file && count < EVENTS_MAX && fscanf(file, " %c %u", &sign, &id) == 2) {
        uint64_t bytes = 0;
        if (id >= EVENTS_MAX || (sign == '+' && fscanf(file, "%" SCNu64, &bytes) != 1)) {
            count = 0;
            break;
        }
        events[count++] = (struct event){id, bytes};
    }
    if (file)
        fclose(file);
    return count;
}

/* After which event most is asked for. */
static unsigned peak_of(unsigned count, uint64_t *ret_bytes)
{
    uint64_t sum = 0;
    unsigned peak = 0;
    *ret_bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct event *event = &events[i];
        sum += event->bytes;
        if (event->bytes)
            sizes[event->id] = event->bytes;
        else
            sum -= sizes[event->id];
        if (sum > *ret_bytes) {
            *ret_bytes = sum;
            peak = i;
        }
    }
    return peak;
}

static double play(const struct event *event)
{
    uint64_t from = clock_now_ns();
    if (event->bytes)
        DRIVER_CALL(driver.cuMemAlloc_v2(&pointers[event->id], event->bytes));
    else
        DRIVER_CALL(driver.cuMemFree_v2(pointers[event->id]));
    double took = (double)(clock_now_ns() - from) / 1e6;
    if (!event->bytes)
        pointers[event->id] = 0;
    return took;
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), by_value);
    return values[ROUNDS / 2];
}

static struct figures measure(unsigned count)
{
    double allocate[ROUNDS] = {0}, release[ROUNDS] = {0};
    uint64_t asked;
    unsigned peak = peak_of(count, &asked);
    struct figures figures = {.asked = (double)asked / (double)MIB};
    for (unsigned round = 0; round < ROUNDS; round++) {
        int64_t before = driver_nvml_bytes(getpid());
        for (unsigned i = 0; i < count; i++) {
            *(events[i].bytes ? &allocate[round] : &release[round]) += play(&events[i]);
            if (i == peak)
                figures.taken = (double)(driver_nvml_bytes(getpid()) - before) / (double)MIB;
        }
        for (unsigned id = 0; id < EVENTS_MAX; id++) {
            if (pointers[id])
                DRIVER_CALL(driver.cuMemFree_v2(pointers[id]));
            pointers[id] = 0;
        }
    }
    figures.allocate = median(allocate);
    figures.release = median(release);
    return figures;
}

/* What a native run printed of the trace. */
static bool read_native(const char *path, const char *name, struct figures *ret_native)
{
    char line[256], found[64];
    bool is_there = false;
    FILE *file = fopen(path, "r");
    while (file && !is_there && fgets(line, sizeof(line), file))
        is_there = sscanf(line,
                       "%63s %*u calls, asked %lf MiB, taken %lf MiB, allocate %lf ms, free %lf ms",
                       found, &ret_native->asked, &ret_native->taken, &ret_native->allocate,
                       &ret_native->release) == 5 &&
                   !strcmp(found, name);
    if (file)
        fclose(file);
    return is_there;
}

static void judge(const char *beside, const char *name, const struct figures *own)
{
    struct figures native;
    char promise[128];
    snprintf(promise, sizeof(promise), "%s takes at most 5 %% more than natively", name);
    bool is_there = read_native(beside, name, &native);
    driver_promise(promise, is_there && own->taken <= native.taken * (1 + WASTE_MOST));
    if (is_there)
        printf("%-18s of native: taken %.3f, allocate %.2f, free %.2f, both %.2f\n", name,
            own->taken / native.taken, own->allocate / native.allocate,
            own->release / native.release,
            (own->allocate + own->release) / (native.allocate + native.release));
}

int main(int argc, char **argv)
{
    CUdeviceptr kept;
    const char *beside = argc > 2 && !strcmp(argv[1], "--beside") ? argv[2] : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!driver_load())
        return 0;
    (void)driver_enter();
    DRIVER_CALL(driver.cuMemAlloc_v2(&kept, 1000)); /* the first costs more */
    for (int i = beside ? 3 : 1; i < argc; i++) {
        char name[64];
        const char *base = strrchr(argv[i], '/');
        snprintf(name, sizeof(name), "%s", base ? base + 1 : argv[i]);
        name[strcspn(name, ".")] = '\0';
        unsigned count = read_trace(argv[i]);
        if (!count) {
            printf("%s is no trace: lines of \"+ ID BYTES\" or \"- ID\"\n", argv[i]);
            return 1;
        }
        struct figures own = measure(count);
        printf(LINE, name, count, own.asked, own.taken, own.allocate, own.release);
        if (beside)
            judge(beside, name, &own);
    }
    return driver_broken ? 1 : 0;
}
