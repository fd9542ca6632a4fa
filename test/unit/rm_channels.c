/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate: who is closed and opened, and how often the kernel is asked. What goes wrong is
 * in rm_channels_fail.c. */
#include "rm/rm_channels.h"

#include "channel_kernel.h"
#include "container/container.h"

/* The channel gate as a process finds it that has made its context. */
static void begin(unsigned channels)
{
    kernel_begin_channels(channels);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    kernel.switches = kernel.controls = kernel.longest_list = 0;
}

TEST("closing takes the compute channels off the GPU and no others, opening lets them go on")
{
    begin(4);
    CHECK_EQ(rm_channels_count(0), 4);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    CHECK(rm_channels_is_closed(0));
    CHECK_EQ(kernel_disabled(), 4);
    CHECK(kernel_is_disabled(CLIENT, CHANNELS));
    CHECK(!kernel_is_disabled(CLIENT, CHANNELS_COPY));
    CHECK_EQ(rm_channels_open(0, NULL), 4);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(kernel.switches, 2);
}

TEST("what is closed is not closed again, what is open not opened")
{
    begin(4);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK_EQ(kernel.switches, 0);
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    CHECK_EQ(kernel.switches, 1);
    CHECK_EQ(rm_channels_open(0, NULL), 4);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK_EQ(kernel.switches, 2);
}

TEST("a switch says when it began and ended")
{
    struct rm_channels_times times = {1, 1};
    begin(70);
    CHECK_EQ(rm_channels_open(0, &times), 0);
    CHECK_EQ(times.before_ns, 0);
    CHECK_EQ(times.after_ns, 0);
    kernel.slow_ms = 2;
    CHECK_EQ(rm_channels_close(0, &times), 70);
    CHECK(times.after_ns - times.before_ns >= 4000000);
}

TEST("150 channels are three lists, none longer than the kernel takes")
{
    begin(150);
    CHECK_EQ(rm_channels_close(0, NULL), 150);
    CHECK_EQ(kernel_disabled(), 150);
    CHECK_EQ(kernel.switches, 3);
    CHECK_EQ(kernel.longest_list, 64);
    CHECK_EQ(rm_channels_open(0, NULL), 150);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("each client's channels go through its own subdevice and descriptor")
{
    begin(3);
    kernel_fd = 78;
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 5);
    CHECK_EQ(rm_channels_count(0), 8);
    CHECK_EQ(rm_channels_close(0, NULL), 8);
    CHECK_EQ(kernel.switches, 2);
    CHECK_EQ(kernel_disabled(), 8);
    CHECK_EQ(kernel.unknown, 0);
    CHECK_EQ(rm_channels_open(0, NULL), 8);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel_free(CLIENT, CLIENT), RM_OK);
    CHECK_EQ(rm_channels_close(0, NULL), 5);
    CHECK_EQ(kernel.last_fd, 78);
}

TEST("several groups of a client are one list")
{
    begin(3);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP_2, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP_2, CHANNELS_2, 3);
    CHECK_EQ(rm_channels_close(0, NULL), 6);
    CHECK_EQ(kernel.switches, 1);
}

TEST("devices are closed and opened by themselves")
{
    begin(3);
    kernel_add_client(CLIENT, DEVICE_2, 1, GROUP_2, CHANNELS_2, 2);
    CHECK_EQ(rm_channels_count(1), 2);
    CHECK_EQ(rm_channels_close(1, NULL), 2);
    CHECK(!rm_channels_is_closed(0));
    CHECK(kernel_is_disabled(CLIENT, CHANNELS_2));
    CHECK_EQ(kernel_disabled(), 2);
    CHECK_EQ(rm_channels_close(0, NULL), 3);
    CHECK_EQ(rm_channels_open(1, NULL), 2);
    CHECK_EQ(kernel_disabled(), 3);
}

TEST("groups of compute engines are known by their number, 1 to 8")
{
    kernel_begin();
    for (uint32_t engine = 0; engine <= 9; engine++) {
        CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP + engine, engine), RM_OK);
        kernel_allocate_channels(CLIENT, GROUP + engine, CHANNELS + engine, 1);
    }
    CHECK_EQ(rm_channels_count(0), 8);
}

