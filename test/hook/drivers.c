/* SPDX-License-Identifier: Apache-2.0 */
/* On the drivers of ten years and in places that hide what they do, the limit holds by the best
 * means that there is, and the log says by which. */
#include "abi/cuda.h"
#include "abi/nvml.h"
#include "abi/rm.h"
#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#include <dlfcn.h>

#define LIMIT "2GiB"
#define LIMIT_BYTES (2 * GIB)
#define TELL "LIBCUDA_LOG_LEVEL=3"
#define CUDA_FUTURE 14000

static bool has(const char *soname, const char *name)
{
    void *library = dlopen(soname, RTLD_NOW);
    return library && dlsym(library, name);
}

static bool has_cuda(const char *name)
{
    return has("libcuda.so.1", name);
}

static bool has_nvml(const char *name)
{
    return has("libnvidia-ml.so.1", name);
}

/* Which ledger counts, by what the region says, and by what each of `processes` told once, and why.
 */
static void check_ledger(unsigned number, const char *why, int processes)
{
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    CHECK_EQ(slot->ledger, number);
    CHECK_EQ(bed_stderr_lines("by the RM ledger"), number == 1 ? processes : 0);
    CHECK_EQ(bed_stderr_lines("by the API ledger"), number == 2 ? processes : 0);
    if (!CHECK_EQ(bed_stderr_lines(why), processes))
        dprintf(STDOUT_FILENO, "# wanted: %s\n", why);
}

struct child {
    int start[2]; /* closed by the parent when it has its context */
    unsigned ledger;
};

