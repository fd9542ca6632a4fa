/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose duration is not what it was when they were measured, in rounds of launches and a
 * wait: all are charged, whatever the program waits by. */
#include "load.h"

#include "sim/machine/machine.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#define LIMIT .environment = {"CUDA_DEVICE_SM_LIMIT=20"}
#define KNOWN_NS (20 * US)
#define RARE 12 /* one launch in so many takes as long as a hundred of the others */
#define RARE_NS (100 * KNOWN_NS)

static CUfunction kernel;
static CUstream stream, beside;
static CUevent event;

typedef void wait_function(uint64_t launched_ns);

static void wait_for_context(uint64_t launched_ns)
{
    (void)launched_ns;
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void wait_for_event(uint64_t launched_ns)
{
    (void)launched_ns;
    CHECK_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventSynchronize)(event), CUDA_SUCCESS);
}

static void ask_stream(uint64_t launched_ns)
{
    (void)launched_ns;
    while (CU(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY) {
    }
    CHECK_EQ(CU(cuStreamQuery)(stream), CUDA_SUCCESS);
}

static void ask_event(uint64_t launched_ns)
{
    (void)launched_ns;
    CHECK_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
    while (CU(cuEventQuery)(event) == CUDA_ERROR_NOT_READY) {
    }
}

/* As where a kernel writes a word that the program reads. */
static void pass_time(uint64_t launched_ns)
{
    uint64_t until = load_now_ns() + launched_ns + 10 * US;
    while (load_now_ns() < until) {
    }
}

static uint64_t round_of(unsigned number, unsigned launches)
{
    uint64_t launched = 0;
    for (unsigned i = 0; i < launches; i++) {
        uint64_t duration = (number * launches + i) % RARE ? KNOWN_NS : RARE_NS;
        CHECK_EQ(load_launch_of(kernel, stream, duration), CUDA_SUCCESS);
        launched += duration;
    }
    return launched;
}

static void begin(void)
{
    load_begin(0);
    kernel = load_kernel();
    stream = load_stream();
    REQUIRE(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, KNOWN_NS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    }
}

/* From `settle_ns` on. */
static void check_held(wait_function *wait, unsigned launches, uint64_t settle_ns, uint64_t for_ns)
{
    begin();
    unsigned number = 0;
    for (uint64_t end = load_now_ns() + settle_ns; load_now_ns() < end; number++)
        wait(round_of(number, launches));
    struct load_state from = load_state(0);
    while (load_now_ns() < from.now_ns + for_ns)
        wait(round_of(number++, launches));
    struct load_state to = load_state(0);
    int share = load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns);
    dprintf(STDOUT_FILENO, "# %d of 1000 at a limit of 200\n", share);
    CHECK(share <= 230);
}

#define CHECK_HELD(wait, launches) check_held(wait, launches, 500 * MS, 3 * SECOND)

BED_TEST(
    "where one launch of twelve takes much longer the limit holds, by waits for the context", LIMIT)
{
    CHECK_HELD(wait_for_context, 1);
}

BED_TEST("by waits for an event", LIMIT)
{
    CHECK_HELD(wait_for_event, 1);
}

BED_TEST("by asking for the stream again and again", LIMIT)
{
    CHECK_HELD(ask_stream, 1);
}

BED_TEST("by asking for an event again and again", LIMIT)
{
    CHECK_HELD(ask_event, 1);
}

BED_TEST("so it does in rounds of several launches, by waits for the context", LIMIT)
{
    CHECK_HELD(wait_for_context, 5);
}

BED_TEST("and by asking for the stream", LIMIT)
{
    CHECK_HELD(ask_stream, 5);
}

/* Nothing of the library's is called then: the governor asks. */
BED_TEST("and where the program waits by nothing that the driver has", LIMIT)
{
    check_held(pass_time, 1, 3 * SECOND, 5 * SECOND);
}

BED_TEST("that in rounds of several launches, too", LIMIT)
{
    check_held(pass_time, 5, 3 * SECOND, 5 * SECOND);
}

/* A timing event behind what is over would be work again. */
BED_TEST("a stream that is idle is said to be when it is asked for the first time", LIMIT)
{
    begin();
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, i % 4 ? KNOWN_NS : 500 * US), CUDA_SUCCESS);
        usleep(4000);
        CHECK_EQ(CU(cuStreamQuery)(stream), CUDA_SUCCESS);
    }
}

BED_TEST("so is an event that was reached", LIMIT)
{
    begin();
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, i % 4 ? KNOWN_NS : 500 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
        usleep(4000);
        CHECK_EQ(CU(cuEventQuery)(event), CUDA_SUCCESS);
    }
}

/* What is launched behind the event runs still when it is reached. */
BED_TEST(
    "a program that always waits for the launch before the last has what its limit gives", LIMIT)
{
    CUevent events[2];
    begin();
    for (int i = 0; i < 2; i++)
        REQUIRE(CU(cuEventCreate)(&events[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    bed_sleep_ms(300);
    struct load_state from = load_state(0);
    for (unsigned i = 0; load_now_ns() < from.now_ns + 2 * SECOND; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, i % RARE ? KNOWN_NS : RARE_NS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuEventRecord)(events[i % 2], stream), CUDA_SUCCESS);
        if (i)
            CHECK_EQ(CU(cuEventSynchronize)(events[(i + 1) % 2]), CUDA_SUCCESS);
    }
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, 20);
    CHECK(load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns) >= 170);
}

