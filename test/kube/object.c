/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of any shape, patches, what a watch knows, and waits. */
#include "kube/object.h"

#include "kube/backoff.h"
#include "kube/base64.h"
#include "kube/known.h"
#include "kube/patch.h"
#include "kube/url.h"

#include "check.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    REQUIRE(value);
    return value;
}

TEST("a Pod's metadata, node, phase and containers are found")
{
    json_t *pod = parse(
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"7\","
        "\"annotations\":{\"a.b/c\":\"v\"},\"labels\":{\"l\":\"w\"},"
        "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"},"
        "\"spec\":{\"nodeName\":\"n1\",\"initContainers\":[{\"name\":\"i\",\"restartPolicy\":"
        "\"Always\"}],\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"x/gpu\":\"2\","
        "\"x/mem\":\"1500m\",\"x/n\":3,\"x/bad\":\"much\",\"x/list\":[]}}},{\"name\":\"d\"}]},"
        "\"status\":{\"phase\":\"Failed\"}}");
    CHECK_STR(object_name(pod), "p");
    CHECK_STR(object_namespace(pod), "n");
    CHECK_STR(object_uid(pod), "u");
    CHECK_STR(object_resource_version(pod), "7");
    CHECK_STR(object_annotation(pod, "a.b/c"), "v");
    CHECK(!object_annotation(pod, "other"));
    CHECK_STR(object_label(pod, "l"), "w");
    CHECK_STR(object_pod_node(pod), "n1");
    CHECK(object_is_terminating(pod));
    CHECK(object_pod_has_ended(pod));
    CHECK_EQ(object_container_count(pod, OBJECT_INIT_CONTAINERS), 1);
    CHECK_EQ(object_container_count(pod, OBJECT_CONTAINERS), 2);
    CHECK(object_container_is_sidecar(object_container(pod, OBJECT_INIT_CONTAINERS, 0)));
    CHECK(!object_container(pod, OBJECT_CONTAINERS, 2));
    json_t *container = object_container(pod, OBJECT_CONTAINERS, 0);
    CHECK_STR(object_string(container, "name", NULL), "c");
    CHECK(!object_container_is_sidecar(container));
    struct quantity amount = {5};
    int64_t value = 0;
    REQUIRE(object_resource(container, "limits", "x/mem", &amount) == 0);
    CHECK_EQ(quantity_value(&amount, &value), 0);
    CHECK_EQ(value, 2);
    REQUIRE(object_resource(container, "limits", "x/n", &amount) == 0);
    CHECK_EQ(quantity_value(&amount, &value), 0);
    CHECK_EQ(value, 3);
    CHECK_EQ(object_resource(container, "limits", "x/bad", &amount), -EINVAL);
    CHECK_EQ(object_resource(container, "limits", "x/list", &amount), -EINVAL);
    CHECK_EQ(object_resource(container, "requests", "x/gpu", &amount), -ENOENT);
    CHECK_EQ(object_resource(NULL, "limits", "x/gpu", &amount), -ENOENT);
    json_decref(pod);
}

TEST("what is missing or of another type reads as absent")
{
    static const char *const texts[] = {"null", "[]", "\"x\"", "1", "{}", "{\"metadata\":null}",
        "{\"metadata\":[],\"spec\":7,\"status\":\"x\"}",
        "{\"metadata\":{\"name\":1,\"uid\":{},\"annotations\":[\"k\"],\"labels\":\"k\"},"
        "\"spec\":{\"containers\":{\"0\":1},\"initContainers\":\"x\",\"nodeName\":[]},"
        "\"status\":{\"phase\":{}}}",
        "{\"metadata\":{\"name\":\"a\\u0000b\",\"annotations\":{\"k\":\"v\\u0000\"}}}"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        json_t *object = parse(texts[i]);
        CHECK_STR(object_name(object), "");
        CHECK_STR(object_uid(object), "");
        CHECK(!object_annotation(object, "k"));
        CHECK(!object_label(object, "k"));
        CHECK_STR(object_pod_node(object), "");
        CHECK(!object_pod_has_ended(object));
        CHECK(!object_is_terminating(object));
        CHECK_EQ(object_container_count(object, OBJECT_CONTAINERS), 0);
        CHECK_EQ(object_container_count(object, OBJECT_INIT_CONTAINERS), 0);
        CHECK(!object_container(object, OBJECT_CONTAINERS, 0));
        json_decref(object);
    }
}

TEST("more containers than the bound are not looked at")
{
    json_t *list = json_array(), *pod = json_pack("{s:{s:o}}", "spec", "containers", list);
    for (int i = 0; i < OBJECT_CONTAINERS_MAX + 5; i++)
        json_array_append_new(list, json_object());
    CHECK_EQ(object_container_count(pod, OBJECT_CONTAINERS), OBJECT_CONTAINERS_MAX);
    CHECK(object_container(pod, OBJECT_CONTAINERS, OBJECT_CONTAINERS_MAX - 1));
    CHECK(!object_container(pod, OBJECT_CONTAINERS, OBJECT_CONTAINERS_MAX));
    json_decref(pod);
}

