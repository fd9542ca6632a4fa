/* SPDX-License-Identifier: Apache-2.0 */
/* Learning the order of the devices, from an NVML that leads back here. */
#define nvml_load test_nvml_load
#include "driver/device_list.c"

#include "check.h"

#include <pthread.h>

#define UUID "GPU-00000000-0000-0000-0000-00000000000"

static unsigned inits;
static int position_within = -2, position_beside = -2;

bool test_nvml_load(bool open)
{
    (void)open;
    return true;
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

static nvmlReturn_t get_count(unsigned *count)
{
    *count = 2;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_handle(unsigned index, nvmlDevice_t *ret_device)
{
    *ret_device = (nvmlDevice_t)(uintptr_t)(index + 1); // NOLINT(performance-no-int-to-ptr)
    return NVML_SUCCESS;
}

static nvmlReturn_t get_uuid(nvmlDevice_t device, char *uuid, unsigned size)
{
    snprintf(uuid, size, UUID "%u", (unsigned)(uintptr_t)device - 1);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_minor(nvmlDevice_t device, unsigned *minor)
{
    *minor = (unsigned)(uintptr_t)device - 1;
    return NVML_SUCCESS;
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
    CHECK_EQ(device_list_position("1,0", UUID "1"), 0);
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
