/* SPDX-License-Identifier: Apache-2.0 */
/* The device plugin service against a kubelet that starts, stops and misbehaves. */
#include "node/kubelet.h"

#include "kubelet_bed.h"

#include "check.h"

#include <sys/resource.h>
#include <sys/stat.h>

static struct kubelet *plugin;
static struct error error;
static struct kubelet_call *waiting[8]; /* Allocate calls that are answered later */
static unsigned waiting_count, pre_starts;
static bool later;

static void answer_allocate(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count)
{
    struct kubelet_container answers[4] = {0};
    struct kubelet_pair pairs[4][2];
    static const struct kubelet_mount mount = {"/etc/vgpu/limits.d", "/usr/local/vgpu/x", true};
    static const struct kubelet_node node = {"/dev/nvidia0", "/dev/nvidia0", "rw"};
    static const struct kubelet_pair annotation = {"a.b/c", "d"};
    static const char *const cdi[] = {"nvidia.com/gpu=GPU-1"};
    for (size_t i = 0; i < count && i < 4; i++) {
        pairs[i][0] =
            (struct kubelet_pair){"FIRST", containers[i].count ? containers[i].ids[0] : ""};
        pairs[i][1] = (struct kubelet_pair){"CUDA_DEVICE_MEMORY_LIMIT_0", "100m"};
        answers[i] =
            (struct kubelet_container){pairs[i], 2, &mount, 1, &node, 1, &annotation, 1, {cdi, 1}};
    }
    CHECK_EQ(kubelet_answer_allocate(call, answers, count, &error), 0);
}

static void on_allocate(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count, void *context)
{
    CHECK(context == &plugin);
    if (later) {
        REQUIRE(waiting_count < 8);
        waiting[waiting_count++] = call;
    } else if (count && containers[0].count && !strcmp(containers[0].ids[0], "refuse")) {
        kubelet_refuse(call, GRPC_UNKNOWN, "no Pod asks for it");
    } else {
        answer_allocate(call, containers, count);
    }
}

static void on_preferred(struct kubelet_call *call, const struct kubelet_preferred *containers,
    size_t count, void *context)
{
    struct kubelet_ids answers[4];
    (void)context;
    for (size_t i = 0; i < count && i < 4; i++) { /* the last ones */
        CHECK_EQ(containers[i].must_include.count, 1);
        answers[i] = (struct kubelet_ids){
            containers[i].available.ids + containers[i].available.count - containers[i].size,
            (size_t)containers[i].size};
    }
    CHECK_EQ(kubelet_answer_preferred(call, answers, count, &error), 0);
}

static void on_pre_start(
    struct kubelet_call *call, const struct kubelet_ids *devices, void *context)
{
    (void)context;
    pre_starts += (unsigned)devices->count;
    kubelet_answer_pre_start(call);
}

static const struct kubelet_callbacks callbacks = {on_allocate, on_preferred, on_pre_start};
static const struct kubelet_device two[] = {{"GPU-1-0", true, 0}, {"GPU-2-0", true, -1}};

static struct kubelet *make_plugin(const char *name)
{
    const struct kubelet_options options = {.kubelet_socket = bed_kubelet_socket,
        .socket_name = name,
        .resource = "nvidia.com/gpu",
        .pre_start_required = true};
    struct kubelet *made = kubelet_create(bed_base, &options, &callbacks, &plugin, &error);
    REQUIRE(made);
    return made;
}

static void publish_two(struct kubelet *to)
{
    REQUIRE(kubelet_publish(to, two, 2, &error) == 0);
}

/* The devices that the kubelet is told next. A loaded machine may take long; no figure of time is
 * tested. */
static json_t *listed(void)
{
    json_t *event = bed_event("devices", BED_WAIT_MS);
    REQUIRE(event);
    return json_object_get(event, "devices");
}

