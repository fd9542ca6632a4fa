/* SPDX-License-Identifier: Apache-2.0 */
/* What lies around a program that starts here: the loader and its file, and the environment. No
 * value of a variable is said but of those that are ours. */
#include "doctor/checks.h"

#include "config/override.h"
#include "doctor/deadline.h"
#include "host/glob.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONE (-1)
#define PRELOAD_FILE "/etc/ld.so.preload"

/* ---- the loader ---- */

static void check_preload_file(struct checks *checks)
{
    char list[512] = "", missing[512] = "";
    FILE *file = fopen(PRELOAD_FILE, "re");
    if (!file) {
        bool absent = errno == ENOENT;
        check_add(checks, "ld.so", NONE, absent ? CHECK_FINE : CHECK_NOTE,
            absent ? NULL : "make it readable to everybody", PRELOAD_FILE ": %s",
            absent ? "absent" : strerror(errno));
        return;
    }
    list[fread(list, 1, sizeof(list) - 1, file)] = '\0';
    fclose(file);
    char shown[512] = "", *rest = list;
    for (char *word; (word = strsep(&rest, " :\t\n")) != NULL;) {
        if (!*word)
            continue;
        strncat(shown, " ", sizeof(shown) - strlen(shown) - 1);
        strncat(shown, word, sizeof(shown) - strlen(shown) - 1);
        if (strchr(word, '/') && access(word, R_OK) != 0 && !missing[0])
            snprintf(missing, sizeof(missing), "%s", word);
    }
    if (missing[0])
        check_add(checks, "ld.so", NONE, CHECK_PROBLEM,
            "put the library there, readable to everybody, or take it off the list",
            PRELOAD_FILE ":%s; %s cannot be read", shown, missing);
    else
        check_add(checks, "ld.so", NONE, CHECK_FINE, NULL, PRELOAD_FILE ":%s",
            shown[0] ? shown : " empty");
}

static void check_loader(struct checks *checks)
{
    glob_t found = {0};
    bool musl = glob("/lib/ld-musl-*.so.1", GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    check_add(checks, "loader", NONE, CHECK_FINE, NULL,
        "glibc's%s; static programs take no library, and set-user-ID ones none of LD_PRELOAD",
        musl ? " and musl's (the driver needs glibc)" : "");
}

/* ---- the environment ---- */

/* What the library reads, the lists of devices that an index counts in among it, and what the
 * driver counts its own by; "*": with an index or more behind it. */
static const char *const read_here[] = {"CUDA_DEVICE_MEMORY_LIMIT*", "CUDA_MEM_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT*", "CUDA_CORE_LIMIT*", "CUDA_CORE_SOFT_LIMIT*", "CUDA_TASK_PRIORITY",
    "GPU_CORE_UTILIZATION_POLICY", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "VGPU_LEDGER", "VGPU_GATE",
    "CUDA_OVERSUBSCRIBE", "CUDA_MEMORY_OVERSUBSCRIBE", "CUDA_MEM_OVERSOLD*", "CUDA_MEM_RATIO*",
    "CUDA_MEMORY_RATIO", "VGPU_HOST_POOL", "VGPU_HOST_POOL_READY", "VGPU_TURN_OVERHEAD",
    "VGPU_IDLE_RELEASE", "VGPU_BOARD_DIR", "VGPU_REGION_PATH", "LIBCUDA_LOG_LEVEL", "LOGGER_LEVEL",
    "RECORD_KERNEL_INTERVAL", "GPU_DEVICES_UUID", "MANAGER_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"};

/* Of HAMi-core and vgpu-controller: known, and nothing is done with them (docs/environment.md). */
static const char *const passed_over[] = {
    "ACTIVE_OOM_KILLER", "CUDA_REDIRECT", "CUDA_DISABLE_CONTROL"};

/* Neither, and no mistake either. */
static const char *const others[] = {"VGPU_SIM", "VGPU_SIM_MACHINE", "VGPU_REPORT_DIR",
    "VGPU_REGION_PATH", "VGPU_POD_*", "VGPU_CONTAINER_*", "VGPU_TEST_*"};

static bool is_one_of(const char *variable, const char *const *names, size_t count)
{
    size_t length = strcspn(variable, "=");
    for (size_t i = 0; i < count; i++) {
        size_t own = strcspn(names[i], "*");
        if (!strncmp(variable, names[i], own) && (names[i][own] == '*' || own == length))
            return true;
    }
    return false;
}

#define IS_ONE_OF(variable, names) is_one_of(variable, names, sizeof(names) / sizeof((names)[0]))

static void append(char *list, size_t size, const char *text, size_t length)
{
    size_t used = strlen(list);
    if (used + length + 2 < size)
        snprintf(list + used, size - used, "%s%.*s", used ? " " : "", (int)length, text);
}

/* A long list of devices is cut, and shows that it is. */
static void append_variable(char *list, size_t size, const char *variable)
{
    char shown[100];
    if (snprintf(shown, sizeof(shown), "%s", variable) >= (int)sizeof(shown))
        memcpy(shown + sizeof(shown) - 4, "...", 4);
    append(list, size, shown, strlen(shown));
}

static void check_variables(struct checks *checks)
{
    char ours[1000] = "", ignored[512] = "", unknown[512] = "";
    for (char **variable = environ; *variable; variable++) {
        size_t length = strcspn(*variable, "=");
        if (!(*variable)[length] || !(*variable)[length + 1])
            continue;
        if (IS_ONE_OF(*variable, read_here))
            append_variable(ours, sizeof(ours), *variable);
        else if (IS_ONE_OF(*variable, passed_over))
            append(ignored, sizeof(ignored), *variable, length);
        else if (!strncmp(*variable, "VGPU_", 5) && !IS_ONE_OF(*variable, others))
            append(unknown, sizeof(unknown), *variable, length);
    }
    check_add(checks, "environ", NONE, CHECK_FINE, NULL, "%s", ours[0] ? ours : "nothing of ours");
    if (access(OVERRIDE_PATH, F_OK) == 0)
        check_add(checks, "environ", NONE, CHECK_FINE, NULL,
            OVERRIDE_PATH " is there: what it sets goes before that; a line 'log' says so where it "
                          "is not taken");
    if (ignored[0])
        check_add(checks, "environ", NONE, CHECK_NOTE,
            "none is needed; docs/environment.md says what these are for elsewhere",
            "set, and nothing is done with it: %s", ignored);
    if (unknown[0])
        check_add(checks, "environ", NONE, CHECK_NOTE, "docs/environment.md lists the names",
            "set, and no variable of ours: %s", unknown);
}

void checks_of_place(struct checks *checks)
{
    doctor_step("looking at " PRELOAD_FILE " and what it names");
    check_preload_file(checks);
    check_loader(checks);
    check_variables(checks);
}
