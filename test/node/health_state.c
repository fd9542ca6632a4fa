/* SPDX-License-Identifier: Apache-2.0 */
/* node/health_state.h: tables of what was seen and what follows. */
#include "node/health_state.h"

#include "check.h"

#include <errno.h>

#define SECOND 1000

/* A look at `ms`, in which NVML answers where `problem` is NULL. */
static struct health_look look(int64_t ms, const char *problem, uint64_t energy, const char *boot)
{
    return (struct health_look){.problem = problem,
        .has_energy = energy > 0,
        .energy_mj = energy,
        .boot = boot,
        .now_s = 1700000000 + ms / 1000,
        .now_ms = ms};
}

static enum health_change see(struct health_state *state, int64_t ms, const char *problem)
{
    struct health_look seen = look(ms, problem, 100 + (uint64_t)ms, "boot/1");
    return health_state_look(state, &seen);
}

static unsigned lines;

static void count_line(void *context, const char *line)
{
    (void)context;
    CHECK(strstr(line, "DP_") != NULL);
    lines++;
}

TEST("Xids of programs do not count, others do")
{
    struct health_xids xids;
    const unsigned ignored[] = {13, 31, 43, 45, 68, 109}, counted[] = {48, 62, 63, 64, 74, 79, 95};
    health_xids_read(&xids, "", "", count_line, NULL);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        CHECK(!health_xids_counts(&xids, ignored[i]));
    for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
        CHECK(health_xids_counts(&xids, counted[i]));
    CHECK_EQ(lines, 0);
}

