/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of test/driver, which also run on a card, under each ledger on the simulator. */
#include "bed.h"

/* What the API ledger may be off: 2 MiB a context, 5 MiB for a printf buffer. */
#define API_TOLERANCE_MIB "10"

static void run(const struct bed *bed, char *const argv[])
{
    static char output[1 << 16];
    int status = bed_run(bed, argv, output, sizeof(output));
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_EXIT_SKIPPED)
        SKIP("no driver");
    if (CHECK_EQ(status, 0))
        return;
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(line, "| equal |"))
            dprintf(STDOUT_FILENO, "# %s\n", line);
    }
}

static const char *ledger(void)
{
    const char *text = getenv("VGPU_TEST_LEDGER");
    return text ? text : "rm";
}

TEST("the ledger and NVML agree after each kind of allocation")
{
    char *argv[] = {bed_build_path("test/driver/kinds"), "--tolerance",
        strcmp(ledger(), "rm") ? API_TOLERANCE_MIB : "1", NULL};
    run(&(struct bed){.limit = "40GiB"}, argv);
}

TEST("they agree without a limit")
{
    char *argv[] = {bed_build_path("test/driver/kinds"), "--tolerance",
        strcmp(ledger(), "rm") ? API_TOLERANCE_MIB : "1", NULL};
    run(&(struct bed){0}, argv);
}

TEST("they agree where the driver uses the older form of its calls")
{
    char *argv[] = {bed_build_path("test/driver/kinds"), "--tolerance",
        strcmp(ledger(), "rm") ? API_TOLERANCE_MIB : "1", NULL};
    run(&(struct bed){.limit = "40GiB", .sim = "nvos21"}, argv);
}

TEST("each refusal below the API is a clean error and the program goes on")
{
    char *argv[] = {bed_build_path("test/driver/refusals"), NULL};
    if (!strcmp(ledger(), "no-rm"))
        SKIP("no ioctl passes");
    run(&(struct bed){.limit = "40GiB", .behind = "test/driver/libtest-rm-fail.so"}, argv);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
