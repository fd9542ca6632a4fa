/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the small codecs: numbers, times, durations, handshake, scores, lock, proof, lists. */
#include "check.h"

#include "cluster/allocate_answer.h"
#include "cluster/device_list.h"
#include "cluster/device_score.h"
#include "codec/duration.h"
#include "cluster/erase.h"
#include "cluster/handshake.h"
#include "codec/json_bound.h"
#include "cluster/node_devices.h"
#include "cluster/node_lock.h"
#include "codec/number.h"
#include "cluster/pod_view.h"
#include "cluster/proof.h"
#include "codec/rfc3339.h"

TEST("whole numbers are taken with a sign, within their bounds, and nothing else is")
{
    int64_t number = 99;
    CHECK(!number_parse("-9223372036854775808", 20, INT64_MIN, INT64_MAX, &number));
    CHECK(number == INT64_MIN);
    CHECK(!number_parse("9223372036854775807", 19, INT64_MIN, INT64_MAX, &number));
    CHECK(number == INT64_MAX);
    CHECK_EQ(number_parse("9223372036854775808", 19, INT64_MIN, INT64_MAX, &number), -ERANGE);
    CHECK_EQ(number_parse("99999999999999999999", 20, INT64_MIN, INT64_MAX, &number), -ERANGE);
    CHECK(!number_parse("+007x", 4, 0, 7, &number) && number == 7);
    CHECK_EQ(number_parse("8", 1, 0, 7, &number), -ERANGE);
    static const char *const bad[] = {"", "+", "-", "1 ", " 1", "0x1", "1_0", "--1", "1."};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(number_parse(bad[i], strlen(bad[i]), INT64_MIN, INT64_MAX, &number), -EINVAL);
    CHECK_EQ(number, 7);
}

