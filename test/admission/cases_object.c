/* SPDX-License-Identifier: Apache-2.0 */
/* What a Pod must be after the patch. */
#include "cases.h"

#include "kube/object.h"
#include "patch_apply.h"

#include <stdlib.h>
#include <string.h>

/* Quantities are equal as Kubernetes compares them. */
static bool is_same(const json_t *a, const json_t *b)
{
    struct quantity x, y;
    if (json_equal(a, b))
        return true;
    return json_is_string(a) && json_is_string(b) && !quantity_parse(json_string_value(a), &x) &&
           !quantity_parse(json_string_value(b), &y) && !quantity_compare(&x, &y);
}

static char *dump(const json_t *value)
{
    return value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
}

static const json_t *find_container(const json_t *pod, const char *name)
{
    for (int kind = OBJECT_INIT_CONTAINERS; kind <= OBJECT_CONTAINERS; kind++)
        for (size_t i = 0; i < object_container_count(pod, (enum object_container_kind)kind); i++) {
            json_t *container = object_container(pod, (enum object_container_kind)kind, i);
            const char *own = object_string(container, "name", NULL);
            if (own && !strcmp(own, name))
                return container;
        }
    return NULL;
}

/* The value that counts: the last of the name. */
static const char *find_variable(const json_t *container, const char *name)
{
    const json_t *variables = object_get(container, "env", NULL);
    for (size_t i = json_array_size(variables); i-- > 0;) {
        const json_t *variable = json_array_get(variables, i);
        const char *own = object_string(variable, "name", NULL);
        if (own && !strcmp(own, name))
            return object_string(variable, "value", NULL);
    }
    return NULL;
}

static void check_env(struct webhook_case *self, const json_t *pod)
{
    const char *container, *name;
    json_t *variables, *value;
    size_t i;
    json_object_foreach((json_t *)case_expected(self, "env"), container, variables)
    {
        json_object_foreach(variables, name, value)
        {
            const char *got = find_variable(find_container(pod, container), name);
            case_check(self, got && !strcmp(got, json_string_value(value)),
                "%s of container %s is \"%s\", not \"%s\"", name, container, got ? got : "(none)",
                json_string_value(value));
        }
    }
    json_object_foreach((json_t *)case_expected(self, "env_absent"), container, variables)
    {
        const json_t *found = find_container(pod, container);
        case_check(self, found != NULL, "there is no container %s", container);
        json_array_foreach(variables, i, value)
            case_check(self, !find_variable(found, json_string_value(value)), "container %s has %s",
                container, json_string_value(value));
    }
}

void case_check_object(struct webhook_case *self, const json_t *before, const json_t *after)
{
    const char *pointer;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)case_expected(self, "after"), pointer, value)
    {
        const json_t *got = pointer_find(after, pointer);
        char *shown = dump(got), *wanted = dump(value);
        case_check(self, got && is_same(got, value), "%s is %s, not %s", pointer,
            shown ? shown : "(none)", wanted);
        free(shown);
        free(wanted);
    }
    json_array_foreach(case_expected(self, "absent"), i, value) case_check(self,
        !pointer_find(after, json_string_value(value)), "%s is there", json_string_value(value));
    if (json_is_true(case_expected(self, "unchanged")))
        case_check(self, json_equal(before, after), "the object was changed");
    check_env(self, after);
}