TEST("a patch sets, removes and names a version")
{
    json_t *patch = patch_create();
    CHECK_EQ(patch_annotation(patch, "a/b", "1"), 0);
    CHECK_EQ(patch_annotation(patch, "gone", NULL), 0);
    CHECK_EQ(patch_label(patch, "l", "2"), 0);
    CHECK_EQ(patch_resource_version(patch, "77"), 0);
    CHECK_EQ(patch_annotation(patch, "bad", "\xff"), -ENOMEM);
    char *text = json_dumps(patch, JSON_COMPACT | JSON_SORT_KEYS);
    CHECK_STR(text, "{\"metadata\":{\"annotations\":{\"a/b\":\"1\",\"gone\":null},"
                    "\"labels\":{\"l\":\"2\"},\"resourceVersion\":\"77\"}}");
    free(text);
    json_decref(patch);
}

static void count_gone(void *context, const struct known_object *object)
{
    int *gone = context;
    (*gone)++;
    CHECK(atoi(object->uid) % 2);
}

TEST("what a watch knows is found, replaced and swept")
{
    struct known known = {0};
    char name[32];
    int gone = 0;
    CHECK(!known_find(&known, "n", "p"));
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        struct known_object *object = known_add(&known, i % 3 ? "a" : "b", name, name);
        REQUIRE(object);
        object->round = i % 2 ? 1 : 2;
    }
    CHECK(!known_find(&known, "a", "0"));
    struct known_object *object = known_find(&known, "b", "3");
    REQUIRE(object);
    CHECK_STR(object->uid, "3");
    known_set_version(object, "12345");
    CHECK_STR(object->version, "12345");
    known_set_version(object, "123456789012345678901234567890");
    CHECK_STR(object->version, "");
    known_remove(&known, object);
    CHECK(!known_find(&known, "b", "3"));
    known_sweep(&known, 2, count_gone, &gone);
    CHECK_EQ(gone, 4999);
    CHECK_EQ(known.count, 5000);
    CHECK(known_find(&known, "b", "0"));
    CHECK(!known_find(&known, "a", "1"));
    known_finish(&known);
}

TEST("waits double up to the most, with jitter of a half")
{
    static const unsigned full[] = {100, 200, 400, 800, 1000, 1000};
    static const uint32_t randoms[] = {0, 1, 0x7fffffff, 0xffffffff};
    for (size_t r = 0; r < COUNT(randoms); r++) {
        struct backoff backoff = {100, 1000, 0};
        for (size_t i = 0; i < COUNT(full); i++) {
            unsigned wait = backoff_next_ms(&backoff, randoms[r]);
            CHECK(wait >= full[i] / 2 && wait <= full[i]);
            if (randoms[r] == 0)
                CHECK_EQ(wait, full[i] / 2);
            if (randoms[r] == 0xffffffff)
                CHECK_EQ(wait, full[i]);
        }
        backoff_reset(&backoff);
        CHECK(backoff_next_ms(&backoff, 0) <= 100);
    }
    struct backoff long_one = {100, 30000, 4000000000u};
    CHECK_EQ(backoff_next_ms(&long_one, 0xffffffff), 30000);
}

TEST("text is escaped for a URL, and base64 is decoded or refused")
{
    char *text = url_escape("spec.nodeName=n 1,&%\xc3\xa9/~_-");
    CHECK_STR(text, "spec.nodeName%3Dn%201%2C%26%25%C3%A9%2F~_-");
    free(text);
    static const struct {
        const char *text, *wanted; /* NULL: refused */
    } rows[] = {
        {"", ""},
        {"YQ==", "a"},
        {"YWI=", "ab"},
        {"YWJj", "abc"},
        {"YW\nJj\r\n", "abc"},
        {"+/+/", "\xfb\xff\xbf"},
        {"YQ=", NULL},
        {"YQ", NULL},
        {"Y===", NULL},
        {"====", NULL},
        {"YQ==YQ==", NULL},
        {"YQ=a", NULL},
        {"Y-_j", NULL},
        {"AAAA", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *decoded = NULL;
        CHECK_EQ(base64_decode(rows[i].text, &decoded), rows[i].wanted ? 0 : -EINVAL);
        CHECK_STR(decoded, rows[i].wanted);
        free(decoded);
    }
}

TEST("base64 is encoded as RFC 4648 has it, NUL bytes too")
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *wanted;
    } rows[] = {
        {"", 0, ""},
        {"f", 1, "Zg=="},
        {"fo", 2, "Zm8="},
        {"foo", 3, "Zm9v"},
        {"foob", 4, "Zm9vYg=="},
        {"\xfb\xff\xbf", 3, "+/+/"},
        {"\0\0", 2, "AAA="},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *text = NULL;
        CHECK_EQ(base64_encode(rows[i].bytes, rows[i].size, &text), 0);
        CHECK_STR(text, rows[i].wanted);
        free(text);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