TEST("durations are read and written as Go does")
{
    static const struct {
        const char *read;
        int64_t ns;
        const char *written;
    } rows[] = {
        {"5m", 300000000000, "5m0s"},
        {"90s", 90000000000, "1m30s"},
        {"1h", 3600000000000, "1h0m0s"},
        {"28s", 28000000000, "28s"},
        {"1.5s", 1500000000, "1.5s"},
        {".5h", 1800000000000, "30m0s"},
        {"100ms", 100000000, "100ms"},
        {"1.5ms", 1500000, "1.5ms"},
        {"2us", 2000, "2\xc2\xb5s"},
        {"7ns", 7, "7ns"},
        {"0", 0, "0s"},
        {"-1m1s", -61000000000, "-1m1s"},
        {"+3h2m1.000000001s", 10921000000001, "3h2m1.000000001s"},
        {"2540400h", 9145440000000000000, "2540400h0m0s"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[DURATION_TEXT_BYTES];
        int64_t ns = 0;
        CHECK_EQ(duration_parse(rows[i].read, &ns), 0);
        CHECK_EQ(ns, rows[i].ns);
        duration_format(ns, text);
        CHECK_STR(text, rows[i].written);
    }
    static const char *const bad[] = {"", "5", "m", "5 m", "5x", "-", ".s", "1..5s", "5m-1s"};
    int64_t ns = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(duration_parse(bad[i], &ns), -EINVAL);
    CHECK_EQ(duration_parse("2600000h", &ns), -ERANGE);
    CHECK_EQ(duration_parse("99999999999999999999s", &ns), -ERANGE);
    CHECK_EQ(ns, 7);
    char text[DURATION_TEXT_BYTES];
    duration_format(INT64_MIN, text);
    CHECK_STR(text, "-2562047h47m16.854775808s");
}

TEST("times are read with any zone and written in UTC")
{
    static const struct {
        const char *text;
        int64_t seconds;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-26T12:00:00Z", 1795694400},
        {"2026-11-26T14:00:00+02:00", 1795694400},
        {"2026-11-26T05:30:00-06:30", 1795694400},
        {"2026-11-26T12:00:00.999999999Z", 1795694400},
        {"2000-02-29T23:59:59Z", 951868799},
        {"1969-12-31T23:59:59.5Z", -1},
        {"0000-01-01T00:00:00Z", -62167219200},
        {"9999-12-31T23:59:59Z", 253402300799},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t seconds = 7, again = 7;
        char text[RFC3339_TEXT_BYTES] = "";
        CHECK_EQ(rfc3339_parse(rows[i].text, strlen(rows[i].text), &seconds), 0);
        CHECK_EQ(seconds, rows[i].seconds);
        CHECK_EQ(rfc3339_format(seconds, text), 0);
        CHECK_EQ(rfc3339_parse(text, strlen(text), &again), 0);
        CHECK_EQ(again, seconds);
    }
    static const char *const bad[] = {"", "2026-11-26", "2026-11-26T12:00:00",
        "2026-11-26 12:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-04-31T00:00:00Z", "2100-02-29T00:00:00Z", "2026-11-26T24:00:00Z",
        "2026-11-26T12:60:00Z", "2026-11-26T12:00:60Z", "2026-11-26T12:00:00.Z",
        "2026-11-26T12:00:00+0200", "2026-11-26T12:00:00+02:60", "2026-11-26T12:00:00+25:00",
        "2026-11-26T12:00:00ZZ", "2026-11-26t12:00:00Z", "+026-11-26T12:00:00Z"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t seconds = 7;
        if (!CHECK_EQ(rfc3339_parse(bad[i], strlen(bad[i]), &seconds), -EINVAL))
            printf("# %s\n", bad[i]);
        CHECK_EQ(seconds, 7);
    }
    char text[RFC3339_TEXT_BYTES] = "";
    CHECK_EQ(rfc3339_format(253402300800, text), -ERANGE);
    CHECK_EQ(rfc3339_format(INT64_MIN, text), -ERANGE);
    CHECK_EQ(rfc3339_format(INT64_MAX, text), -ERANGE);
    CHECK_EQ(rfc3339_format_local(1795694400, text), 0);
    CHECK_STR(text, "2026-11-26 12:00:00");
}

TEST("a day after a day is the next one, for 800 years")
{
    char before[RFC3339_TEXT_BYTES] = "", now[RFC3339_TEXT_BYTES];
    int64_t again;
    bool ordered = true;
    for (int64_t day = -146097; ordered && day < 146097; day++) {
        ordered = !rfc3339_format(day * 86400, now) && strcmp(before, now) < 0 &&
                  !rfc3339_parse(now, strlen(now), &again) && again == day * 86400;
        memcpy(before, now, sizeof(now));
    }
    CHECK(ordered);
}

TEST("the handshake is written as both sides of HAMi read it")
{
    char text[HANDSHAKE_TEXT_BYTES] = "";
    CHECK_EQ(handshake_format_request(1795694400, text), 0);
    CHECK_STR(text, "Requesting_2026-11-26 12:00:00");
    struct handshake handshake = handshake_decode(text);
    CHECK_EQ(handshake.kind, HANDSHAKE_REQUESTING);
    CHECK(handshake.has_time && handshake.local_seconds == 1795694400);
    CHECK_EQ(handshake_format_answer(1795694400, text), 0);
    CHECK_STR(text, "Reported 2026-11-26 12:00:00 +0000 UTC");
    CHECK_EQ(handshake_decode(text).kind, HANDSHAKE_REPORTED);
    CHECK_EQ(handshake_decode("Deleted_2026-11-26 12:00:00").kind, HANDSHAKE_DELETED);
    CHECK_EQ(handshake_decode(NULL).kind, HANDSHAKE_ABSENT);
    CHECK_EQ(handshake_decode("hello").kind, HANDSHAKE_OTHER);
    CHECK(!handshake_decode("Requesting_x").has_time);
}

TEST("scores are read, looked up and written without zeros")
{
    struct device_scores scores;
    struct error error;
    REQUIRE(!device_scores_decode("[{\"uuid\":\"a\",\"score\":{\"b\":120,\"c\":0}},"
                                  "{\"uuid\":\"b\",\"score\":{\"a\":110}},{\"uuid\":\"d\"}]",
        &scores, &error));
    CHECK_EQ(scores.count, 4);
    CHECK_EQ(device_scores_pair(&scores, "a", "b"), 120);
    CHECK_EQ(device_scores_pair(&scores, "b", "a"), 110);
    CHECK_EQ(device_scores_pair(&scores, "a", "d"), 0);
    CHECK_EQ(device_scores_pair(&scores, "a", "x"), 0);
    char *text = device_scores_encode(&scores);
    CHECK_STR(text,
        "[{\"uuid\":\"a\",\"score\":{\"b\":120}},{\"uuid\":\"b\",\"score\":{\"a\":110}},"
        "{\"uuid\":\"c\"},{\"uuid\":\"d\"}]");
    free(text);
    device_scores_finish(&scores);
    static const char *const bad[] = {"", "{}", "[1]", "[{}]", "[{\"uuid\":1}]",
        "[{\"uuid\":\"a\",\"score\":[]}]", "[{\"uuid\":\"a\",\"score\":{\"b\":\"1\"}}]",
        "[{\"uuid\":\"a\",\"score\":{\"b\":1.5}}]",
        "[{\"uuid\":\"a\",\"score\":{\"b\":4294967296}}]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(device_scores_decode(bad[i], &scores, &error), -EINVAL);
}

TEST("a lock is its Pod's only where the whole suffix is the same")
{
    CHECK(node_lock_is_held_by("2026-11-26T12:00:00Z,ns,pod", "ns", "pod"));
    CHECK(!node_lock_is_held_by("2026-11-26T12:00:00Z,ns,pod", "s", "pod"));
    CHECK(!node_lock_is_held_by("2026-11-26T12:00:00Z,ns,pod-2", "ns", "pod"));
    CHECK(!node_lock_is_held_by("2026-11-26T12:00:00Z,ns,a-pod", "ns", "pod"));
    CHECK(!node_lock_is_held_by("2026-11-26T12:00:00Z", "ns", "pod"));
    CHECK(!node_lock_is_held_by("", "", ""));
    struct error error;
    CHECK_EQ(node_lock_error_locked("n1", &error), -EBUSY);
    CHECK_STR(error.text, "node n1 is locked: node lock contention");
    CHECK_EQ(node_lock_error_waited("n1", INT64_C(28000000000), &error), -ETIMEDOUT);
    CHECK_STR(
        error.text, "timed out after 28s waiting for node n1 to be unlocked: node lock contention");
    char value[NODE_LOCK_VALUE_BYTES];
    CHECK_EQ(node_lock_encode(0, "a,b", "c", value), -EINVAL);
    CHECK_EQ(node_lock_encode(INT64_MAX, "a", "c", value), -ERANGE);
}

TEST("a proof is the HMAC of the canonical form, and each part of it counts")
{
    static const char key[] = "0123456789abcdef";
    char proof[PROOF_TEXT_BYTES], other[PROOF_TEXT_BYTES];
    /* printf 'vgpu.io/proof/1\n3:uid\n2:n1\n4:A,B:\n' | openssl dgst -sha256 -hmac 0123456789abcdef
     */
    CHECK_EQ(proof_make(key, 16, "uid", "n1", "A,B:", proof), 0);
    CHECK_STR(proof, "674bd61dbaf237248cd5af294b695e30bdbb9616457070004403bceaf57277b9");
    CHECK(proof_check(key, 16, "uid", "n1", "A,B:", proof));
    CHECK(!proof_check(key, 16, "uie", "n1", "A,B:", proof));
    CHECK(!proof_check(key, 16, "uid", "n2", "A,B:", proof));
    CHECK(!proof_check(key, 16, "uid", "n1", "A,C:", proof));
    CHECK(!proof_check("0123456789abcdeF", 16, "uid", "n1", "A,B:", proof));
    CHECK(!proof_check(key, 16, "uid", "n1", "A,B:", NULL));
    CHECK(!proof_check(key, 16, "uid", "n1", "A,B:", ""));
    proof[63] ^= 1;
    CHECK(!proof_check(key, 16, "uid", "n1", "A,B:", proof));
    /* What could run together does not. */
    CHECK_EQ(proof_make(key, 16, "ab", "c", "d", proof), 0);
    CHECK_EQ(proof_make(key, 16, "a", "bc", "d", other), 0);
    CHECK(strcmp(proof, other) != 0);
    CHECK_EQ(proof_make(key, 15, "a", "bc", "d", other), -EINVAL);
}

TEST("the list of strategies is taken, and a wrong one is named")
{
    unsigned strategies = 99;
    struct error error;
    CHECK_EQ(allocate_strategies_parse("envvar", &strategies, &error), 0);
    CHECK_EQ(strategies, ALLOCATE_ENVVAR);
    CHECK_EQ(
        allocate_strategies_parse("cdi-cri,volume-mounts,cdi-annotations", &strategies, &error), 0);
    CHECK_EQ(strategies, ALLOCATE_CDI_CRI | ALLOCATE_VOLUME_MOUNTS | ALLOCATE_CDI_ANNOTATIONS);
    static const char *const bad[] = {"", "cdi", "envvar,", ",envvar", "envvar cdi-cri"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(allocate_strategies_parse(bad[i], &strategies, &error), -EINVAL);
}

TEST("device nodes are those of all containers and of the container's own cards, once each")
{
    static const struct allocate_node common[] = {{"/dev/nvidiactl", "/dev/nvidiactl", "rw"}};
    static const struct allocate_node first[] = {{"/dev/nvidia0", "/run/x/dev/nvidia0", "rw"}};
    static const struct allocate_node second[] = {{"/dev/nvidia1", "/dev/nvidia1", "rw"}};
    static const struct allocate_card cards[] = {
        {"GPU-a", 0, 100, first, 1}, {"GPU-b", 1, 100, second, 1}};
    static const struct allocate_mount mounts[] = {{"/etc/vgpu/limits.d", "/run/vgpu/x", true}};
    struct allocate_settings settings = {.hook_path = "/h",
        .library_path = "/h/vgpu/libvgpu.so.2",
        .strategies = ALLOCATE_ENVVAR,
        .cdi_kind = ALLOCATE_CDI_KIND_TOOLKIT,
        .cdi_prefix = ALLOCATE_CDI_PREFIX,
        .memory_scaling = 1,
        .pass_nodes = true,
        .nodes = common,
        .node_count = 1,
        .mounts = mounts,
        .mount_count = 1,
        .cards = cards,
        .card_count = 2};
    struct allocate_subject subject = {"/h/vgpu/containers/u_c", false, "id", "id"};
    struct pod_device devices[2] = {{"GPU-b", "NVIDIA", 5, 1}, {"GPU-b", "NVIDIA", 6, 1}};
    struct allocate_answer answer;
    struct error error;
    REQUIRE(!allocate_answer_make(&settings, &subject, devices, 2, &answer, &error));
    REQUIRE(answer.node_count == 2 && answer.mount_count == 5);
    CHECK_STR(answer.nodes[0].container_path, "/dev/nvidiactl");
    CHECK_STR(answer.nodes[1].container_path, "/dev/nvidia1");
    CHECK_STR(answer.mounts[0].host_path, "/h/vgpu/libvgpu.so.2");
    CHECK_STR(answer.mounts[4].container_path, "/etc/vgpu/limits.d");
    CHECK(answer.mounts[4].read_only);
    allocate_answer_finish(&answer);
    settings.pass_nodes = false;
    REQUIRE(!allocate_answer_make(&settings, &subject, devices, 2, &answer, &error));
    CHECK_EQ(answer.node_count, 0);
    allocate_answer_finish(&answer);
    memcpy(devices[1].uuid, "GPU-c", 6);
    CHECK_EQ(allocate_answer_make(&settings, &subject, devices, 2, &answer, &error), -ENODEV);
    CHECK(strstr(error.text, "GPU-c") != NULL);
}

TEST("a directory's name cannot lead out of its place")
{
    char *path = allocate_directory_format("/usr/local", "uid", "main");
    CHECK_STR(path, "/usr/local/vgpu/containers/uid_main");
    free(path);
    CHECK(!allocate_directory_format("/h", "", "main"));
    CHECK(!allocate_directory_format("/h", "..", "main"));
    CHECK(!allocate_directory_format("/h", "a/b", "main"));
    CHECK(!allocate_directory_format("/h", "uid", "a/../b"));
}

TEST("a Pod is done when no device of the vendor is left, whatever separators are")
{
    CHECK(erase_is_done(NULL) && erase_is_done("") && erase_is_done(";") && erase_is_done(";;;"));
    CHECK(!erase_is_done(";GPU-a,NVIDIA,1,0:;"));
}

TEST("models get their vendor's name once, or always as HAMi up to 2.7 has it")
{
    char type[NODE_DEVICES_TYPE_BYTES];
    node_devices_format_type("NVIDIA A10", false, type);
    CHECK_STR(type, "NVIDIA A10");
    node_devices_format_type("Tesla T4", false, type);
    CHECK_STR(type, "NVIDIA-Tesla T4");
    node_devices_format_type("NVIDIA A10", true, type);
    CHECK_STR(type, "NVIDIA-NVIDIA A10");
}

TEST("names that CSV cannot hold are refused")
{
    struct node_devices devices = {0};
    struct error error;
    char *text = NULL;
    struct node_device *device = node_devices_add(&devices);
    snprintf(device->type, sizeof(device->type), "A, B");
    CHECK_EQ(node_devices_encode_csv(&devices, 9, &text, &error), -EINVAL);
    snprintf(device->type, sizeof(device->type), "\xff");
    CHECK_EQ(node_devices_encode_json(&devices, &text, &error), -EINVAL);
    CHECK(!text);
    node_devices_finish(&devices);
}

TEST("a Pod of the wrong shape is no crash")
{
    static const char *const pods[] = {"{\"metadata\":{\"name\":\"p\"}}",
        "{\"metadata\":{\"name\":\"p\",\"annotations\":[]},\"spec\":{\"containers\":[1,{},null,"
        "{\"name\":3,\"env\":{},\"resources\":[]}],\"initContainers\":{}},\"status\":1}"};
    struct request_config config;
    struct pod_view view;
    struct error error;
    request_config_default(&config);
    for (size_t i = 0; i < 2; i++) {
        json_t *pod = json_loads(pods[i], 0, NULL);
        CHECK_EQ(pod_view_read(pod, &config, &view, &error), 0);
        CHECK_EQ(view.container_count, i ? 4 : 0);
        CHECK_EQ(pod_view_asking(&view), 0);
        pod_view_finish(&view);
        json_decref(pod);
    }
    CHECK_EQ(pod_view_read(NULL, &config, &view, &error), -EINVAL);
}

TEST("values of a JSON text are counted before it is read")
{
    static const struct {
        const char *text;
        size_t values;
    } rows[] = {{"", 1}, {"{}", 1}, {"[ ]", 1}, {"[1]", 2}, {"[{},{}]", 3},
        {"{\"a\":[],\"b\":{}}", 3}, {"[\"[{,\\\",\\\\\",\"\"]", 3}, {"[[[", 4}, {"\"[[[", 1},
        {"\"\\", 1}, {"[[1,2],{\"x\":[{}]}]", 7}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_EQ(json_bound_values(rows[i].text, strlen(rows[i].text)), rows[i].values);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
