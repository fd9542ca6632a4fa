/* SPDX-License-Identifier: Apache-2.0 */
/* The webhook: whatever the review is, the answer is well-formed, a patch can be applied and is not
 * followed by another, and no stranger gets an owned key through. The first byte chooses settings.
 */
#include "admission/admission.h"

#include "../admission/patch_apply.h"
#include "fuzz.h"
#include "kube/base64.h"
#include "kube/object.h"

static const char *const owners[] = {"owner"};

static bool find_quota(
    const void *context, const char *namespace, struct admission_quota *ret_quota)
{
    (void)context;
    *ret_quota = (struct admission_quota){true, true, 1000, 10, 100, 10};
    return !strcmp(namespace, "default");
}

static json_t *call(const struct admission_settings *settings, enum admission_role role,
    const char *body, size_t size)
{
    const struct admission_quota_view quotas = {find_quota, NULL};
    struct admission_answer answer;
    FUZZ_CHECK(!admission_review(settings, &quotas, role, body, size, &answer));
    FUZZ_CHECK(strlen(answer.message) < VERDICT_MESSAGE_BYTES && !strchr(answer.message, '\n'));
    FUZZ_CHECK(!strchr(answer.subject, '\n') && strlen(answer.body) == answer.bytes);
    json_t *review = json_loads(answer.body, JSON_REJECT_DUPLICATES, NULL);
    const json_t *response = json_object_get(review, "response");
    FUZZ_CHECK(json_is_string(json_object_get(response, "uid")));
    FUZZ_CHECK(json_is_true(json_object_get(response, "allowed")) == answer.allowed);
    FUZZ_CHECK(answer.allowed == (answer.code == 200));
    FUZZ_CHECK(!json_object_get(response, "patch") == !answer.operations);
    FUZZ_CHECK(!answer.operations || (answer.allowed && role == ADMISSION_MUTATE));
    admission_answer_finish(&answer);
    return review;
}

/* Whether `map` has a key of a device's assignment that `other` lacks or has otherwise. Written
 * apart from owned_keys.c. */
static bool differs(const json_t *map, const json_t *other)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        bool is_owned = strstr(key, "hami.io/vgpu-") == key ||
                        strstr(key, "hami.io/bind-") == key || !strcmp(key, "vgpu.io/proof") ||
                        !strcmp(key, "vgpu.io/grant");
        if (is_owned && !json_equal(json_object_get(other, key), value))
            return true;
    }
    return false;
}

static bool is_forged(const json_t *request)
{
    static const char *const maps[] = {"annotations", "labels"};
    const char *operation = object_string(request, "operation", NULL);
    const char *kind = object_string(request, "kind", "kind", NULL);
    const char *user = object_string(request, "userInfo", "username", NULL);
    bool updates = operation && !strcmp(operation, "UPDATE");
    if ((operation && !updates && strcmp(operation, "CREATE") != 0) || !kind ||
        strcmp(kind, "Pod") != 0 || (user && !strcmp(user, owners[0])))
        return false;
    for (int i = 0; i < 2; i++) {
        const json_t *now = object_get(request, "object", "metadata", maps[i], NULL);
        const json_t *before =
            updates ? object_get(request, "oldObject", "metadata", maps[i], NULL) : NULL;
        if (differs(now, before) || differs(before, now))
            return true;
    }
    return false;
}

static void check_patch(
    const struct admission_settings *settings, json_t *review, const json_t *response)
{
    const char *encoded = object_string(response, "patch", NULL);
    json_t *request = json_object_get(review, "request");
    char *text = NULL;
    if (!encoded)
        return;
    FUZZ_CHECK(!base64_decode(encoded, &text));
    json_t *operations = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *after = patch_apply(json_object_get(request, "object"), operations);
    FUZZ_CHECK(after);
    json_object_set_new(request, "object", after);
    char *again = json_dumps(review, JSON_COMPACT);
    json_t *answer = call(settings, ADMISSION_MUTATE, again, strlen(again));
    const json_t *second = json_object_get(answer, "response");
    FUZZ_CHECK(json_is_true(json_object_get(second, "allowed")));
    FUZZ_CHECK(!json_object_get(second, "patch"));
    json_decref(answer);
    json_decref(operations);
    free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node_config config;
    if (!size)
        return 0;
    unsigned choice = data[0];
    enum admission_role role = choice & 1 ? ADMISSION_VALIDATE : ADMISSION_MUTATE;
    node_config_default(&config);
    config.overwrite_env = choice & 2;
    if (choice & 4)
        strcpy(config.core_policy, "force");
    if (choice & 8)
        strcpy(config.runtime_class, "nvidia");
    config.request.memory_factor = choice & 16 ? 1024 : 1;
    const struct admission_settings settings = {.config = &config,
        .scheduler_name = choice & 32 ? "" : "vgpu-scheduler",
        .force_overwrite_default_scheduler = choice & 64,
        .owners = owners,
        .owner_count = 1};
    char *body = fuzz_copy(data + 1, size - 1);
    json_t *review = json_loadb(body, size - 1, JSON_ALLOW_NUL, NULL);
    json_t *answer = call(&settings, role, body, size - 1);
    const json_t *response = json_object_get(answer, "response");
    if (is_forged(json_object_get(review, "request")))
        FUZZ_CHECK(!json_is_true(json_object_get(response, "allowed")));
    check_patch(&settings, review, response);
    json_decref(answer);
    json_decref(review);
    node_config_finish(&config);
    free(body);
    return 0;
}
