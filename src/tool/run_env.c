/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu run --env. */
#include "tool/run_env.h"

#include "host/json_write.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void free_all(struct run_environment *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        free(kept->list[i]);
    free(kept->list);
    *kept = (struct run_environment){0};
}

struct run_environment run_env_keep(void)
{
    struct run_environment kept = {0};
    size_t count = 0;
    while (environ && environ[count])
        count++;
    kept.list = calloc(count + 1, sizeof(*kept.list));
    for (; kept.list && kept.count < count; kept.count++) {
        kept.list[kept.count] = strdup(environ[kept.count]);
        if (!kept.list[kept.count]) {
            free_all(&kept);
            break;
        }
    }
    return kept;
}

static bool was_so(const struct run_environment *before, const char *variable)
{
    for (size_t i = 0; i < before->count; i++) {
        if (!strcmp(before->list[i], variable))
            return true;
    }
    return false;
}

static bool is_gone(const char *variable, char *ret_name, size_t size)
{
    size_t length = strcspn(variable, "=");
    if (length >= size) /* none of ours */
        return false;
    snprintf(ret_name, size, "%.*s", (int)length, variable);
    return !getenv(ret_name);
}

/* Within single quotes a shell changes nothing; a quote itself stands outside of them. */
static void print_export(const char *variable)
{
    const char *value = strchr(variable, '=') + 1;
    printf("export %.*s='", (int)(value - variable - 1), variable);
    for (; *value; value++)
        fputs(*value == '\'' ? "'\\''" : (char[]){*value, '\0'}, stdout);
    puts("'");
}

static void print_shell(const struct run_environment *before)
{
    char name[256];
    for (size_t i = 0; i < before->count; i++) {
        if (is_gone(before->list[i], name, sizeof(name)))
            printf("unset %s\n", name);
    }
    for (char **variable = environ; *variable; variable++) {
        if (!was_so(before, *variable) && strchr(*variable, '='))
            print_export(*variable);
    }
}

static void print_json(const struct run_environment *before)
{
    struct json json;
    char name[256];
    json_write_begin(&json, stdout);
    json_write_number(&json, "run", 1);
    json_write_begin_object(&json, "set");
    for (char **variable = environ; *variable; variable++) {
        const char *equals = strchr(*variable, '=');
        if (!equals || was_so(before, *variable))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *variable), *variable);
        json_write_string(&json, name, equals + 1);
    }
    json_write_end_inner(&json);
    json_write_begin_array(&json, "unset");
    for (size_t i = 0; i < before->count; i++) {
        if (is_gone(before->list[i], name, sizeof(name)))
            json_write_string(&json, NULL, name);
    }
    json_write_end_inner(&json);
    json_write_end(&json);
}

int run_env_print(struct run_environment *before, bool json)
{
    if (!before->list) {
        say_error("%s", strerror(ENOMEM));
        return TOOL_FAILED;
    }
    (json ? print_json : print_shell)(before);
    free_all(before);
    return 0;
}