static void begin(void)
{
    bed_begin();
    bed_start_fake();
    plugin = make_plugin("nvidia-gpu.sock");
    publish_two(plugin);
    CHECK_EQ(json_array_size(listed()), 2);
    CHECK_EQ(kubelet_state(plugin), KUBELET_REGISTERED);
}

static bool exists(const char *name)
{
    char path[200];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", bed_directory, name);
    return lstat(path, &status) == 0;
}

static void remove_file(const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", bed_directory, name);
    CHECK_EQ(unlink(path), 0);
}

TEST("it registers with its options, and lists devices with health and NUMA node")
{
    bed_begin();
    bed_start_fake();
    plugin = make_plugin("nvidia-gpu.sock");
    bed_run(100);
    CHECK(!exists("nvidia-gpu.sock")); /* not before it knows its devices */
    publish_two(plugin);
    json_t *event = bed_event("register", BED_WAIT_MS);
    CHECK_STR(bed_text(event, "resource"), "nvidia.com/gpu");
    CHECK_STR(bed_text(event, "endpoint"), "nvidia-gpu.sock");
    json_t *options = json_object_get(event, "options");
    CHECK(json_is_true(json_object_get(options, "pre_start_required")));
    CHECK(json_is_false(json_object_get(options, "get_preferred_allocation_available")));
    CHECK_STR(json_dumps(listed(), JSON_COMPACT),
        "[{\"id\":\"GPU-1-0\",\"health\":\"Healthy\",\"numa\":[0]},"
        "{\"id\":\"GPU-2-0\",\"health\":\"Healthy\"}]");
    CHECK_EQ(kubelet_streams(plugin), 1);
}

TEST("a change is pushed at once, the same list is not")
{
    const struct kubelet_device sick[] = {{"GPU-1-0", true, 0}, {"GPU-2-0", false, -1}};
    begin();
    publish_two(plugin);
    CHECK_EQ(bed_count_events("devices", 100), 0);
    REQUIRE(kubelet_publish(plugin, sick, 2, &error) == 0);
    CHECK_STR(bed_text(json_array_get(listed(), 1), "health"), "Unhealthy");
    publish_two(plugin);
    CHECK_STR(bed_text(json_array_get(listed(), 1), "health"), "Healthy");
    REQUIRE(kubelet_publish(plugin, two, 0, &error) == 0);
    CHECK_EQ(json_array_size(listed()), 0);
}

TEST("lists that the kubelet could not take are refused by name, and the former stays")
{
    static struct kubelet_device many[70000];
    static char ids[70000][64];
    const struct kubelet_device bad[] = {{"GPU-1", true, 0}, {"GPU-1", true, 0}};
    const struct kubelet_device worse[] = {{"GPU-\xff", true, 0}, {"", true, 0}};
    begin();
    CHECK_EQ(kubelet_publish(plugin, bad, 2, &error), -EINVAL);
    CHECK(strstr(error.text, "GPU-1"));
    CHECK_EQ(kubelet_publish(plugin, worse, 1, &error), -EINVAL);
    CHECK_EQ(kubelet_publish(plugin, worse + 1, 1, &error), -EINVAL);
    for (unsigned i = 0; i < 70000; i++) {
        snprintf(ids[i], sizeof(ids[i]), "GPU-00000000-0000-0000-0000-000000000000-%u", i);
        many[i] = (struct kubelet_device){ids[i], true, 1};
    }
    CHECK_EQ(kubelet_publish(plugin, many, 70000, &error), -EMSGSIZE);
    CHECK(strstr(error.text, "4194304"));
    CHECK_EQ(bed_count_events("devices", 50), 0);
    CHECK_EQ(kubelet_publish(plugin, many, 50000, &error), 0);
    CHECK_EQ(json_array_size(listed()), 50000);
}

