/* SPDX-License-Identifier: Apache-2.0 */
/* Failures on demand, as a description asks for them: what is understood, and which call is hit. */
#include "sim/machine/machine_layout.h"

#include "check.h"
#include "scratch.h"

static const struct sim_rule *only_rule(const char *text)
{
    static struct sim_description description;
    char error[512] = "";
    if (!CHECK_EQ(sim_description_parse(text, &description, error, sizeof(error)), 0))
        dprintf(STDOUT_FILENO, "# %s\n", error);
    REQUIRE(description.rule_count == 1);
    return &description.rules[0];
}

TEST("a rule may name the nth call of an API, whichever function it is")
{
    const struct sim_rule *rule = only_rule("fail=cu#12:719");
    CHECK_EQ(rule->kind, SIM_RULE_API);
    CHECK_STR(rule->function, "cu");
    CHECK_EQ(rule->nth, 12);
    CHECK_EQ(rule->code, 719);
    rule = only_rule("fail=nvml#3");
    CHECK_EQ(rule->kind, SIM_RULE_API);
    CHECK_STR(rule->function, "nvml");
    CHECK_EQ(rule->nth, 3);
    CHECK(!rule->has_code);
}

TEST("a rule may name the nth RM call, whichever it is")
{
    const struct sim_rule *rule = only_rule("rm-status=0x51@#7");
    CHECK_EQ(rule->kind, SIM_RULE_RM);
    CHECK_EQ(rule->nth, 7);
    CHECK_EQ(rule->code, 0x51);
}

TEST("a rule for whichever call needs a number from 1 and a known API")
{
    static const char *const wrong[] = {"fail=cu#", "fail=cu#0", "fail=cu#x", "fail=cuInit#2",
        "fail=x#2", "fail=#2", "fail=cu#2:0", "rm-status=0x51@#", "rm-status=0x51@#0",
        "rm-status=0x51@#2:3", "rm-status=0@#2"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct sim_description description;
        char error[512] = "";
        if (!CHECK_EQ(sim_description_parse(wrong[i], &description, error, sizeof(error)), -EINVAL))
            dprintf(STDOUT_FILENO, "# %s\n", wrong[i]);
        CHECK(strstr(error, wrong[i]) && strstr(error, "NTH"));
    }
}

TEST("a card is split into instances with profiles")
{
    struct sim_description description;
    char error[512] = "";
    int result = sim_description_parse(
        "mig=1:1g.10gb+3g.20gb,2xa100,mig=7g.40gb", &description, error, sizeof(error));
    if (!CHECK_EQ(result, 0))
        dprintf(STDOUT_FILENO, "# %s\n", error);
    CHECK_EQ(description.device_count, 2);
    CHECK_EQ(description.instance_count, 3);
    CHECK_EQ(description.devices[2].memory_bytes, 10ull << 30);
    CHECK_EQ(description.devices[2].mig_card, 2);
    CHECK_STR(description.devices[3].name, "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
    CHECK_EQ(description.devices[3].multiprocessors, 46);
    CHECK_EQ(description.devices[4].mig_card, 1);
    CHECK_EQ(description.devices[0].mig_card, 0);
}

TEST("instances that a card cannot have are refused, and so are words that are no profile")
{
    static const char *const wrong[] = {"mig=", "mig=1g", "mig=1g.10", "mig=0g.10gb", "mig=8g.10gb",
        "mig=1g.0gb", "mig=1g.10gb+", "mig=+1g.10gb", "mig=1g.10gb-1g.10gb", "mig=1:1g.10gb",
        "mig=:1g.10gb", "mig=4g.10gb+4g.10gb", "mig=1g.200gb", "mig=1g.100gb+1g.100gb",
        "mig=1c.1g.10gb", "mig=99999g.1gb", "16xa100,mig=1g.5gb", "mig",
        "mig=1g.1gb+1g.1gb+1g.1gb+1g.1gb+1g.1gb+1g.1gb+1g.1gb+1g.1gb"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct sim_description description;
        char error[1200] = "";
        if (!CHECK_EQ(sim_description_parse(wrong[i], &description, error, sizeof(error)), -EINVAL))
            dprintf(STDOUT_FILENO, "# %s\n", wrong[i]);
        CHECK(strstr(error, "mig") != NULL);
    }
}

static void begin(const char *rules)
{
    setenv("VGPU_SIM", rules, 1);
    setenv("VGPU_SIM_MACHINE", scratch_path("machine"), 1);
    REQUIRE(sim_attach() == 0);
}

TEST("the nth call of an API fails, and no other")
{
    uint32_t code = 0;
    begin("fail=cu#3:719,fail=nvml#1");
    CHECK(!sim_fail("cuInit", &code));
    CHECK(sim_fail("nvmlInit_v2", &code));
    CHECK_EQ(code, 999);
    CHECK(!sim_fail("cuDeviceGet", &code));
    CHECK(sim_fail("cuMemAlloc_v2", &code));
    CHECK_EQ(code, 719);
    CHECK(!sim_fail("cuMemAlloc_v2", &code));
    CHECK(!sim_fail("nvmlShutdown", &code));
}

TEST("rules of both kinds count the same call")
{
    uint32_t code = 0;
    begin("fail=cu#2:719,fail=cuMemAlloc_v2:2:999");
    CHECK(!sim_fail("cuMemAlloc_v2", &code));
    CHECK(sim_fail("cuMemAlloc_v2", &code));
    CHECK(!sim_fail("cuMemAlloc_v2", &code));
}

TEST("what failed on demand is counted by its name")
{
    uint32_t code = 0;
    begin("fail=cu#2");
    (void)!sim_fail("cuInit", &code);
    (void)!sim_fail("cuDeviceGet", &code);
    (void)!sim_fail("nvmlInit_v2", &code);
    CHECK_EQ(sim_calls(SIM_FAILED), 1);
    CHECK_EQ(sim_calls(SIM_FAILED " cuDeviceGet"), 1);
    CHECK_EQ(sim_calls(SIM_FAILED " cuInit"), 0);
    CHECK_EQ(sim_calls_all("cu"), 2);
    CHECK_EQ(sim_calls_all("nvml"), 1);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