/* Alone it would have room for what it asks, but not beside its parent. */
static void in_child(void *argument)
{
    struct child *child = argument;
    uint64_t handle;
    char none;
    close(child->start[1]);
    CHECK_EQ(read(child->start[0], &none, 1), 0);
    bed_context(0);
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    CHECK_EQ(slot->ledger, child->ledger);
    CHECK_EQ(allocation_kinds[0].make(1200 * MIB, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(allocation_kinds[0].make(128 * MIB, &handle), CUDA_SUCCESS);
    CHECK(bed_region_bytes(0) >= bed_card_bytes(0));
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
}

static void check_kind(const struct allocation_kind *kind)
{
    uint64_t before = allocation_charged(), handle;
    bool right = CHECK_EQ(kind->make(LIMIT_BYTES, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    right &= CHECK_EQ(kind->make(LIMIT_BYTES - 100 * MIB, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    right &= CHECK_EQ(kind->make(96 * MIB, &handle), CUDA_SUCCESS);
    right &= CHECK(allocation_charged() >= before + 96 * MIB);
    right &= CHECK_EQ(kind->drop(handle), CUDA_SUCCESS);
    right &= CHECK_EQ(allocation_charged(), before);
    if (!right)
        dprintf(STDOUT_FILENO, "# %s\n", kind->function);
}

/* All that a driver of any age must give: each kind that it has is charged, refused and given back,
 * the slice is shown, a forked process counts with its parent, and what it held is free again. */
static void check_slice(unsigned ledger, const char *why)
{
    size_t free_bytes, total;
    struct child child = {.ledger = ledger};
    REQUIRE(pipe(child.start) == 0);
    pid_t pid = bed_fork(in_child, &child);
    bed_context(0);
    close(child.start[1]);
    CHECK(bed_ended_well(pid));
    uint64_t before = allocation_charged();
    CHECK(before >= 500 * MIB && before < 600 * MIB);
    for (unsigned k = 0; k < allocation_kind_count; k++) {
        if (allocation_kind_exists(&allocation_kinds[k]))
            check_kind(&allocation_kinds[k]);
    }
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free_bytes, &total), CUDA_SUCCESS);
    CHECK_EQ(total, LIMIT_BYTES);
    CHECK_EQ(free_bytes, LIMIT_BYTES - before);
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
    check_ledger(ledger, why, 2);
}

#define RM_SAYS "the driver's allocations pass ioctl; they are compared"
#define RM_SAYS_BLIND "no figure of this process to compare"

BED_TEST("440: no cuGetProcAddress, no stream-ordered memory, RM_VID_HEAP_CONTROL", .limit = LIMIT,
    .sim = "driver=440", .environment = {TELL})
{
    CHECK(has_cuda("cuMemAlloc_v2") && has_cuda("cuMemCreate"));
    CHECK(!has_cuda("cuGetProcAddress") && !has_cuda("cuMemAllocAsync"));
    CHECK(!has_cuda("cuMemPoolCreate") && !has_cuda("cuGraphAddMemAllocNode"));
    CHECK(has_nvml("nvmlDeviceGetMemoryInfo") && !has_nvml("nvmlDeviceGetMemoryInfo_v2"));
    CHECK(!has_nvml("nvmlDeviceGetComputeRunningProcesses_v2"));
    check_slice(1, RM_SAYS);
    CHECK(sim_calls("RM_VID_HEAP_CONTROL") > 0);
    CHECK_EQ(sim_calls("RM_ALLOC 0x40"), 0);
}

BED_TEST("470: cuGetProcAddress of one kind, no cuLaunchKernelEx", .limit = LIMIT,
    .sim = "driver=470", .environment = {TELL})
{
    CHECK(has_cuda("cuGetProcAddress") && has_cuda("cuMemAllocAsync"));
    CHECK(has_cuda("cuGraphAddMemAllocNode"));
    CHECK(!has_cuda("cuGetProcAddress_v2") && !has_cuda("cuLaunchKernelEx"));
    CHECK(!has_cuda("cuLibraryLoadData"));
    CHECK(has_nvml("nvmlDeviceGetComputeRunningProcesses_v2"));
    CHECK(!has_nvml("nvmlDeviceGetComputeRunningProcesses_v3"));
    check_slice(1, RM_SAYS);
    CHECK(sim_calls("RM_VID_HEAP_CONTROL") > 0);
}

BED_TEST("535: all that we replace but what CUDA 12.4 brought", .limit = LIMIT, .sim = "driver=535",
    .environment = {TELL})
{
    CHECK(has_cuda("cuGetProcAddress_v2") && has_cuda("cuLibraryLoadData"));
    CHECK(!has_cuda("cuCtxCreate_v4") && !has_cuda("cuGreenCtxCreate"));
    CHECK(has_nvml("nvmlDeviceGetMemoryInfo_v2"));
    CHECK(!has_nvml("nvmlDeviceGetProcessesUtilizationInfo"));
    check_slice(1, RM_SAYS);
}

BED_TEST("580: as on the card that was measured", .limit = LIMIT, .sim = "driver=580",
    .environment = {TELL})
{
    CHECK(has_cuda("cuGreenCtxCreate") && has_cuda("cuGreenCtxStreamCreate"));
    CHECK(has_cuda("cuCtxCreate_v4") && has_nvml("nvmlDeviceGetProcessesUtilizationInfo"));
    CHECK(!has_cuda("cuMemAlloc_v3"));
    check_slice(1, RM_SAYS);
    CHECK(sim_calls("RM_ALLOC 0x40") > 0);
    CHECK_EQ(sim_calls("RM_VID_HEAP_CONTROL"), 0);
}

BED_TEST("a driver to come: longer parameters, classes and calls that nobody knows", .limit = LIMIT,
    .sim = "driver=future", .environment = {TELL})
{
    CHECK(has_cuda("cuMemAlloc_v3"));
    check_slice(1, RM_SAYS);
    CHECK(sim_calls("RM_ALLOC 0xd041") > 0);
    CHECK_EQ(bed_stderr_lines("class 0xd041, which is not known"), 1);
}

typedef CUresult alloc_v3_function(size_t bytes, unsigned long long flags, CUdeviceptr *address);
typedef CUresult create_v5_function(CUdevice device, unsigned flags, CUcontext *context);

BED_TEST("versions of functions that nobody knows are the driver's own, and their memory counts",
    .limit = LIMIT, .sim = "driver=future")
{
    alloc_v3_function *alloc = NULL;
    create_v5_function *create = NULL;
    void *known = NULL;
    CUcontext context;
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    __typeof__(cuGetProcAddress_v2) *get = CU(cuGetProcAddress_v2);
    CHECK_EQ(get("cuMemAlloc", (void **)&alloc, CUDA_FUTURE, 0, NULL), CUDA_SUCCESS);
    CHECK_EQ(get("cuCtxCreate", (void **)&create, CUDA_FUTURE, 0, NULL), CUDA_SUCCESS);
    CHECK_EQ(get("cuMemAlloc", &known, 13000, 0, NULL), CUDA_SUCCESS);
    CHECK(known == bed_cuda("cuMemAlloc_v2"));
    CHECK((void *)alloc == bed_cuda("cuMemAlloc_v3"));
    CHECK_EQ(create(0, 0, &context), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CHECK(before > 500 * MIB);
    CHECK_EQ(alloc(GIB, 0, &pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + GIB);
    CHECK_EQ(alloc(GIB, 0, &pointer), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("also where the driver returns other pointers than it exports", .limit = LIMIT,
    .sim = "driver=future,other-pointers")
{
    void *newest = NULL, *known = NULL;
    __typeof__(cuGetProcAddress_v2) *get = CU(cuGetProcAddress_v2);
    CHECK_EQ(get("cuMemAlloc", &newest, CUDA_FUTURE, 0, NULL), CUDA_SUCCESS);
    CHECK(newest == bed_cuda("cuMemAlloc_v3"));
    CHECK_EQ(get("cuMemAlloc", &known, 13000, 0, NULL), CUDA_SUCCESS);
    CHECK(known == bed_cuda("cuMemAlloc_v2"));
    CHECK_EQ(get("cuMemFree", &known, CUDA_FUTURE, 0, NULL), CUDA_SUCCESS);
    CHECK(known == bed_cuda("cuMemFree_v2"));
}

BED_TEST("a sandbox is found out where a function that nobody knows made the context",
    .limit = LIMIT, .sim = "driver=future,sandbox")
{
    create_v5_function *create = (create_v5_function *)bed_cuda("cuCtxCreate_v5");
    CUcontext context;
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(create(0, 0, &context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB + 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    check_ledger(2, "do not pass ioctl here", 1);
}

BED_TEST("memory by RM_ALLOC_MEMORY, all calls wrapped", .limit = LIMIT,
    .sim = "rm-memory=alloc-memory,xfer", .environment = {TELL})
{
    check_slice(1, RM_SAYS);
    CHECK(sim_calls("RM_ALLOC_MEMORY 0x40") > 0);
}

BED_TEST("memory by RM_VID_HEAP_CONTROL, all calls wrapped", .limit = LIMIT,
    .sim = "driver=440,xfer", .environment = {TELL})
{
    check_slice(1, RM_SAYS);
}

BED_TEST("an MPS client, whose channels are the server's", .limit = LIMIT, .sim = "mps",
    .environment = {TELL})
{
    check_slice(1, RM_SAYS);
}

BED_TEST("a vGPU guest, where nobody tells what a process holds", .limit = LIMIT,
    .sim = "vgpu-guest", .environment = {TELL})
{
    check_slice(1, RM_SAYS_BLIND);
}

BED_TEST("a container whose pids the driver does not know", .limit = LIMIT, .sim = "nvml-pid=host",
    .environment = {TELL})
{
    check_slice(1, RM_SAYS_BLIND);
}

BED_TEST("an old vGPU guest", .limit = LIMIT, .sim = "driver=470,vgpu-guest,nvml-pid=none",
    .environment = {TELL})
{
    check_slice(1, RM_SAYS_BLIND);
}

/* What is not told at info level is told to all. */
BED_TEST("a sandbox that refuses the ioctls with EPERM", .limit = LIMIT, .sim = "sandbox=EPERM")
{
    check_slice(2, "do not pass ioctl here");
}

BED_TEST("a sandbox that refuses them with EINVAL", .limit = LIMIT, .sim = "sandbox=EINVAL")
{
    check_slice(2, "do not pass ioctl here");
}

BED_TEST("a sandbox that refuses them with ENOSYS, around an old driver", .limit = LIMIT,
    .sim = "driver=440,sandbox=ENOSYS")
{
    check_slice(2, "do not pass ioctl here");
}

BED_TEST("a sandbox that passes only what it knows CUDA to need", .limit = LIMIT, .sim = "filter")
{
    check_slice(2, "does not tell on which GPU memory lies");
}

BED_TEST("an MPS client whose memory the server takes", .limit = LIMIT, .sim = "mps,no-rm")
{
    check_slice(2, "do not pass ioctl here");
}

BED_TEST("memory of a class that nobody knows", .limit = LIMIT,
    .sim = "driver=future,memory-class=0xd040")
{
    check_slice(2, "in no way that is known");
}

/* Only the context itself shows that the API ledger has to count it. */
BED_TEST("the first context is refused where it does not fit, in a way that is not known",
    .limit = "400MiB", .sim = "driver=future,memory-class=0xd040")
{
    CUcontext context;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("the first primary context is refused where it does not fit, in a way that is not known",
    .limit = "400MiB", .sim = "driver=future,memory-class=0xd040")
{
    CUcontext context;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("calls of a size that nobody knows", .limit = LIMIT, .sim = "driver=future,long-calls")
{
    check_slice(2, "do not pass ioctl here");
}

BED_TEST("an interposer before us that makes the calls itself is named", .limit = LIMIT,
    .before = "test/hook/libtest-ioctl.so")
{
    check_slice(2, "another library's ioctl comes before ours");
}

BED_TEST("the ledger that was asked for is said, too", .limit = LIMIT,
    .environment = {TELL, "VGPU_LEDGER=api"})
{
    check_slice(2, "VGPU_LEDGER asks for it");
}

BED_TEST("a program that asks at the default level is told nothing where all is well",
    .limit = LIMIT, .sim = "driver=470")
{
    bed_context(0);
    CHECK_STR(bed_stderr(), "");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