TEST("what the kernel did not allocate is not on record")
{
    begin(1);
    kernel.status = RM_ERR_NO_MEMORY;
    CHECK_EQ(
        kernel_allocate(CLIENT, GROUP, CHANNELS + 1, RM_CLASS_CHANNEL_HOPPER), RM_ERR_NO_MEMORY);
    CHECK_EQ(rm_channels_count(0), 1);
    CHECK_EQ(kernel_allocate(CLIENT, 0xbad, CHANNELS + 2, RM_CLASS_CHANNEL_HOPPER), RM_OK);
    CHECK_EQ(rm_channels_count(0), 1);
}

TEST("a channel that is born on a closed device is closed before the driver has it")
{
    begin(1);
    CHECK_EQ(rm_channels_close(0, NULL), 1);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS + 1, 1);
    CHECK(kernel_is_disabled(CLIENT, CHANNELS + 1));
    CHECK_EQ(kernel.switches, 2);
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS + 2, 1);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("a device without channels is closed for those to come")
{
    kernel_begin();
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    CHECK(rm_channels_is_closed(0));
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS, 2);
    CHECK_EQ(kernel_disabled(), 2);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel_disabled(), 2);
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("channels that the driver sets going on a closed device are closed again")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    CHECK_EQ(kernel_control(CLIENT, GROUP, RM_CTRL_GPFIFO_SCHEDULE), RM_OK);
    CHECK_EQ(kernel_disabled(), 2);
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    kernel.switches = 0;
    CHECK_EQ(kernel_control(CLIENT, GROUP, RM_CTRL_GPFIFO_SCHEDULE), RM_OK);
    CHECK_EQ(kernel.switches, 0);
}

TEST("what is freed while closed is not opened, what remains is")
{
    begin(4);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP_2, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP_2, CHANNELS_2, 3);
    CHECK_EQ(rm_channels_close(0, NULL), 7);
    CHECK_EQ(kernel_free(CLIENT, CHANNELS + 1), RM_OK);
    CHECK_EQ(rm_channels_count(0), 6);
    CHECK_EQ(kernel_free(CLIENT, GROUP_2), RM_OK);
    CHECK_EQ(rm_channels_count(0), 3);
    CHECK_EQ(rm_channels_open(0, NULL), 3);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(kernel.unknown, 0);
    CHECK_EQ(kernel_free(CLIENT, DEVICE), RM_OK);
    CHECK_EQ(rm_channels_count(0), 0);
}

TEST("all goes with its client")
{
    begin(4);
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    CHECK_EQ(kernel_free(CLIENT, CLIENT), RM_OK);
    CHECK_EQ(rm_channels_count(0), 0);
    kernel.switches = 0;
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(kernel.switches, 0);
}

TEST("what the kernel refuses to free is closed and opened as before")
{
    static const uint32_t objects[] = {CHANNELS, GROUP, DEVICE, CLIENT};
    begin(4);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(rm_channels_close(0, NULL), 4);
        kernel.status = RM_ERR_INVALID_ARGUMENT;
        CHECK_EQ(kernel_free(CLIENT, objects[i]), RM_ERR_INVALID_ARGUMENT);
        CHECK_EQ(rm_channels_count(0), 4);
        CHECK_EQ(kernel_disabled(), 4);
        CHECK_EQ(rm_channels_open(0, NULL), 4);
        CHECK_EQ(kernel_disabled(), 0);
    }
}

TEST("channels whose free is refused come back as their device is by then")
{
    begin(4);
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    struct rm_channels_detached *detached =
        rm_channels_detach(CLIENT, CHANNELS, RM_CLASS_CHANNEL_HOPPER);
    CHECK(detached != NULL);
    CHECK_EQ(rm_channels_open(0, NULL), 3);
    CHECK_EQ(kernel_disabled(), 1);
    rm_channels_attach(detached);
    CHECK_EQ(kernel_disabled(), 0);
    detached = rm_channels_detach(CLIENT, GROUP, RM_CLASS_CHANNEL_GROUP);
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    rm_channels_attach(detached);
    CHECK_EQ(kernel_disabled(), 4);
}

TEST("a channel whose group has gone does not come back")
{
    begin(2);
    struct rm_channels_detached *detached =
        rm_channels_detach(CLIENT, CHANNELS, RM_CLASS_CHANNEL_HOPPER);
    CHECK_EQ(kernel_free(CLIENT, GROUP), RM_OK);
    rm_channels_attach(detached);
    CHECK_EQ(rm_channels_count(0), 0);
}

