/* SPDX-License-Identifier: Apache-2.0 */
/* The webhook at its bounds: each allocation of jansson that fails in turn, and a body that is too
 * large. */
#include "admission/admission.h"

#include "check.h"

static size_t allocations, failing_one;

static void *allocate(size_t size)
{
    return ++allocations == failing_one ? NULL : malloc(size);
}

static const char review[] =
    "{\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{\"uid\":\"u\",\"namespace\":\"n\","
    "\"object\":{\"metadata\":{\"name\":\"p\",\"annotations\":{\"a\":\"b\"}},\"spec\":{"
    "\"initContainers\":[{\"name\":\"i\"}],\"containers\":[{\"name\":\"c\",\"env\":["
    "{\"name\":\"A\",\"value\":\"1\"}],\"resources\":{\"limits\":{\"nvidia.com/gpumem-percentage\":"
    "\"100\",\"nvidia.com/priority\":\"1\"}}}]}}}}";
static const char forged[] =
    "{\"request\":{\"uid\":\"u\",\"userInfo\":{\"username\":\"x\"},\"object\":{\"metadata\":{"
    "\"labels\":{\"vgpu.io/proof\":\"1\"}}}}}";

static int call(const char *text, struct admission_answer *answer)
{
    struct node_config config;
    node_config_default(&config);
    config.overwrite_env = true;
    strcpy(config.runtime_class, "nvidia");
    const struct admission_settings settings = {.config = &config, .scheduler_name = "s"};
    return admission_review(&settings, NULL, ADMISSION_MUTATE, text, strlen(text), answer);
}

static void check_each_failure(const char *text)
{
    struct admission_answer answer = {0};
    size_t refused = 0, all;
    failing_one = allocations = 0;
    REQUIRE(!call(text, &answer));
    all = allocations;
    admission_answer_finish(&answer);
    for (failing_one = 1; failing_one <= all; failing_one++) {
        allocations = 0;
        int error = call(text, &answer);
        if (error)
            refused += error == -ENOMEM;
        else
            admission_answer_finish(&answer);
        CHECK(!error || error == -ENOMEM);
    }
    CHECK(refused > 0);
}

TEST("a review survives each allocation that fails")
{
    json_set_alloc_funcs(allocate, free);
    check_each_failure(review);
    check_each_failure(forged);
}

TEST("a review above the bound is not read")
{
    size_t size = ADMISSION_BODY_MAX + 1;
    char *text = malloc(size + 1);
    struct admission_answer answer;
    memset(text, ' ', size);
    memcpy(text, review, sizeof(review) - 1);
    text[size] = '\0';
    REQUIRE(!call(text, &answer));
    CHECK(!answer.allowed);
    CHECK_EQ(answer.code, 400);
    CHECK_STR(answer.message, "the review has 8388609 bytes: up to 8388608 are accepted");
    admission_answer_finish(&answer);
    text[size - 1] = '\0';
    REQUIRE(!call(text, &answer));
    CHECK(answer.allowed);
    CHECK_STR(answer.subject, "n/p");
    admission_answer_finish(&answer);
    free(text);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