TEST("Allocate is answered for several containers, with all that they get")
{
    begin();
    bed_command("{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", \"tag\": 7,"
                " \"containers\": [[\"GPU-1-0\", \"GPU-2-0\"], [\"GPU-2-1\"]]}");
    json_t *event = bed_event("allocate", BED_WAIT_MS);
    REQUIRE(event);
    CHECK_STR(bed_text(event, "status"), "OK");
    CHECK_EQ(json_integer_value(json_object_get(event, "tag")), 7);
    json_t *containers = json_object_get(event, "containers");
    CHECK_EQ(json_array_size(containers), 2);
    CHECK_STR(json_dumps(json_array_get(containers, 1), JSON_COMPACT | JSON_SORT_KEYS),
        "{\"annotations\":{\"a.b/c\":\"d\"},\"cdi_devices\":[\"nvidia.com/gpu=GPU-1\"],"
        "\"devices\":[{\"container_path\":\"/dev/nvidia0\",\"host_path\":\"/dev/nvidia0\","
        "\"permissions\":\"rw\"}],\"envs\":{\"CUDA_DEVICE_MEMORY_LIMIT_0\":\"100m\",\"FIRST\":"
        "\"GPU-2-1\"},\"mounts\":[{\"container_path\":\"/etc/vgpu/limits.d\",\"host_path\":"
        "\"/usr/local/vgpu/x\",\"read_only\":true}]}");
}

TEST("a refusal reaches the kubelet with its text")
{
    begin();
    bed_command("{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", "
                "\"containers\": [[\"refuse\"]]}");
    json_t *event = bed_event("allocate", BED_WAIT_MS);
    CHECK_STR(bed_text(event, "status"), "UNKNOWN");
    CHECK_STR(bed_text(event, "text"), "no Pod asks for it");
}

TEST("Allocate may be answered later, in any order, and after the kubelet gave it up")
{
    begin();
    later = true;
    for (unsigned i = 1; i <= 3; i++) {
        char line[200];
        snprintf(line, sizeof(line),
            "{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", \"tag\": %u, "
            "\"containers\": [[\"GPU-%u\"]], \"timeout_ms\": %u}",
            i, i, i == 3 ? 100 : 0);
        bed_command(line);
        REQUIRE(bed_until(&waiting_count, i, 1000));
    }
    json_t *event = bed_event("allocate", BED_WAIT_MS);
    CHECK_STR(bed_text(event, "status"), "DEADLINE_EXCEEDED");
    bed_run(20);
    CHECK(kubelet_call_gone(waiting[2]) && !kubelet_call_gone(waiting[1]));
    const struct kubelet_ids one = {(const char *const[]){"GPU-x"}, 1};
    for (unsigned i = 3; i-- > 0;)
        answer_allocate(waiting[i], &one, 1);
    CHECK_EQ(json_integer_value(json_object_get(bed_event("allocate", BED_WAIT_MS), "tag")), 2);
    CHECK_EQ(json_integer_value(json_object_get(bed_event("allocate", BED_WAIT_MS), "tag")), 1);
}

TEST("an answer that the kubelet could not decode is an error that names what is wrong")
{
    const struct kubelet_pair bad = {"NAME", "\xff"};
    const struct kubelet_container container = {.environment = &bad, .environment_count = 1};
    begin();
    later = true;
    for (unsigned i = 1; i <= 2; i++) {
        bed_command("{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", "
                    "\"containers\": [[\"GPU-1-0\"]]}");
        REQUIRE(bed_until(&waiting_count, i, 1000));
    }
    CHECK_EQ(kubelet_answer_allocate(waiting[0], &container, 1, &error), -EINVAL);
    CHECK(strstr(error.text, "NAME"));
    CHECK(strstr(bed_text(bed_event("allocate", BED_WAIT_MS), "text"), "NAME"));
    CHECK_EQ(kubelet_answer_allocate(waiting[1], &container, 2, &error), -EINVAL);
    CHECK(strstr(bed_text(bed_event("allocate", BED_WAIT_MS), "text"), "2 containers, not 1"));
}

