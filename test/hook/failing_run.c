/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a workload: judges each answer of the driver, and compares after each what is charged
 * with what the card has given out. */
#include "failing_each.h"

#include "allocate.h"
#include "sim/machine/machine.h"

#define SENTINEL 4242 /* an errno that nobody sets */

const char *const each_prefixes[EACH_APIS] = {"cu", "nvml", "RM_"};

static struct {
    struct each_run *run;
    const char *function; /* of the call that is being made */
    unsigned code;        /* that is injected; 0: none */
    enum each_api api;
    unsigned again;                     /* how often the call was made already */
    uint64_t failed_before, own_before; /* calls failed on demand; of this function */
    uint64_t charged_before;
    uint64_t foreign_calls[EACH_APIS];
    bool foreign;
} self;

static uint64_t failed_of(const char *function)
{
    char name[80];
    snprintf(name, sizeof(name), SIM_FAILED " %s", function);
    return sim_calls(name);
}

struct sums {
    uint64_t device, pending, buffer; /* device: on the card */
};

static struct sums region_sums(void)
{
    struct vgpu_region *region = bed_region();
    struct sums sums = {0};
    uint64_t lingering = region ? region->devices[0].orphaned : 0, imported = 0;
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        const struct vgpu_usage *usage = &region->slots[i].usage[0];
        if ((region->slots[i].state & 3) != VGPU_SLOT_LIVE)
            continue;
        sums.device += usage->bytes - usage->managed - usage->spilled;
        sums.pending += usage->pending;
        sums.buffer += usage->buffer + usage->managed + usage->spilled;
        lingering += usage->lingering;
        imported += usage->imported;
    }
    sums.device += lingering < imported ? lingering : imported;
    return sums;
}

/* The API ledger is not told of what the driver fails to give back to the kernel. */
static bool is_told(void)
{
    return !strcmp(bed_ledger(), "rm") || !failed_of("RM_FREE");
}

/* With oversubscription a thread of the library's may move memory between the two: what is charged
 * and what the card has given out are the same as soon as it does not. */
static void look(struct sums *ret_sums, uint64_t *ret_card)
{
    bool moves = getenv("CUDA_MEMORY_OVERSUBSCRIBE") != NULL;
    for (int looks = 0; looks < (moves ? 2000 : 1); looks++) {
        if (looks)
            usleep(1000);
        *ret_sums = region_sums();
        *ret_card = bed_card_bytes(0);
        if (ret_sums->device == *ret_card && !ret_sums->pending)
            break;
    }
}

/* What is charged is what the card has given out; the API ledger may charge more, never less. */
static void compare(void)
{
    struct sums sums;
    uint64_t card;
    look(&sums, &card);
    bool same = !strcmp(bed_ledger(), "rm") ? CHECK_EQ(sums.device, card)
                                            : CHECK(sums.device >= card || !is_told());
    same &= CHECK_EQ(sums.pending, 0);
    if (!same)
        dprintf(STDOUT_FILENO, "# after %s: charged %llu MiB, the card %llu MiB\n", self.function,
            (unsigned long long)(sums.device / MIB), (unsigned long long)(card / MIB));
}

void each_foreign_here(void)
{
    for (int api = 0; api < EACH_APIS; api++)
        self.foreign_calls[api] = sim_calls_all(each_prefixes[api]);
    self.foreign = true;
}

void each_foreign_gone(void)
{
    self.foreign = false;
}

void each_before(const char *function)
{
    if (self.function != function)
        self.again = 0;
    self.function = function;
    self.failed_before = sim_calls(SIM_FAILED);
    self.own_before = failed_of(function);
    self.charged_before = region_sums().device;
    errno = SENTINEL;
}

/* Hooks that ask the very function again for themselves, or make room and try again. */
static bool may_succeed(const char *function)
{
    return !strcmp(function, "cuGetProcAddress_v2") || !strcmp(function, "cuMemGetInfo_v2") ||
           self.code == CUDA_ERROR_OUT_OF_MEMORY;
}

/* The program's own call failed: it is told so. */
static void judge_own(int result)
{
    if (result != CUDA_SUCCESS || !may_succeed(self.function))
        CHECK_EQ(result, self.code);
}

/* Whether the driver API may make this of a status of the resource manager. */
static bool is_of_status(int result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_INVALID_VALUE ||
           result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_UNKNOWN ||
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NO_DEVICE ||
           result == NVML_ERROR_UNKNOWN;
}

