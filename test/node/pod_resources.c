/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices are whose: the kubelet's answers. */
#include "node/pod_resources.h"

#include "kubelet_bed.h"

#include "check.h"

static struct pod_resources *resources;
static struct error error;
static unsigned answers;
static enum grpc_status got_status;
static char got[2000];

static void on_answer(void *context, enum grpc_status status, const char *text,
    const struct pod_resources_pod *pods, size_t count)
{
    char *at = got, *end = got + sizeof(got);
    CHECK(context == &resources);
    answers++;
    got_status = status;
    at += snprintf(at, (size_t)(end - at), "%s", text);
    for (size_t i = 0; i < count; i++) {
        at += snprintf(at, (size_t)(end - at), "[%s/%s", pods[i].space, pods[i].name);
        for (size_t j = 0; j < pods[i].container_count; j++) {
            const struct pod_resources_container *container = &pods[i].containers[j];
            at += snprintf(at, (size_t)(end - at), " %s", container->name);
            for (size_t k = 0; k < container->device_count; k++) {
                at += snprintf(at, (size_t)(end - at), " %s=", container->devices[k].resource);
                for (size_t l = 0; l < container->devices[k].id_count; l++)
                    at += snprintf(at, (size_t)(end - at), "%s,", container->devices[k].ids[l]);
            }
        }
        at += snprintf(at, (size_t)(end - at), "]");
    }
}

static void begin(void)
{
    bed_begin();
    bed_start_fake();
    bed_command("{\"do\": \"pods\", \"pods\": [{\"namespace\": \"n\", \"name\": \"p\", "
                "\"containers\": [{\"name\": \"init\"}, {\"name\": \"c\", \"devices\": "
                "[{\"resource\": \"nvidia.com/gpu\", \"ids\": [\"GPU-1-0\", \"GPU-2-3\"]}, "
                "{\"resource\": \"a.b/c\", \"ids\": [\"x\"]}]}]}, "
                "{\"namespace\": \"n\", \"name\": \"q\"}]}");
    bed_run(100);
    resources = pod_resources_create(bed_base, bed_pods_socket);
    REQUIRE(resources);
}

TEST("the list has each Pod's containers with their devices")
{
    begin();
    REQUIRE(pod_resources_list(resources, 1000, on_answer, &resources, &error) == 0);
    REQUIRE(bed_until(&answers, 1, 2000));
    CHECK_EQ(got_status, GRPC_OK);
    CHECK_STR(got, "[n/p init c nvidia.com/gpu=GPU-1-0,GPU-2-3, a.b/c=x,][n/q]");
}

TEST("one Pod is got, and one that is not there is told")
{
    begin();
    REQUIRE(pod_resources_get(resources, "n", "p", 1000, on_answer, &resources, &error) == 0);
    REQUIRE(bed_until(&answers, 1, 2000));
    CHECK_STR(got, "[n/p init c nvidia.com/gpu=GPU-1-0,GPU-2-3, a.b/c=x,]");
    REQUIRE(pod_resources_get(resources, "m", "p", 1000, on_answer, &resources, &error) == 0);
    REQUIRE(bed_until(&answers, 2, 2000));
    CHECK_EQ(got_status, GRPC_UNKNOWN);
    CHECK_STR(got, "pod is not found");
}

TEST("a kubelet that does not answer is given up at the deadline, and asked again later")
{
    begin();
    bed_command("{\"do\": \"mute\", \"on\": true}");
    bed_run(50);
    uint64_t start = bed_now_ms();
    REQUIRE(pod_resources_list(resources, 200, on_answer, &resources, &error) == 0);
    REQUIRE(bed_until(&answers, 1, 2000));
    CHECK_EQ(got_status, GRPC_DEADLINE_EXCEEDED);
    CHECK(bed_now_ms() - start >= 190 && bed_now_ms() - start < 1000);
    bed_command("{\"do\": \"mute\", \"on\": false}");
    bed_run(50);
    REQUIRE(pod_resources_list(resources, 1000, on_answer, &resources, &error) == 0);
    REQUIRE(bed_until(&answers, 2, 2000));
    CHECK_EQ(got_status, GRPC_OK);
}

TEST("questions that are dropped, a kubelet that goes, and one that is not there are no harm")
{
    begin();
    bed_command("{\"do\": \"mute\", \"on\": true}");
    bed_run(50);
    REQUIRE(pod_resources_list(resources, 5000, on_answer, &resources, &error) == 0);
    bed_run(50);
    pod_resources_destroy(resources);
    bed_run(50);
    CHECK_EQ(answers, 0);
    resources = pod_resources_create(bed_base, bed_pods_socket);
    REQUIRE(pod_resources_list(resources, 5000, on_answer, &resources, &error) == 0);
    bed_run(50);
    bed_kill_fake();
    REQUIRE(bed_until(&answers, 1, 1000));
    CHECK_EQ(got_status, GRPC_UNAVAILABLE);
    CHECK_EQ(pod_resources_list(resources, 5000, on_answer, &resources, &error), -ECONNREFUSED);
    CHECK(strstr(error.text, bed_pods_socket));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