TEST("preferred devices and the start of a container are answered")
{
    begin();
    bed_command(
        "{\"do\": \"preferred\", \"resource\": \"nvidia.com/gpu\", \"containers\": "
        "[{\"available\": [\"a\", \"b\", \"c\"], \"must_include\": [\"c\"], \"size\": 2}]}");
    json_t *event = bed_event("preferred", BED_WAIT_MS);
    CHECK_STR(json_dumps(json_object_get(event, "containers"), JSON_COMPACT), "[[\"b\",\"c\"]]");
    bed_command("{\"do\": \"prestart\", \"resource\": \"nvidia.com/gpu\", "
                "\"devices\": [\"a\", \"b\"]}");
    CHECK_STR(bed_text(bed_event("prestart", BED_WAIT_MS), "status"), "OK");
    CHECK_EQ(pre_starts, 2);
}

TEST("without a kubelet it waits, and registers within a second of its start")
{
    struct rusage before, after;
    bed_begin();
    plugin = make_plugin("nvidia-gpu.sock");
    publish_two(plugin);
    bed_run(50);
    getrusage(RUSAGE_SELF, &before);
    bed_run(1000);
    getrusage(RUSAGE_SELF, &after);
    CHECK_EQ(kubelet_state(plugin), KUBELET_WAITING);
    /* Of the test's own turns as well: 500 a second. */
    CHECK(after.ru_nvcsw - before.ru_nvcsw < 800);
    bed_start_fake();
    uint64_t start = bed_now_ms();
    CHECK_EQ(json_array_size(listed()), 2);
    CHECK(bed_now_ms() - start < 1000);
}

TEST("the directory may come later")
{
    char moved[100];
    bed_begin();
    snprintf(moved, sizeof(moved), "%s.moved", bed_directory);
    REQUIRE(rename(bed_directory, moved) == 0);
    plugin = make_plugin("nvidia-gpu.sock");
    publish_two(plugin);
    bed_run(200);
    REQUIRE(rename(moved, bed_directory) == 0);
    bed_start_fake();
    CHECK_EQ(json_array_size(listed()), 2);
    /* And may be another one. */
    bed_kill_fake();
    REQUIRE(rename(bed_directory, moved) == 0);
    REQUIRE(mkdir(bed_directory, 0700) == 0);
    bed_start_fake();
    CHECK_EQ(json_array_size(listed()), 2);
}

TEST("a kubelet that restarts has it again within a second, each time")
{
    begin();
    for (unsigned i = 0; i < 5; i++) {
        bed_command("{\"do\": \"stop\"}");
        bed_run(i % 2 ? 0 : 150);
        bed_command("{\"do\": \"start\"}");
        CHECK_EQ(json_array_size(listed()), 2);
        CHECK_EQ(kubelet_state(plugin), KUBELET_REGISTERED);
        CHECK_EQ(kubelet_streams(plugin), 1);
    }
}

TEST("a kubelet that was killed has it again within a second of its start")
{
    begin();
    bed_kill_fake();
    bed_run(100);
    bed_start_fake();
    CHECK_EQ(json_array_size(listed()), 2);
}

TEST("its own socket that was deleted is served and registered again")
{
    begin();
    remove_file("nvidia-gpu.sock");
    CHECK_EQ(json_array_size(listed()), 2);
    CHECK(exists("nvidia-gpu.sock"));
    CHECK_EQ(kubelet_streams(plugin), 1);
    bed_command("{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", "
                "\"containers\": [[\"GPU-1-0\"]]}");
    CHECK_STR(bed_text(bed_event("allocate", BED_WAIT_MS), "status"), "OK");
}

TEST("a kubelet that refuses is asked again with pauses, and heard when it does not any more")
{
    bed_begin();
    bed_start_fake();
    bed_command("{\"do\": \"refuse\", \"text\": \"not now\"}");
    bed_run(50);
    plugin = make_plugin("nvidia-gpu.sock");
    publish_two(plugin);
    unsigned refused = bed_count_events("refused", 1000);
    CHECK(refused >= 3 && refused <= 6); /* 50, 100, 200, 400 ms */
    bed_command("{\"do\": \"refuse\"}");
    CHECK_EQ(json_array_size(listed()), 2);
}

