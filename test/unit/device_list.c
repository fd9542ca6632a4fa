/* SPDX-License-Identifier: Apache-2.0 */
/* Learning the order of the devices, from an NVML that leads back here. */
#define nvml_load test_nvml_load
#define nvml_next_instance test_nvml_next_instance
#define DEVICE_ROOT "." /* of a test that makes one */
#include "driver/device_list.c"

#include "check.h"
#include "scratch.h"

#include <pthread.h>
#include <sys/stat.h>

#define UUID "GPU-00000000-0000-0000-0000-00000000000"
#define MIG "MIG-00000000-0000-0000-0000-00000000000"

static unsigned inits;
static int position_within = -2, position_beside = -2;

bool test_nvml_load(bool open)
{
    (void)open;
    return true;
}

static int at(const char *list, const char *uuid)
{
    return device_list_position((const char *const[]){list, NULL}, uuid);
}

static void *ask(void *result)
{
    store_release((int *)result, device_list_position(NULL, UUID "1"));
    return NULL;
}

/* As NVML's calls to the resource manager do, in this thread and in one that it waits for. */
static nvmlReturn_t init(void)
{
    pthread_t beside;
    CHECK(device_list_is_learning());
    device_list_prepare();
    device_list_confirm(UUID "1");
    (void)ask(&position_within);
    if (pthread_create(&beside, NULL, ask, &position_beside) == 0)
        pthread_join(beside, NULL);
    inits++;
    return NVML_SUCCESS;
}

static nvmlReturn_t finish(void)
{
    return NVML_SUCCESS;
}

static unsigned device_count = 2;