static CUfunction other;

/* Each runs on a stream of its own, and the wait is for both. */
static void launch_beside_and_wait(uint64_t launched_ns)
{
    CHECK_EQ(load_launch_of(other, beside, launched_ns), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

BED_TEST("rounds on two streams are held as well", LIMIT)
{
    load_begin(0);
    beside = load_stream();
    other = load_kernel();
    check_held(launch_beside_and_wait, 1, 3 * SECOND, 5 * SECOND);
}

/* A thread that does not run for a while sees the same as if its kernel had taken longer. By what
 * this one saw it is known from when on there may be no timing events more. */
#define AGREE_NS                                                                                   \
    (1 * SECOND) /* the last round that took longer is so long ago: timing events end */
#define EVENTS_NS (10 * SECOND) /* so do they where rounds took longer by less than EXCESS_PART */
#define EXCESS_PART 100
#define EXCESS_NS (5 * MS) /* half of what is let pass in addition */
#define SLACK_NS (300 * MS)
#define WAKE_NS (100 * US) /* what a wait may take beside the kernel */
#define QUIET_WITHIN_NS (60 * SECOND)
#define ROUNDS 200
#define REST_ROUNDS 1000

struct seen {
    uint64_t now_ns;
    uint64_t longer_ns;   /* the last round that took longer */
    uint64_t too_much_ns; /* when rounds last took longer by more than is let pass */
    uint64_t excess_ns;   /* by so much they did since, less what is let pass */
};

/* A round that takes what is thought, below the limit, so that its launch does not wait. */
static void see_round(struct seen *seen)
{
    pass_time(KNOWN_NS);
    uint64_t from_ns = load_now_ns();
    ask_stream(round_of(1, 1));
    uint64_t now_ns = load_now_ns(), took_ns = now_ns - from_ns;
    uint64_t forgiven_ns = (now_ns - seen->now_ns) / EXCESS_PART;
    seen->excess_ns -= forgiven_ns < seen->excess_ns ? forgiven_ns : seen->excess_ns;
    seen->now_ns = now_ns;
    if (took_ns <= KNOWN_NS + WAKE_NS)
        return;
    seen->longer_ns = now_ns;
    seen->excess_ns += took_ns - KNOWN_NS;
    if (seen->excess_ns > EXCESS_NS) {
        seen->excess_ns = 0;
        seen->too_much_ns = now_ns;
    }
}

static bool events_are_over(const struct seen *seen)
{
    return seen->now_ns - seen->longer_ns > AGREE_NS + SLACK_NS ||
           seen->now_ns - seen->too_much_ns > EVENTS_NS + SLACK_NS;
}

/* The timing events behind ROUNDS rounds in a time without; -1 where there is none before
 * `end_ns`. */
static int64_t count_events(uint64_t end_ns)
{
    struct seen seen = {load_now_ns(), load_now_ns(), load_now_ns(), 0};
    for (unsigned i = 1; seen.now_ns < end_ns; i++) {
        if (events_are_over(&seen)) {
            uint64_t events = sim_calls("cuEventRecord");
            for (unsigned j = 0; j < ROUNDS; j++)
                see_round(&seen);
            if (events_are_over(&seen))
                return (int64_t)(sim_calls("cuEventRecord") - events);
        }
        see_round(&seen);
        if (i % REST_ROUNDS == 0) /* the kernel stops a thread of this class that never rests */
            usleep(5000);
    }
    return -1;
}

/* The timing events behind ROUNDS rounds after such as took longer than was thought. */
static uint64_t count_events_after_longer(void)
{
    uint64_t events = 0;
    for (unsigned attempt = 0; attempt < 16 && events <= ROUNDS * 3 / 4; attempt++) {
        for (unsigned i = 0; i < 100 * RARE; i++)
            ask_stream(round_of(i, 1));
        events = sim_calls("cuEventRecord");
        for (unsigned i = 0; i < ROUNDS; i++)
            ask_stream(round_of(1, 1));
        events = sim_calls("cuEventRecord") - events;
    }
    return events;
}

/* At a priority at which others at work do not keep the thread from running, where it may: the
 * library takes a thread that often sees its rounds late for one that is woken late. */
BED_TEST(
    "timing events at waits end a while after the last round that took longer than was thought",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    const struct sched_param first = {.sched_priority = 1};
    begin();
    bool is_first = sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0;
    uint64_t events = count_events_after_longer();
    if (events <= ROUNDS * 3 / 4 && !is_first)
        SKIP("no realtime priority here, and other programs keep a thread from running");
    CHECK(events > ROUNDS * 3 / 4);
    int64_t after = count_events(load_now_ns() + QUIET_WITHIN_NS);
    if (after < 0)
        SKIP("other programs keep a thread from running for more than 1 % of the time");
    dprintf(STDOUT_FILENO, "# timing events behind %d rounds: %d, then %d\n", ROUNDS, (int)events,
        (int)after);
    CHECK(after < ROUNDS / 2);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