TEST("lists of Xids disable and enable, and disabling goes first")
{
    static const struct {
        const char *disabled, *enabled;
        unsigned xid;
        bool counts;
        unsigned lines;
    } rows[] = {
        {"all", "", 79, false, 0},
        {"XIDS", "", 79, false, 0},
        {"all", "79", 79, true, 0},
        {"all", "79", 62, false, 0},
        {"79", "", 79, false, 0},
        {" 79 , 62", "", 62, false, 0},
        {"79", "", 62, true, 0},
        {"", "31", 31, true, 0},
        {"", "all", 31, true, 0},
        {"31", "all", 31, false, 0},
        {"79", "79", 79, false, 0},
        {"x", "", 79, true, 1},
        {"-1,79,", "1.5", 79, false, 2},
        {"99999999999999999999", "", 79, true, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct health_xids xids;
        lines = 0;
        health_xids_read(&xids, rows[i].disabled, rows[i].enabled, count_line, NULL);
        if (!CHECK_EQ(health_xids_counts(&xids, rows[i].xid), rows[i].counts) ||
            !CHECK_EQ(lines, rows[i].lines))
            printf("# row %zu\n", i);
    }
}

TEST("a card that answers from the start is healthy at once")
{
    struct health_state state = {0};
    CHECK_EQ(see(&state, 0, NULL), HEALTH_SAME);
    CHECK(health_state_is_healthy(&state));
}

TEST("a card that NVML does not answer for is unhealthy until it has answered for 30 s")
{
    struct health_state state = {0};
    see(&state, 0, NULL);
    CHECK_EQ(see(&state, 5 * SECOND, "memory: GPU is lost"), HEALTH_ILL);
    CHECK_STR(state.reason, "memory: GPU is lost");
    CHECK_EQ(state.since_s, 1700000005);
    CHECK_EQ(see(&state, 6 * SECOND, "another"), HEALTH_SAME);
    CHECK_EQ(see(&state, 10 * SECOND, NULL), HEALTH_SAME);
    CHECK_EQ(see(&state, 39 * SECOND, NULL), HEALTH_SAME);
    /* An interruption begins the 30 s anew. */
    CHECK_EQ(see(&state, 39500, "memory: GPU is lost"), HEALTH_SAME);
    CHECK_EQ(see(&state, 41 * SECOND, NULL), HEALTH_SAME);
    CHECK_EQ(see(&state, 70999, NULL), HEALTH_SAME);
    CHECK_EQ(see(&state, 71 * SECOND, NULL), HEALTH_RECOVERED);
    CHECK(health_state_is_healthy(&state));
    CHECK_EQ(see(&state, 72 * SECOND, "x"), HEALTH_ILL);
}

TEST("an Xid stays, however long NVML answers")
{
    struct health_state state = {0};
    struct health_look now = look(SECOND, NULL, 1000, "boot/1");
    see(&state, 0, NULL);
    CHECK_EQ(health_state_xid(&state, 79, &now), HEALTH_ILL);
    CHECK_STR(state.reason, "Xid 79");
    CHECK_EQ(health_state_xid(&state, 62, &now), HEALTH_SAME);
    for (int64_t ms = 2 * SECOND; ms < 4000 * SECOND; ms += 30 * SECOND) {
        struct health_look later = look(ms, NULL, 1000 + (uint64_t)ms, "boot/1");
        CHECK_EQ(health_state_look(&state, &later), HEALTH_SAME);
    }
    CHECK(!health_state_is_healthy(&state));
}

/* Whether an Xid at energy 5,000 of boot/1 is over 30 s after a look with these. */
static bool is_over_after(uint64_t energy, const char *boot)
{
    struct health_state state = {0};
    struct health_look at = look(0, NULL, 5000, "boot/1"), first = look(100, NULL, energy, boot),
                       early = look(30099, NULL, energy + 1, boot),
                       last = look(30100, NULL, energy + 2, boot);
    health_state_look(&state, &at);
    health_state_xid(&state, 79, &at);
    CHECK_EQ(health_state_look(&state, &first), HEALTH_SAME);
    CHECK_EQ(health_state_look(&state, &early), HEALTH_SAME);
    return health_state_look(&state, &last) == HEALTH_RECOVERED;
}

TEST("after an Xid a reset or another driver brings the card back in 30 s")
{
    CHECK(is_over_after(10, "boot/1"));   /* the counter began again: reset */
    CHECK(is_over_after(6000, "boot/2")); /* the module was loaded anew */
    CHECK(is_over_after(0, "other/1"));   /* the node was started anew; no counter */
    CHECK(!is_over_after(6000, "boot/1"));
    CHECK(!is_over_after(0, "boot/1"));
    CHECK(!is_over_after(6000, ""));
    CHECK(!is_over_after(6000, NULL));
}

TEST("a reset shows against the counter's highest value since the Xid")
{
    struct health_state state = {0};
    struct health_look at = look(0, NULL, 100, "b"), later = look(1000, NULL, 900, "b"),
                       reset = look(2000, NULL, 500, "b"), end = look(32000, NULL, 600, "b");
    health_state_look(&state, &at);
    health_state_xid(&state, 79, &at);
    CHECK_EQ(health_state_look(&state, &later), HEALTH_SAME);
    CHECK_EQ(health_state_look(&state, &reset), HEALTH_SAME);
    CHECK_EQ(health_state_look(&state, &end), HEALTH_RECOVERED);
}

TEST("a lost card with an Xid comes back only by reset, not by answering")
{
    struct health_state state = {0};
    struct health_look at = look(0, NULL, 5000, "b");
    health_state_look(&state, &at);
    struct health_look gone = look(1000, "lost", 0, "b");
    CHECK_EQ(health_state_look(&state, &gone), HEALTH_ILL);
    CHECK_EQ(health_state_xid(&state, 79, &at), HEALTH_WORSE);
    struct health_look back = look(2000, NULL, 6000, "b"),
                       long_after = look(90000, NULL, 7000, "b");
    CHECK_EQ(health_state_look(&state, &back), HEALTH_SAME);
    CHECK_EQ(health_state_look(&state, &long_after), HEALTH_SAME);
    CHECK(!health_state_is_healthy(&state));
}

TEST("an operator's word ends an Xid at once, but not NVML's silence")
{
    struct health_state state = {0};
    struct health_look at = look(0, NULL, 5000, "b"), gone = look(1000, "lost", 0, "b");
    CHECK_EQ(health_state_allow(&state, &at), HEALTH_SAME);
    health_state_xid(&state, 79, &at);
    CHECK_EQ(health_state_allow(&state, &at), HEALTH_RECOVERED);
    CHECK(health_state_is_healthy(&state));
    health_state_xid(&state, 79, &at);
    CHECK_EQ(health_state_look(&state, &gone), HEALTH_SAME);
    CHECK_EQ(health_state_allow(&state, &gone), HEALTH_WORSE);
    CHECK_STR(state.reason, "lost");
    struct health_look back = look(2000, NULL, 6000, "b"), later = look(32000, NULL, 6000, "b");
    health_state_look(&state, &back);
    CHECK_EQ(health_state_look(&state, &later), HEALTH_RECOVERED);
}

TEST("faults by Xid are saved and restored, others are not")
{
    struct health_state states[3] = {{0}}, restored;
    const char *uuids[] = {"GPU-a", "GPU-b", "GPU-c"};
    struct health_look at = look(7000, NULL, 5000, "boot/1"), gone = look(0, "lost", 0, "boot/1");
    health_state_xid(&states[0], 79, &at);
    health_state_look(&states[1], &gone);
    json_t *saved = health_state_save(states, uuids, 3);
    REQUIRE(saved != NULL);
    CHECK_EQ(json_object_size(saved), 1);
    CHECK_EQ(health_state_restore(saved, "GPU-b", &restored, NULL), -ENOENT);
    REQUIRE(health_state_restore(saved, "GPU-a", &restored, NULL) == 0);
    CHECK_STR(restored.reason, "Xid 79");
    CHECK_STR(restored.boot, "boot/1");
    CHECK_EQ(restored.since_s, 1700000007);
    CHECK_EQ(restored.energy_mj, 5000);
    CHECK_EQ(restored.fault, HEALTH_FAULT_XID);
    json_decref(saved);
}

TEST("a malformed file restores nothing")
{
    static const char *const texts[] = {"{\"GPU-a\": 1}", "{\"GPU-a\": {\"reason\": 5}}",
        "{\"GPU-a\": {\"reason\": \"Xid 1\", \"since\": -1}}",
        "{\"GPU-a\": {\"reason\": \"Xid 1\", \"boot\": [], \"since\": 1}}",
        "{\"GPU-a\": {\"reason\": \"Xid 1\", \"energy_mj\": \"many\"}}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct health_state state = {.reason = "untouched"};
        struct error error = {.text = ""};
        json_t *saved = json_loads(texts[i], 0, NULL);
        CHECK_EQ(health_state_restore(saved, "GPU-a", &state, &error), -EINVAL);
        CHECK_STR(state.reason, "untouched");
        CHECK(*error.text != '\0');
        json_decref(saved);
    }
}

static char allowed[256];

static void note_allowed(void *context, const char *uuid)
{
    (void)context;
    snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "[%s]", uuid);
}

TEST("an operator's list has UUIDs between commas and blanks")
{
    char hostile[5000];
    health_read_allowed("GPU-a, GPU-b ,,\tGPU-c", note_allowed, NULL);
    CHECK_STR(allowed, "[GPU-a][GPU-b][GPU-c]");
    *allowed = '\0';
    health_read_allowed("", note_allowed, NULL);
    memset(hostile, 'x', sizeof(hostile) - 1);
    hostile[sizeof(hostile) - 1] = '\0';
    health_read_allowed(hostile, note_allowed, NULL);
    CHECK_STR(allowed, "");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