TEST("a handle that is given out again without a free that was seen is one channel")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    kernel_forget(CLIENT);
    CHECK_EQ(kernel_allocate(0, 0, CLIENT, RM_CLASS_CLIENT), RM_OK);
    CHECK_EQ(rm_channels_count(0), 0);
    kernel_add_client(CLIENT, DEVICE, 0, GROUP, CHANNELS, 3);
    CHECK_EQ(rm_channels_count(0), 3);
    CHECK_EQ(kernel_disabled(), 3);
    CHECK_EQ(kernel.unknown, 0);
}

TEST("channels are let go on before the subdevice goes that could do it")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    CHECK_EQ(kernel_free(CLIENT, SUBDEVICE), RM_OK);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK_EQ(kernel_allocate(CLIENT, DEVICE, SUBDEVICE, RM_CLASS_SUBDEVICE), RM_OK);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
}

TEST("while held open nothing is closed, and afterwards only when asked")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    rm_channels_hold_open();
    CHECK_EQ(kernel_disabled(), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_close(0, NULL), -EBUSY);
    rm_channels_hold_open();
    rm_channels_release();
    CHECK_EQ(rm_channels_close(0, NULL), -EBUSY);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS + 2, 1);
    rm_channels_release();
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(rm_channels_close(0, NULL), 3);
}

TEST("holds that are ended hold nothing open, and what is closed then stays so when they release")
{
    begin(2);
    rm_channels_hold_open();
    rm_channels_hold_open();
    rm_channels_end_holds();
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    rm_channels_release();
    rm_channels_release();
    CHECK(rm_channels_is_closed(0));
    CHECK_EQ(kernel_disabled(), 2);
    rm_channels_hold_open();
    CHECK_EQ(rm_channels_close(0, NULL), -EBUSY);
    rm_channels_release();
    CHECK_EQ(rm_channels_close(0, NULL), 2);
}

TEST("what has finished is open for good")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    rm_channels_finish();
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(rm_channels_close(0, NULL), -EBUSY);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS + 2, 1);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("a forked child has no channels and asks the kernel for nothing")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    rm_channels_hold_open();
    rm_channels_release();
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    kernel.controls = 0;
    pid_t pid = fork();
    if (pid == 0) {
        rm_channels_hold_open();
        rm_channels_release();
        CHECK_EQ(kernel.controls, 0);
        container_enter();
        CHECK_EQ(rm_channels_count(0), 0);
        CHECK(!rm_channels_is_closed(0));
        CHECK_EQ(rm_channels_state(0), RM_CHANNELS_UNTESTED);
        CHECK_EQ(rm_channels_open(0, NULL), 0);
        CHECK_EQ(rm_channels_close(0, NULL), 0);
        CHECK_EQ(rm_channels_set_timeslice(0, 10000), 0);
        rm_channels_finish();
        CHECK_EQ(kernel.controls, 0);
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(rm_channels_open(0, NULL), 2);
}

TEST("time slices are those of the compute groups, also of those to come, and can be given back")
{
    begin(1);
    kernel_add_client(CLIENT, DEVICE_2, 1, GROUP_2, CHANNELS_2, 1);
    CHECK_EQ(rm_channels_set_timeslice(0, 10000), 1);
    CHECK_EQ(kernel_slice_us(CLIENT, GROUP), 10000);
    CHECK_EQ(kernel_slice_us(CLIENT, GROUP_COPY), SLICE_US);
    CHECK_EQ(kernel_slice_us(CLIENT, GROUP_2), SLICE_US);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, 0x200, RM_ENGINE_GR0), RM_OK);
    CHECK_EQ(kernel_slice_us(CLIENT, 0x200), 10000);
    CHECK_EQ(rm_channels_set_timeslice(0, 5000), 2);
    CHECK_EQ(kernel_slice_us(CLIENT, GROUP), 5000);
    CHECK_EQ(rm_channels_set_timeslice(0, 0), 2);
    CHECK_EQ(kernel_slice_us(CLIENT, GROUP), SLICE_US);
    CHECK_EQ(kernel_slice_us(CLIENT, 0x200), SLICE_US);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, 0x201, RM_ENGINE_GR0), RM_OK);
    CHECK_EQ(kernel_slice_us(CLIENT, 0x201), SLICE_US);
    kernel.slice_status = RM_ERR_NOT_SUPPORTED;
    CHECK_EQ(rm_channels_set_timeslice(0, 10000), -EIO);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