static nvmlReturn_t get_count(unsigned *count)
{
    *count = device_count;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_handle(unsigned index, nvmlDevice_t *ret_device)
{
    *ret_device = (nvmlDevice_t)(uintptr_t)(index + 1); // NOLINT(performance-no-int-to-ptr)
    return NVML_SUCCESS;
}

static nvmlReturn_t get_uuid(nvmlDevice_t device, char *uuid, unsigned size)
{
    unsigned number = (unsigned)(uintptr_t)device - 1;
    if (number >= 9)
        snprintf(uuid, size, MIG "%u", number - 9);
    else
        snprintf(uuid, size, UUID "%u", number);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_minor(nvmlDevice_t device, unsigned *minor)
{
    *minor = (unsigned)(uintptr_t)device - 1;
    return NVML_SUCCESS;
}

/* The card that is in MIG mode, or -1: its instances are the handles from 10 on. */
static int mig_card = -1;

bool test_nvml_next_instance(nvmlDevice_t card, unsigned *place, nvmlDevice_t *ret_instance)
{
    if ((int)(uintptr_t)card - 1 != mig_card || *place > 1)
        return false;
    *ret_instance = (nvmlDevice_t)(uintptr_t)(10 + (*place)++); // NOLINT(performance-no-int-to-ptr)
    return true;
}

static void have_nvml(void)
{
    nvml.nvmlInit_v2 = init;
    nvml.nvmlShutdown = finish;
    nvml.nvmlDeviceGetCount_v2 = get_count;
    nvml.nvmlDeviceGetHandleByIndex_v2 = get_handle;
    nvml.nvmlDeviceGetUUID = get_uuid;
    nvml.nvmlDeviceGetMinorNumber = get_minor;
    alarm(20); /* a deadlock ends the test */
}

TEST("NVML's own calls may ask for a device's position while the order is learnt")
{
    have_nvml();
    device_list_prepare();
    device_list_confirm(UUID "1"); /* where /proc told another order */
    CHECK_EQ(inits, 1);
    CHECK_EQ(position_within, -1);
    CHECK_EQ(position_beside, -1);
    CHECK(!device_list_is_learning());
    CHECK_EQ(device_list_position(NULL, UUID "1"), 1);
    CHECK_EQ(at("1,0", UUID "1"), 0);
}

TEST("a device that is not in the order has it learnt anew once")
{
    have_nvml();
    device_list_prepare();
    unsigned before = inits;
    for (int i = 0; i < 3; i++)
        device_list_confirm("GPU-none");
    CHECK_EQ(inits, before + 1);
    CHECK_EQ(device_list_position(NULL, "GPU-none"), -1);
    CHECK_EQ(device_list_position(NULL, UUID "0"), 0);
}

static void *prepare(void *unused)
{
    device_list_prepare();
    store_release((int *)unused, device_list_position(NULL, UUID "1"));
    return NULL;
}

/* Three devices; NVML's minor numbers are their positions. */
static void learn(void)
{
    have_nvml();
    device_count = 3;
    LOCKED(list_lock)
        known.count = 0;
    prepared = false;
    device_list_prepare();
}

TEST("a list of which no item names a device counts as none")
{
    static const char *const lists[] = {"all", " ", ",", "/var/run/nvidia-container-devices",
        "nvidia.com/gpu=2", "runtime.nvidia.com/gpu=2,runtime.nvidia.com/gpu=0",
        "nvidia.com/gpu=" UUID "2", "MIG-" UUID "2/1/0", "2:0,0:0", "3", "-2", "0x2", "GPU-", "G",
        "MIG-", "GPU-0", UUID "9", "\"2\"",
        "GPU-00000000-0000-0000-0000-000000000002-and-much-more-of-it-than-a-uuid-has"};
    learn();
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (int d = 0; d < 3; d++) {
            char uuid[48];
            snprintf(uuid, sizeof(uuid), UUID "%d", d);
            if (!CHECK_EQ(at(lists[i], uuid), d))
                CHECK_STR(lists[i], "a list that names no device");
        }
    }
}

TEST("the first list that names a device counts")
{
    learn();
    const char *const lists[] = {"nvidia.com/gpu=0", "7", "2,1", UUID "0", NULL};
    CHECK_EQ(device_list_position(lists, UUID "2"), 0);
    CHECK_EQ(device_list_position(lists, UUID "1"), 1);
    CHECK_EQ(device_list_position(lists, UUID "0"), 2);
}

TEST("items count by their places, and those without a word have none")
{
    learn();
    CHECK_EQ(at(",2, ,1,", UUID "2"), 0);
    CHECK_EQ(at(",2, ,1,", UUID "1"), 1);
    CHECK_EQ(at("2,2,1", UUID "1"), 2); /* a second limit for the same device is nobody's */
    CHECK_EQ(at("gpu-00000000-0000-0000-0000-000000000002", UUID "2"), 0);
}

TEST("devices that a list does not name have the places left, in their order")
{
    learn();
    CHECK_EQ(at("2", UUID "0"), 1);
    CHECK_EQ(at("2", UUID "1"), 2);
    CHECK_EQ(at("MIG-a,1,MIG-b", UUID "0"), 0);
    CHECK_EQ(at("MIG-a,1,MIG-b", UUID "1"), 1);
    CHECK_EQ(at("MIG-a,1,MIG-b", UUID "2"), 2);
    CHECK_EQ(at("MIG-a,MIG-b,MIG-c,2", UUID "1"), 1);
    CHECK_EQ(at("2,2", UUID "0"), 2);
}

TEST("a device that the order does not know is found by its UUID alone")
{
    learn();
    CHECK_EQ(at("0,GPU-beef", "GPU-beefbeef"), 1);
    CHECK_EQ(at("0,1", "GPU-beefbeef"), -1);
    CHECK_EQ(at("nvidia.com/gpu=0", "GPU-beefbeef"), -1);
}

static void learn_mig(void)
{
    mig_card = 1;
    learn();
    mig_card = -1;
}

TEST("a card in MIG mode has its instances in its place")
{
    learn_mig();
    CHECK_EQ(device_list_position(NULL, UUID "0"), 0);
    CHECK_EQ(device_list_position(NULL, MIG "0"), 1);
    CHECK_EQ(device_list_position(NULL, MIG "1"), 2);
    CHECK_EQ(device_list_position(NULL, UUID "2"), 3);
    CHECK_EQ(device_list_position(NULL, UUID "1"), 1); /* where CUDA tells only cards */
}

TEST("an item names an instance by its UUID, and the first of a card by the card")
{
    learn_mig();
    CHECK_EQ(at(MIG "1," MIG "0", MIG "1"), 0);
    CHECK_EQ(at(MIG "1," MIG "0", MIG "0"), 1);
    CHECK_EQ(at("2,1", MIG "0"), 1);
    CHECK_EQ(at("2," UUID "1", MIG "0"), 1);
    CHECK_EQ(at("2,1", MIG "1"), 3);   /* the second takes a place that is left */
    CHECK_EQ(at("MIG-0", MIG "1"), 2); /* either instance: names none */
    CHECK_EQ(at("1:1,1:0", MIG "1"), 2);
    CHECK_EQ(at("MIG-" UUID "1/2/0,MIG-" UUID "1/1/0", MIG "1"), 2);
}

static void put_card(const char *pci, const char *uuid, int minor)
{
    char path[200];
    snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s", pci);
    REQUIRE(mkdir(path, 0755) == 0);
    snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s/information", pci);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "GPU UUID: \t %s\nDevice Minor: \t %d\n", uuid, minor);
    fclose(file);
    snprintf(path, sizeof(path), "dev/nvidia%d", minor);
    REQUIRE((file = fopen(path, "w")) != NULL);
    fclose(file);
}

static void make_tree(const char *const *directories)
{
    for (; *directories; directories++)
        REQUIRE(mkdir(*directories, 0755) == 0);
}

/* /proc has the order 2, 1; NVML the order 0, 1, 2. */
TEST("NVML is asked where /proc shows instances, which it does not identify")
{
    have_nvml();
    REQUIRE(chdir(scratch_path("")) == 0);
    make_tree((const char *const[]){
        "dev", "proc", "proc/driver", "proc/driver/nvidia", "proc/driver/nvidia/gpus", NULL});
    put_card("0000:01:00.0", UUID "2", 2);
    put_card("0000:02:00.0", UUID "1", 1);
    learn();
    CHECK_EQ(device_list_position(NULL, UUID "2"), 0);
    CHECK_EQ(device_list_position(NULL, UUID "1"), 1);
    make_tree((const char *const[]){"proc/driver/nvidia/capabilities",
        "proc/driver/nvidia/capabilities/gpu1", "proc/driver/nvidia/capabilities/gpu1/mig", NULL});
    learn_mig();
    CHECK_EQ(device_list_position(NULL, UUID "2"), 0); /* in MIG mode, and not split */
    make_tree((const char *const[]){"proc/driver/nvidia/capabilities/gpu1/mig/gi1", NULL});
    learn_mig();
    CHECK_EQ(device_list_position(NULL, MIG "0"), 1);
    CHECK_EQ(device_list_position(NULL, UUID "2"), 3);
}

TEST("who comes while another thread learns waits for the order")
{
    pthread_t threads[4];
    int positions[4] = {-2, -2, -2, -2};
    have_nvml();
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, prepare, &positions[i]) == 0);
    for (int i = 0; i < 4; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
        CHECK_EQ(positions[i], inits ? 1 : -1);
    }
    CHECK(inits <= 1);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
