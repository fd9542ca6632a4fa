/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate where the kernel refuses, is slow or has freed what nobody saw, and where
 * threads open and close at once. */
#include "rm/rm_channels.h"

#include "base/atomic.h"
#include "channel_kernel.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

static void begin(unsigned channels)
{
    kernel_begin_channels(channels);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    kernel.switches = kernel.controls = kernel.longest_list = 0;
}

static const char *words(void)
{
    static char text[RM_CHANNELS_WORDS];
    rm_channels_describe(0, text);
    return text;
}

TEST("the self-test enables, disables and enables")
{
    kernel_begin_channels(4);
    CHECK_STR(words(), "was not tried yet");
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel.switches, 3);
    CHECK(!kernel.first_switches[0] && kernel.first_switches[1] && !kernel.first_switches[2]);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel.switches, 3);
    CHECK_STR(words(), "works");
}

TEST("closing tests first")
{
    kernel_begin_channels(4);
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel.switches, 4);
}

TEST("without compute channels there is no gate, until there are some")
{
    kernel_begin();
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP_COPY, RM_ENGINE_COPY0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP_COPY, CHANNELS_COPY, 2);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_NO_GROUP);
    CHECK_EQ(kernel.controls, 0);
    CHECK(strstr(words(), "no compute channels") != NULL);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS, 2);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
}

TEST("a kernel that does not tell GPUs is no gate, and that is the reason given")
{
    kernel_begin();
    kernel.nameless = true;
    CHECK_EQ(kernel_allocate(CLIENT, CLIENT, DEVICE_2, RM_CLASS_DEVICE), RM_OK);
    CHECK_EQ(kernel_allocate(CLIENT, DEVICE_2, SUBDEVICE_2, RM_CLASS_SUBDEVICE), RM_OK);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE_2, GROUP, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS, 2);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_NO_GPU);
    CHECK(strstr(words(), "on which GPU") != NULL);
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("a kernel that cannot disable channels is told by its status")
{
    kernel_begin_channels(4);
    kernel.disable_status = RM_ERR_NOT_SUPPORTED;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_REFUSED);
    CHECK_STR(words(),
        "does not work: the kernel module refuses it (status 0x56, as without GSP firmware)");
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("a sandbox that refuses controls is told by its errno")
{
    kernel_begin_channels(4);
    kernel.error = EPERM;
    kernel.errors = 1000;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_REFUSED);
    CHECK_STR(words(), "does not work: the kernel module refuses it (errno 1)");
}

TEST("a group that does not answer is no gate")
{
    kernel_begin_channels(4);
    kernel.slice_status = RM_ERR_NOT_SUPPORTED;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_REFUSED);
    CHECK_EQ(kernel.switches, 0);
}

TEST("a kernel that takes long to switch is no gate")
{
    kernel_begin_channels(4);
    kernel.slow_ms = RM_CHANNELS_SLOW_NS / 1000000 + 1;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_TOO_SLOW);
    CHECK_STR(words(), "does not work: a switch takes longer than 20 ms");
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
    CHECK_EQ(kernel_disabled(), 0);
}

static void fast_again(void)
{
    kernel.slow_ms = 0;
}

TEST("a switch that was slow once does not count")
{
    kernel_begin_channels(4);
    kernel.slow_ms = RM_CHANNELS_SLOW_NS / 1000000 + 1;
    kernel.during = fast_again;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
}

/* Which switches are slow; the last of them stays. */
static const bool slow_pattern[] = {true, true, false, true, false, true};
static unsigned pattern_at;

static void next_of_pattern(void)
{
    if (pattern_at + 1 < sizeof(slow_pattern) / sizeof(slow_pattern[0]))
        pattern_at++;
    kernel.slow_ms = slow_pattern[pattern_at] ? RM_CHANNELS_SLOW_NS / 1000000 + 1 : 0;
    kernel.during = next_of_pattern;
}

TEST("nor do switches that are slow in each try, where each way was fast in some")
{
    kernel_begin_channels(4);
    kernel.slow_ms = RM_CHANNELS_SLOW_NS / 1000000 + 1;
    kernel.during = next_of_pattern;
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("nothing is tested while held open")
{
    kernel_begin_channels(4);
    rm_channels_hold_open();
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_UNTESTED);
    CHECK_EQ(kernel.controls, 0);
    rm_channels_release();
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
}

TEST("a control that a signal has kept from beginning is made again")
{
    begin(4);
    kernel.error = EINTR;
    kernel.errors = 5;
    errno = 0;
    CHECK_EQ(rm_channels_close(0, NULL), 4);
    CHECK_EQ(errno, 0);
    CHECK_EQ(kernel.switches, 1);
    CHECK_EQ(kernel.controls, 6);
}

