/* SPDX-License-Identifier: Apache-2.0 */
/* The region of the environment, made anew. */
#include "tool/create.h"

#include "base/text.h"
#include "config/config_process.h"
#include "host/choose.h"
#include "host/limits.h"
#include "region/region_anew.h"
#include "region/region_file.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct config config;

/* As a program of the container does, but that a limit that is not understood is refused. */
static bool read_environment(void)
{
    bool understood = true;
    config_process_read(&config, false);
    for (int i = -1; i < CONFIG_DEVICES && understood; i++)
        understood = config_memory_limit(&config, i).state != VALUE_INVALID &&
                     config_core_limit(&config, i).state != VALUE_INVALID;
    return understood;
}

static int take_file(const char *file)
{
    if (!*file || strlen(file) >= sizeof(config.region_path)) {
        say_error("--region \"%.256s\" is not accepted; accepted: the path of a file", file);
        return TOOL_USAGE;
    }
    snprintf(config.region_path, sizeof(config.region_path), "%s", file);
    config.region_named = true;
    config.region_too_long = false;
    return 0;
}

static const char *explain(int error)
{
    switch (error) {
    case -EBUSY:
        return "processes of the container live in it; it is left as it is";
    case -EPERM:
        return "only its file's owner and root may";
    case -EPROTO:
        return "something else lies there, and is left as it is";
    case -ETIMEDOUT:
        return "another process has held its lock for 2 s";
    default:
        return strerror(-error);
    }
}

static void warn_of_limits(void)
{
    for (int i = -1; i < CONFIG_DEVICES; i++) {
        struct config_value limit = i < 0 ? config.memory_default : config.memory[i];
        if (limit.state == VALUE_SET)
            limits_warn_of_little_memory(limit.value);
    }
}

int create_region(const char *file)
{
    char path[PATH_MAX + 16], directory[PATH_MAX], shown[PATH_MAX];
    bool was = false;
    if (!read_environment())
        return TOOL_USAGE;
    int status = file ? take_file(file) : 0;
    if (status)
        return status;
    int error = region_file_path(&config, path, sizeof(path));
    if (!error && choose_lacks_directory(path, directory, sizeof(directory))) {
        say_error("cannot make the region %.256s: there is no directory %.256s; make it first",
            path, directory);
        return TOOL_FAILED;
    }
    if (!error)
        error = region_anew(&config, &was);
    if (error) {
        say_error("cannot make the region %.256s anew: %s", config.region_path, explain(error));
        return TOOL_FAILED;
    }
    warn_of_limits();
    text_escape(shown, sizeof(shown), path, strlen(path));
    printf("region %s %s, with the limits of the environment\n", shown,
        was ? "made anew: what it held is forgotten" : "made");
    return 0;
}
