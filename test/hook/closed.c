/* SPDX-License-Identifier: Apache-2.0 */
/* Where a limit was asked for that cannot be kept, the device is full and one line says why; where
 * none was asked for, nothing is in the way. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"

#include <sys/stat.h>

/* No memory is had, however it is asked for; the view says so; the calls are answered. */
static void check_full(void)
{
    CUcontext context = NULL;
    CUdeviceptr pointer;
    nvmlDevice_t device;
    nvmlMemory_t memory;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(CU(cuMemAlloc_v2)(&pointer, 4096) != CUDA_SUCCESS);
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    CHECK_EQ(memory.free, 0);
    CHECK_EQ(memory.used, memory.total);
    CHECK_EQ(bed_card_bytes(0), 0);
}

static void check_works(void)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

BED_TEST("a limit that is not understood", .limit = "abc")
{
    check_full();
    CHECK_EQ(bed_stderr_lines("CUDA_DEVICE_MEMORY_LIMIT=\"abc\""), 1);
    CHECK_EQ(bed_stderr_lines("accepted:"), 1);
}

BED_TEST("a limit that is too large to be a number of bytes", .limit = "99999999999g")
{
    check_full();
    CHECK_EQ(bed_stderr_lines("too large"), 1);
}

BED_TEST("a negative limit", .limit = "-1")
{
    check_full();
    CHECK_EQ(bed_stderr_lines("\"-1\""), 1);
}

BED_TEST("a device's own value that is not understood closes that device only", .sim = "2xh200",
    .limit = "2g", .environment = {"CUDA_DEVICE_MEMORY_LIMIT_1=2 bananas"})
{
    CUcontext context = NULL;
    bed_context(0);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_stderr_lines("CUDA_DEVICE_MEMORY_LIMIT_1=\"2 bananas\""), 1);
}

BED_TEST("a limit of nothing is no limit", .limit = "")
{
    check_works();
    CHECK_STR(bed_stderr(), "");
}

BED_TEST("a limit of 0 is no limit", .limit = "0")
{
    check_works();
    CHECK_STR(bed_stderr(), "");
}

BED_TEST("a region that cannot be opened, with a limit", .limit = "1g",
    .environment = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/proc/self/nowhere/region"})
{
    check_full();
    CHECK_EQ(bed_stderr_lines("/proc/self/nowhere/region"), 1);
    CHECK_EQ(bed_stderr_lines("treated as full"), 1);
}

BED_TEST("a region that cannot be opened, without a limit",
    .environment = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/proc/self/nowhere/region"})
{
    check_works();
}

BED_TEST("a region that is a directory, with a limit", .limit = "1g",
    .environment = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp"})
{
    check_full();
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    for (size_t i = 0; i < bytes; i++)
        fputc(text[i % strlen(text)], file);
    fclose(file);
}

BED_TEST("another program's file is not a region and is left alone", .limit = "1g")
{
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    struct stat status;
    write_file(path, "precious", 800);
    check_full();
    CHECK_EQ(stat(path, &status), 0);
    CHECK_EQ(status.st_size, 800);
    CHECK_EQ(bed_stderr_lines("not a region"), 1);
}

BED_TEST("a file of a region's size with other contents is not a region", .limit = "1g")
{
    write_file(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), "precious", VGPU_REGION_FILE_BYTES);
    check_full();
    CHECK_EQ(bed_stderr_lines("not a region"), 1);
}

BED_TEST("a region of another version is not touched", .limit = "1g")
{
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    struct vgpu_region *region = calloc(1, sizeof(*region));
    region->magic = VGPU_REGION_MAGIC;
    region->version = VGPU_REGION_VERSION + 1;
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fseek(file, VGPU_REGION_OFFSET, SEEK_SET);
    fwrite(region, sizeof(*region), 1, file);
    fclose(file);
    check_full();
    CHECK_EQ(bed_region()->version, VGPU_REGION_VERSION + 1);
}

static void use_device(void *argument)
{
    (void)argument;
    bed_context(0);
}

/* As if as many processes lived as there are slots: each is its parent's. */
static void take_all_slots(void)
{
    struct stat names;
    struct vgpu_region *region = bed_region();
    REQUIRE(region != NULL && stat("/proc/self/ns/pid", &names) == 0);
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
        region->slots[i] = (struct vgpu_slot){.pid_namespace = names.st_ino};
        region->slots[i].state = 1ull << 32 | (uint64_t)getppid() << 2 | VGPU_SLOT_LIVE;
    }
    region->slot_high = VGPU_REGION_SLOTS;
}

BED_TEST("a process that finds no slot, with a limit", .limit = "1g")
{
    CHECK(bed_ended_well(bed_fork(use_device, NULL)));
    take_all_slots();
    check_full();
    CHECK_EQ(bed_stderr_lines("no slot in the shared region"), 1);
}

BED_TEST("a process that finds no slot, without a limit")
{
    CHECK(bed_ended_well(bed_fork(use_device, NULL)));
    take_all_slots();
    check_works();
}

BED_TEST("a region in directories that are missing is made", .limit = "1g")
{
    char path[300];
    CUdeviceptr pointer;
    snprintf(path, sizeof(path), "%s/a/b/c/region", bed_directory());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(access(path, R_OK | W_OK), 0);
    CHECK(allocation_charged() > 0);
}

BED_TEST("the region can be shared by the container's users", .limit = "1g")
{
    struct stat status;
    mode_t mask = umask(077);
    bed_context(0);
    CHECK_EQ(umask(mask), 077);
    CHECK_EQ(stat(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), &status), 0);
    CHECK_EQ(status.st_mode & 0777, 0666);
}

BED_TEST("a program without memory for more descriptors", .limit = "1g")
{
    CUdeviceptr pointer;
    bed_context(0);
    int last = -1, fd;
    while ((fd = dup(0)) >= 0)
        last = fd;
    CHECK(last > 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
}

BED_TEST("a name of the region that is too long, with a limit", .limit = "1g")
{
    char name[8192];
    memset(name, 'x', sizeof(name));
    memcpy(name, "/tmp/", 5);
    name[sizeof(name) - 1] = '\0';
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", name, 1);
    check_full();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