TEST("a list that is refused is repeated channel by channel")
{
    begin(100);
    kernel.list_status = RM_ERR_INVALID_ARGUMENT;
    CHECK_EQ(rm_channels_close(0, NULL), 100);
    CHECK_EQ(kernel_disabled(), 100);
    CHECK_EQ(kernel.switches, 102);
    kernel.list_in_part = true;
    CHECK_EQ(rm_channels_open(0, NULL), 100);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
}

/* What the body writes to stderr: how many lines of it have the text. */
static int lines_said(void (*body)(void), const char *text)
{
    char said[4096] = "";
    int pipes[2];
    REQUIRE(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    int kept = dup(2);
    dup2(pipes[1], 2);
    body();
    dup2(kept, 2);
    (void)!read(pipes[0], said, sizeof(said) - 1);
    int lines = 0;
    for (const char *at = said; (at = strstr(at, text)); at++)
        lines++;
    return lines;
}

static void close_refused(void)
{
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
}

TEST("a channel that cannot be closed ends the gate: all are open, which is said once")
{
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    begin(100);
    kernel.bad_channel = CHANNELS + 50;
    kernel.bad_status = RM_ERR_INVALID_ARGUMENT;
    kernel.list_in_part = true;
    CHECK_EQ(lines_said(close_refused,
                 "device 0: the channel gate is given up: the kernel module has refused a switch "
                 "(status 0x1f)"),
        1);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_FAILED);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_FAILED);
}

TEST("a list that was carried out in part and then fails leaves nothing closed")
{
    begin(64);
    kernel.list_in_part = true;
    kernel.bad_channel = CHANNELS + 40; /* in the part */
    kernel.bad_status = RM_ERR_NOT_SUPPORTED;
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
    CHECK_EQ(kernel_disabled(), 0);
}

static void make_again(void)
{
    CHECK_EQ(kernel_free(CLIENT, CLIENT), RM_OK);
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 2);
}

TEST("a context that the driver has restored from a checkpoint ends the gate, which is said once")
{
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    CHECK_EQ(
        lines_said(make_again,
            "device 0: the channel gate is given up: the driver cannot interrupt kernels after "
            "it has restored a checkpoint"),
        1);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_RESTORED);
    CHECK_EQ(rm_channels_close(0, NULL), -ENOTSUP);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_RESTORED);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("what another API makes again beside groups that live is no restored one")
{
    begin(2);
    kernel_add_client(CLIENT_2, DEVICE_2, 0, GROUP_2, CHANNELS_2, 2);
    CHECK_EQ(kernel_free(CLIENT_2, CLIENT_2), RM_OK);
    kernel_add_client(CLIENT_2 + 1, DEVICE_2, 0, GROUP_2, CHANNELS_2, 2);
    CHECK_EQ(rm_channels_close(0, NULL), 4);
}

TEST("a group that ended by itself, or whose client has another of its handle, is no restored one")
{
    begin(2);
    CHECK_EQ(kernel_free(CLIENT, GROUP), RM_OK);
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    CHECK_EQ(kernel_free(CLIENT_2, CLIENT_2), RM_OK);
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
}

TEST("a newborn that cannot be closed ends the gate")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    kernel.disable_status = RM_ERR_NOT_SUPPORTED;
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS + 2, 1);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_FAILED);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK(!rm_channels_is_closed(0));
}

