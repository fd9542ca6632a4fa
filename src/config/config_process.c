/* SPDX-License-Identifier: Apache-2.0 */
/* Process 1's environment, of which only the variables that we may want are kept. */
#include "config/config_process.h"

#include "base/log.h"
#include "base/process.h"
#include "config/config_accepted.h"
#include "config/config_names.h"
#include "config/config_oversubscription.h"
#include "config/override.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define KEPT_BYTES 16384
#define KEPT_VARIABLES 512
#define NAME_BYTES 128 /* of a name that is wanted, its index included */

/* Also with an index behind them. */
static const char *const limits[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_MEM_LIMIT",
    "CUDA_DEVICE_SM_LIMIT", "CUDA_CORE_LIMIT", "CUDA_CORE_SOFT_LIMIT"};
static const char region_name[] = "CUDA_DEVICE_MEMORY_SHARED_CACHE";

/* What process 1 is read for. */
static const char *const wanted[] = {
    "CUDA_", "GPU_", "VGPU_", "MANAGER_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=", "POD_NAME="};

static struct {
    char text[KEPT_BYTES + NAME_BYTES + 1]; /* "NAME=VALUE", each terminated */
    size_t used;
    char *list[KEPT_VARIABLES + 1]; /* as environ(7) */
    size_t count;
    bool too_much; /* a variable that is wanted had no room */
} kept;

static bool override_understood = true;

/* ---- which variables ---- */

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* "NAME=VALUE" or "NAME_<index>=VALUE", and the value is not empty. */
static bool is_limit(const char *variable)
{
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const char *behind = variable + strlen(limits[i]);
        const char *value = begins(variable, limits[i]) ? strchr(behind, '=') : NULL;
        if (value && value[1] && (*behind == '=' || *behind == '_'))
            return true;
    }
    return false;
}

static bool is_set(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return begins(variable, name) && variable[length] == '=' && variable[length + 1];
}

static bool has_limits(char *const *environment)
{
    for (; environment && *environment; environment++) {
        if (is_limit(*environment) || is_set(*environment, region_name))
            return true;
    }
    return false;
}

static bool has_lost_its_own(void)
{
    for (char *const *at = environ; at && *at; at++) {
        if (is_set(*at, "GPU_DEVICES_UUID") || is_set(*at, "MANAGER_VISIBLE_DEVICES"))
            return false;
    }
    return !has_limits(environ);
}

static bool is_wanted(const char *name)
{
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (begins(name, wanted[i]))
            return true;
    }
    return false;
}

/* ---- reading them, a byte at a time: an environment may have megabytes ---- */

enum reading { READING_NAME, READING_VALUE, READING_UNWANTED };

static void end_variable(enum reading *reading, size_t *length)
{
    if (*reading == READING_VALUE) {
        kept.list[kept.count++] = kept.text + kept.used;
        kept.text[kept.used + *length] = '\0';
        kept.used += *length + 1;
    }
    *reading = READING_NAME;
    *length = 0;
}

static void add_byte(char byte, enum reading *reading, size_t *length)
{
    char *variable = kept.text + kept.used;
    bool full = kept.used + *length + 1 >= KEPT_BYTES;
    if (*reading == READING_NAME && *length == NAME_BYTES)
        *reading = READING_UNWANTED;
    if (*reading == READING_UNWANTED)
        return;
    if (*reading == READING_VALUE && full) {
        kept.too_much = true;
        *reading = READING_UNWANTED;
        return;
    }
    variable[(*length)++] = byte;
    variable[*length] = '\0';
    if (byte != '=' || *reading != READING_NAME)
        return;
    bool room = !full && kept.count < KEPT_VARIABLES, want = is_wanted(variable);
    kept.too_much |= want && !room;
    *reading = want && room ? READING_VALUE : READING_UNWANTED;
}

static void read_variables(int fd)
{
    char chunk[4096];
    ssize_t got;
    size_t length = 0;
    enum reading reading = READING_NAME;
    while ((got = read(fd, chunk, sizeof(chunk))) > 0 || (got < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < got; i++) {
            if (chunk[i])
                add_byte(chunk[i], &reading, &length);
            else
                end_variable(&reading, &length);
        }
    }
    kept.list[kept.count] = NULL;
}

static void forget(void)
{
    kept.used = kept.count = 0;
    kept.list[0] = NULL;
    kept.too_much = false;
}

/* ---- whose they are ---- */

static void take_from_first(void)
{
    int fd = open("/proc/1/environ", O_RDONLY | O_CLOEXEC);
    if (fd < 0) /* another user's, mostly */
        return;
    if (process_is_of_our_container(1))
        read_variables(fd);
    close(fd);
    if (!has_limits(kept.list))
        forget();
    else
        log_info("this process has lost its container's variables; those of process 1 are used");
}

void config_process_look(void)
{
    int errno_kept = errno;
    forget();
    override_understood = override_read(OVERRIDE_PATH);
    if (getpid() != 1 && has_lost_its_own())
        take_from_first();
    errno = errno_kept;
}

char *config_process_lookup(const char *name)
{
    char *first = override_find(name);
    if (first)
        return first;
    char *own = getenv(name);
    if (own && *own)
        return own;
    size_t length = strlen(name);
    for (size_t i = 0; i < kept.count; i++) {
        if (begins(kept.list[i], name) && kept.list[i][length] == '=')
            return kept.list[i] + length + 1;
    }
    return own;
}

static char *find_nothing(const char *name)
{
    (void)name;
    return NULL;
}

void config_process_read(struct config *config, bool secure)
{
    if (secure) {
        config_read(config, find_nothing);
        config_oversubscription_read(config, find_nothing);
        return;
    }
    config_process_look();
    config_read(config, config_process_lookup);
    config_oversubscription_read(config, config_process_lookup);
    config_names_check(config, override_lines());
    config_names_check(config, environ);
    config_names_check(config, kept.list);
    config_accepted_check(CONFIG_CONTROLLER_FILE);
    if (!override_understood) /* it may have set a limit, which is not to be lost */
        config->memory_default = (struct config_value){VALUE_INVALID, 0};
    if (kept.too_much) {
        log_error(
            "the environment of process 1 has more variables for vgpu than are read; accepted: "
            "%d of them, %d bytes. Devices without a limit of their own are treated as full.",
            KEPT_VARIABLES, KEPT_BYTES);
        config->memory_default = (struct config_value){VALUE_INVALID, 0};
    }
}

bool config_process_launches_block(void)
{
    const char *text = getauxval(AT_SECURE) ? NULL : getenv("CUDA_LAUNCH_BLOCKING");
    return text && strtol(text, NULL, 10) != 0;
}
