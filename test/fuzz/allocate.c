/* SPDX-License-Identifier: Apache-2.0 */
/* {"pods":[Pod...],"lock":text,"proof":bool,"ids":[[ID...]...]}: Pods of anybody's making, and what
 * kubelet asks for. Whoever is chosen is bound here, has devices left for all requests, and gets an
 * answer for its own container. */
#include "cluster/allocate_candidates.h"

#include "cluster/allocate_answer.h"
#include "cluster/erase.h"
#include "cluster/preferred.h"
#include "fuzz.h"

#define PODS_MAX 4
#define REQUESTS_MAX 3
#define IDS_MAX 8

static const struct allocate_card cards[] = {
    {"GPU-5f3c1a00-0001-4000-8000-00000000000a", 0, 24576, NULL, 0},
    {"GPU-5f3c1a00-0002-4000-8000-00000000000b", 1, 24576, NULL, 0},
};

static void check_answer(const struct allocate_choice *choice, const struct allocate_step *step,
    const struct allocate_request *request)
{
    struct pod_devices_container *devices = &choice->left.containers[step->slot];
    const struct allocate_settings settings = {.hook_path = "/h",
        .strategies = ALLOCATE_ENVVAR | ALLOCATE_CDI_ANNOTATIONS | ALLOCATE_CDI_CRI,
        .cdi_kind = ALLOCATE_CDI_KIND_TOOLKIT,
        .cdi_prefix = ALLOCATE_CDI_PREFIX,
        .cards = cards,
        .card_count = 2};
    const struct allocate_subject subject = {
        .directory = "/d", .cache_uuid = "u", .answer_uuid = "u"};
    struct allocate_answer answer;
    FUZZ_CHECK(devices->count == request->count);
    if (!allocate_answer_make(&settings, &subject, devices->devices, devices->count, &answer, NULL))
        allocate_answer_finish(&answer);
    if (!allocate_follow_kubelet(devices->devices, request, NULL) &&
        !allocate_answer_make(&settings, &subject, devices->devices, devices->count, &answer, NULL))
        allocate_answer_finish(&answer);
    const char *chosen[IDS_MAX];
    if (!preferred_choose(
            request->ids, request->count, NULL, 0, request->count, devices, chosen, NULL))
        for (size_t i = 0; i < request->count; i++)
            FUZZ_CHECK(chosen[i]);
}

static void check_choice(struct allocate_choice *choice, const struct allocate_question *question)
{
    const struct pod_view *pod = &choice->pod->view;
    size_t used = pod_devices_used(&choice->left);
    FUZZ_CHECK(!*pod->node_name || !strcmp(pod->node_name, "n1"));
    FUZZ_CHECK(choice->by_lock || choice->pod->proven || !question->require_proof);
    FUZZ_CHECK(used >= question->request_count);
    for (size_t i = 0; i < question->request_count; i++) {
        FUZZ_CHECK(choice->steps[i].container < pod->container_count);
        FUZZ_CHECK(!i || choice->steps[i].slot > choice->steps[i - 1].slot);
        check_answer(choice, &choice->steps[i], &question->requests[i]);
    }
    char *left = erase_steps(&choice->left, choice->steps, question->request_count);
    FUZZ_CHECK(left && pod_devices_used(&choice->left) == used - question->request_count);
    free(left);
}

static size_t read_requests(
    const json_t *list, struct allocate_request *requests, const char *ids[][IDS_MAX])
{
    size_t count = json_array_size(list) < REQUESTS_MAX ? json_array_size(list) : REQUESTS_MAX;
    for (size_t r = 0; r < count; r++) {
        const json_t *items = json_array_get(list, r);
        requests[r] = (struct allocate_request){ids[r], 0};
        for (size_t i = 0; i < json_array_size(items) && i < IDS_MAX; i++)
            if (json_is_string(json_array_get(items, i)))
                ids[r][requests[r].count++] = json_string_value(json_array_get(items, i));
    }
    return count;
}

static void run(const json_t *document)
{
    const json_t *list = json_object_get(document, "pods");
    struct allocate_pod pods[PODS_MAX];
    struct allocate_request requests[REQUESTS_MAX];
    const char *ids[REQUESTS_MAX][IDS_MAX];
    struct request_config config;
    struct error error = {.text = ""};
    size_t count = 0;
    request_config_default(&config);
    for (size_t i = 0; i < json_array_size(list) && count < PODS_MAX; i++) {
        pods[count].proven = i & 1;
        count += !pod_view_read(json_array_get(list, i), &config, &pods[count].view, &error);
    }
    struct allocate_question question = {.node_name = "n1",
        .lock = json_string_value(json_object_get(document, "lock")),
        .require_proof = json_is_true(json_object_get(document, "proof")),
        .requests = requests,
        .request_count = read_requests(json_object_get(document, "ids"), requests, ids)};
    for (int gone = 0; gone < 2; gone++) {
        struct allocate_choice choice;
        question.lock_holder_gone = gone;
        int result = allocate_choose(&question, pods, count, &choice, &error);
        FUZZ_CHECK(!result || *error.text);
        if (!result)
            check_choice(&choice, &question);
        allocate_choice_finish(&choice);
    }
    for (size_t i = 0; i < count; i++)
        pod_view_finish(&pods[i].view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *document = json_loadb((const char *)data, size, 0, NULL);
    if (document)
        run(document);
    json_decref(document);
    return 0;
}