TEST("opening that is refused is tried again, at once and at each call")
{
    begin(2);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    kernel.enable_status = RM_ERR_NO_MEMORY;
    kernel.enable_failures = 3;
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    kernel.enable_failures = 1000;
    CHECK_EQ(rm_channels_open(0, NULL), -EIO);
    CHECK(rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_FAILED);
    CHECK_EQ(rm_channels_open(0, NULL), -EIO);
    kernel.enable_failures = 0;
    CHECK_EQ(rm_channels_open(0, NULL), 2);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("what the kernel has freed where nobody saw it is forgotten, and the gate goes on")
{
    begin(3);
    kernel_fd = 78;
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 5);
    kernel_forget(CLIENT_2);
    CHECK_EQ(rm_channels_close(0, NULL), 3);
    CHECK_EQ(rm_channels_count(0), 3);
    CHECK_EQ(kernel_disabled(), 3);
    kernel_forget(CLIENT);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK_EQ(rm_channels_count(0), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
}

TEST("a single channel that the kernel does not know is forgotten, those beside it are switched")
{
    begin(3);
    kernel.bad_channel = CHANNELS + 1;
    kernel.bad_status = RM_ERR_OBJECT_NOT_FOUND;
    CHECK_EQ(rm_channels_close(0, NULL), 2);
    CHECK_EQ(rm_channels_count(0), 2);
    CHECK_EQ(kernel_disabled(), 2);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
}

TEST("a descriptor that stands for another file by now is left alone")
{
    kernel_begin_channels(0);
    kernel_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    kernel_add_client(CLIENT_2, DEVICE, 0, GROUP, CHANNELS, 5);
    CHECK_EQ(rm_channels_test(0), RM_CHANNELS_WORKS);
    int other = open("/dev/zero", O_RDWR | O_CLOEXEC);
    REQUIRE(dup2(other, kernel_fd) == kernel_fd);
    kernel.controls = 0;
    CHECK_EQ(rm_channels_close(0, NULL), 0);
    CHECK_EQ(kernel.controls, 0);
    CHECK_EQ(rm_channels_count(0), 0);
    CHECK_EQ(rm_channels_open(0, NULL), 0);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
}

/* ---- threads ---- */

static void run_thread(pthread_t *thread, void *(*body)(void *))
{
    REQUIRE(pthread_create(thread, NULL, body, NULL) == 0);
}

static pthread_t opener;
static int opener_id;

static void *open_once(void *unused)
{
    store_release(&opener_id, (int)syscall(SYS_gettid));
    (void)rm_channels_open(0, NULL);
    return unused;
}

static bool opener_is_asleep(void)
{
    char text[512] = "", name[64];
    snprintf(name, sizeof(name), "/proc/self/task/%d/stat", load_acquire(&opener_id));
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    (void)!read(fd, text, sizeof(text) - 1);
    close(fd);
    return strstr(text, ") S ") != NULL;
}

/* Amid the first list of a close: another thread asks for opening, and waits for its turn. */
static void open_beside(void)
{
    run_thread(&opener, open_once);
    for (int i = 0; i < 2000 && !opener_is_asleep(); i++)
        usleep(1000);
}

TEST("a close is given up for an open that is asked for meanwhile")
{
    begin(150);
    kernel.during = open_beside;
    CHECK_EQ(rm_channels_close(0, NULL), -ECANCELED);
    pthread_join(opener, NULL);
    CHECK_EQ(kernel_disabled(), 0);
    CHECK(!rm_channels_is_closed(0));
    CHECK(kernel.switches < 6); /* not closed in full before it was opened */
    CHECK_EQ(rm_channels_close(0, NULL), 150);
}

#define ROUNDS 2000
static bool stop;

static void *close_often(void *unused)
{
    while (!load_acquire(&stop))
        (void)rm_channels_close(0, NULL);
    return unused;
}

static void *open_often(void *unused)
{
    while (!load_acquire(&stop))
        (void)rm_channels_open(0, NULL);
    return unused;
}

TEST("whoever holds the gate open finds no channel closed, however many close")
{
    pthread_t threads[3];
    begin(70);
    run_thread(&threads[0], close_often);
    run_thread(&threads[1], close_often);
    run_thread(&threads[2], open_often);
    for (int i = 0; i < ROUNDS; i++) {
        rm_channels_hold_open();
        if (!CHECK_EQ(kernel_disabled(), 0))
            break;
        rm_channels_release();
    }
    store_release(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(rm_channels_open(0, NULL) >= 0);
    CHECK_EQ(kernel_disabled(), 0);
}

TEST("channels that come and go while others open and close are never named once freed")
{
    pthread_t threads[2];
    begin(3);
    run_thread(&threads[0], close_often);
    run_thread(&threads[1], open_often);
    for (unsigned i = 0; i < ROUNDS; i++) {
        kernel_allocate_channels(CLIENT, GROUP, CHANNELS_2 + i, 2);
        CHECK_EQ(kernel_free(CLIENT, CHANNELS_2 + i), RM_OK);
        kernel.status = i % 2 ? RM_OK : RM_ERR_INVALID_ARGUMENT;
        if (kernel_free(CLIENT, CHANNELS_2 + i + 1) != RM_OK)
            CHECK_EQ(kernel_free(CLIENT, CHANNELS_2 + i + 1), RM_OK);
    }
    store_release(&stop, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK_EQ(kernel.unknown, 0);
    CHECK_EQ(rm_channels_state(0), RM_CHANNELS_WORKS);
    CHECK_EQ(rm_channels_count(0), 3);
    (void)rm_channels_open(0, NULL);
    CHECK_EQ(kernel_disabled(), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