TEST("of two plugins the second waits, and takes over when the first has gone")
{
    begin();
    struct kubelet *second = make_plugin("nvidia-gpu.sock");
    REQUIRE(kubelet_publish(second, two, 1, &error) == 0);
    bed_run(200);
    CHECK_EQ(kubelet_state(second), KUBELET_STANDBY);
    CHECK_EQ(kubelet_state(plugin), KUBELET_REGISTERED);
    CHECK_EQ(bed_count_events("devices", 100), 0);
    bed_command("{\"do\": \"stop\"}");
    bed_command("{\"do\": \"start\"}"); /* which deletes the socket: one of them has it again */
    (void)listed();
    bed_run(100);
    CHECK_EQ(
        (kubelet_state(second) == KUBELET_STANDBY) + (kubelet_state(plugin) == KUBELET_STANDBY), 1);
    struct kubelet *first = kubelet_state(second) == KUBELET_STANDBY ? plugin : second;
    struct kubelet *other = first == plugin ? second : plugin;
    kubelet_destroy(first);
    (void)listed();
    CHECK_EQ(kubelet_state(other), KUBELET_REGISTERED);
}

TEST("a plugin that was killed is followed by the next one")
{
    bed_begin();
    bed_start_fake();
    pid_t first = fork();
    if (first == 0) {
        event_reinit(bed_base);
        bed_stop_reading(); /* the fake kubelet's events are the parent's */
        plugin = make_plugin("nvidia-gpu.sock");
        publish_two(plugin);
        bed_run(60000);
        _exit(0);
    }
    (void)listed();
    plugin = make_plugin("nvidia-gpu.sock");
    publish_two(plugin);
    bed_run(100);
    CHECK_EQ(kubelet_state(plugin), KUBELET_STANDBY);
    kill(first, SIGKILL);
    (void)listed(); /* nothing tells of it but a look each 2 s */
    CHECK_EQ(kubelet_state(plugin), KUBELET_REGISTERED);
}

TEST("at its end it removes its socket, and answers that come later harm nothing")
{
    begin();
    later = true;
    bed_command("{\"do\": \"allocate\", \"resource\": \"nvidia.com/gpu\", "
                "\"containers\": [[\"GPU-1-0\"]]}");
    REQUIRE(bed_until(&waiting_count, 1, 1000));
    kubelet_destroy(plugin);
    CHECK(!exists("nvidia-gpu.sock"));
    CHECK(kubelet_call_gone(waiting[0]));
    const struct kubelet_ids one = {(const char *const[]){"GPU-x"}, 1};
    answer_allocate(waiting[0], &one, 1);
    json_t *event = bed_event("ended", BED_WAIT_MS);
    CHECK_STR(bed_text(event, "status"), "UNAVAILABLE");
}

TEST("options that cannot work are refused by name")
{
    static const struct kubelet_options cases[] = {
        {"relative/kubelet.sock", "a.sock", "nvidia.com/gpu", false, false},
        {NULL, "a/b.sock", "nvidia.com/gpu", false, false},
        {NULL, NULL, "nvidia.com/gpu", false, false},
        {NULL, "kubelet.sock", "nvidia.com/gpu", false, false},
        {NULL, "a.sock", "gpu", false, false}, {NULL, "a.sock", "nvidia.com/", false, false},
        {NULL, "a.sock", "nvidia.com/g pu", false, false},
        {"/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456/"
         "k.sock",
            "nvidia-gpu.sock", "nvidia.com/gpu", false, false}};
    bed_begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        error.text[0] = '\0';
        CHECK(!kubelet_create(bed_base, &cases[i], &callbacks, NULL, &error));
        CHECK(strstr(error.text, "accepted"));
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