/* A call made on the way failed: the program is answered right, or with what a driver may say. */
static void judge_other(int result, int wanted)
{
    bool sound = result == wanted || result == (int)self.code;
    if (self.api == EACH_RM)
        sound = result == wanted || is_of_status(result);
    else if (self.function[0] == 'c')
        sound |= result == CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(sound);
    if (!sound)
        dprintf(STDOUT_FILENO, "# %s answers %d\n", self.function, result);
}

static void note_passed(const char *function)
{
    struct each_run *run = self.run;
    for (unsigned i = 0; i < run->passed_count; i++) {
        if (!strcmp(run->passed[i], function))
            return;
    }
    if (run->passed_count < 128)
        snprintf(run->passed[run->passed_count++], sizeof(run->passed[0]), "%s", function);
}

bool each_after(int result, int wanted)
{
    bool kept = errno == SENTINEL;
    bool hit = sim_calls(SIM_FAILED) != self.failed_before;
    if (!CHECK(kept))
        dprintf(STDOUT_FILENO, "# %s sets errno\n", self.function);
    if (hit)
        snprintf(self.run->failed, sizeof(self.run->failed), "%s",
            sim_called(SIM_FAILED " ") + strlen(SIM_FAILED " "));
    if (hit && failed_of(self.function) != self.own_before)
        judge_own(result);
    else if (hit)
        judge_other(result, wanted);
    if (!self.foreign)
        compare();
    if (result == wanted) {
        note_passed(self.function);
        return false;
    }
    bool again = hit && self.again++ == 0;
    if (hit && self.api != EACH_RM)
        CHECK(region_sums().device <= self.charged_before);
    if (!again) {
        CHECK_EQ(result, wanted);
        dprintf(STDOUT_FILENO, "# %s does not recover\n", self.function);
        _exit(1);
    }
    return true;
}

static void fill(void)
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t card = bed_card_bytes(0), charged = allocation_charged();
    uint64_t held = charged > card ? charged : card;
    uint64_t room = (EACH_LIMIT_BYTES - held) / (2 * MIB) * (2 * MIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, room), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= EACH_LIMIT_BYTES);
}

static void count_calls(uint64_t calls[EACH_APIS])
{
    for (int api = 0; api < EACH_APIS; api++)
        calls[api] = sim_calls_all(each_prefixes[api]) - self.foreign_calls[api];
}

static void enter_context(void)
{
    CUcontext context;
    DO(cuInit, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
}

static void leave_context(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    DO(cuThreadExchangeStreamCaptureMode, &mode);
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuDevicePrimaryCtxRelease_v2, 0);
}

/* Whatever failed, what the container computes is measured again. */
static void compute(void)
{
    static const char text[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                               ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";
    CUmodule module;
    CUfunction spin;
    uint64_t duration_ns = 500000;
    void *params[] = {&duration_ns};
    bed_context(0);
    CHECK_EQ(CU(cuModuleLoadData)(&module, text), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&spin, module, "spin"), CUDA_SUCCESS);
    uint64_t measured_ns = bed_region_slot(getpid())->usage[0].gpu_time_ns;
    /* Where it is not, this goes on until the run counts as hung. */
    while (bed_region_slot(getpid())->usage[0].gpu_time_ns < measured_ns + duration_ns) {
        CHECK_EQ(CU(cuLaunchKernel)(spin, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuModuleUnload)(module), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
}

/* Under a compute limit calls are made by time: where they were fewer than counted, what was to
 * fail is still to come, and is not to hit what follows. */
static void let_fail(enum each_api api, uint64_t nth)
{
    CUcontext context;
    while (api == EACH_CUDA && sim_calls_all(each_prefixes[api]) < nth)
        (void)CU(cuCtxGetCurrent)(&context);
}

/* All is given back: nothing is left on the card or in the account. */
static void finish(void)
{
    struct sums sums = region_sums();
    self.function = "the end";
    compare();
    if (!is_told())
        return;
    if (!failed_of("RM_FREE")) {
        CHECK_EQ(bed_card_bytes(0), 0);
        CHECK_EQ(sums.device, 0);
        CHECK_EQ(sums.buffer, 0);
    }
    if (getenv("CUDA_DEVICE_SM_LIMIT"))
        compute();
    fill();
}

void each_run(const struct each_work *work, enum each_api api, uint64_t nth, unsigned code,
    struct each_run *run)
{
    static struct check_shared own; /* what is found is judged by what is printed */
    check_shared = &own;
    each_checks_go_to(&own);
    self.run = run;
    self.api = api;
    self.code = code;
    if (!work->bare)
        enter_context();
    count_calls(run->first);
    work->body();
    count_calls(run->last);
    let_fail(api, nth);
    if (!work->bare)
        leave_context();
    finish();
    fflush(stdout);
}
