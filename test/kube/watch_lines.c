/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a watch, cut anywhere. */
#include "kube/watch_lines.h"

#include "kube/object.h"

#include "check.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct taken {
    unsigned count, stop_at; /* stops at that one; 0: never */
    enum watch_line_type types[8];
    char names[8][8];
};

static int take(void *context, enum watch_line_type type, const json_t *object)
{
    struct taken *taken = context;
    taken->types[taken->count % 8] = type;
    snprintf(taken->names[taken->count % 8], 8, "%s", object_name(object));
    return ++taken->count == taken->stop_at ? 7 : 0;
}

static const char stream[] =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n"
    "\n"
    "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\r\n"
    "{\"type\":\"UNKNOWN\",\"object\":{}}\n"
    "{\"object\":{\"metadata\":{\"name\":\"c\"}},\"type\":\"DELETED\",\"more\":1}\n"
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"name\":\"\"}}}\n"
    "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n"
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"unfinished\"}}}";

TEST("lines are the same wherever they are cut")
{
    for (size_t piece = 1; piece <= sizeof(stream); piece++) {
        struct watch_lines lines = {0};
        struct taken taken = {0};
        for (size_t at = 0; at < sizeof(stream) - 1; at += piece) {
            size_t left = sizeof(stream) - 1 - at;
            REQUIRE(watch_lines_feed(
                        &lines, stream + at, left < piece ? left : piece, take, &taken, NULL) == 0);
        }
        CHECK_EQ(taken.count, 5);
        CHECK_EQ(taken.types[0], WATCH_LINE_ADDED);
        CHECK_EQ(taken.types[1], WATCH_LINE_MODIFIED);
        CHECK_EQ(taken.types[2], WATCH_LINE_DELETED);
        CHECK_EQ(taken.types[3], WATCH_LINE_BOOKMARK);
        CHECK_EQ(taken.types[4], WATCH_LINE_ERROR);
        CHECK_STR(taken.names[1], "b");
        CHECK_STR(taken.names[2], "c");
        watch_lines_finish(&lines);
    }
}

TEST("what takes the events can stop them")
{
    struct watch_lines lines = {0};
    struct taken taken = {.stop_at = 2};
    CHECK_EQ(watch_lines_feed(&lines, stream, sizeof(stream) - 1, take, &taken, NULL), 7);
    CHECK_EQ(taken.count, 2);
    watch_lines_finish(&lines);
}

TEST("what is no event is refused")
{
    static const char *const texts[] = {"x\n", "{\n", "[]\n", "{}\n", "1\n", "\"ADDED\"\n",
        "{\"type\":\"ADDED\"}\n", "{\"type\":1,\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":[]}\n", "{\"type\":\"ADDED\",\"object\":null}\n",
        "{\"type\":\"ADDED\",\"object\":{}} {}\n", "\xff\n"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct watch_lines lines = {0};
        struct taken taken = {0};
        struct error error = {0};
        CHECK_EQ(
            watch_lines_feed(&lines, texts[i], strlen(texts[i]), take, &taken, &error), -EINVAL);
        CHECK_EQ(taken.count, 0);
        CHECK(error.text[0]);
        watch_lines_finish(&lines);
    }
    struct watch_lines lines = {0};
    CHECK_EQ(watch_lines_feed(&lines, "\0\n", 2, take, NULL, NULL), -EINVAL);
    watch_lines_finish(&lines);
}

TEST("a line beyond the bound is refused, and a large buffer is given back")
{
    static char text[200000];
    struct error error = {0};
    struct taken taken = {0};
    struct watch_lines lines = {.bytes_max = 1000};
    memset(text, ' ', sizeof(text));
    CHECK_EQ(watch_lines_feed(&lines, text, 1000, take, &taken, &error), 0);
    CHECK_EQ(watch_lines_feed(&lines, text, 1, take, &taken, &error), -EFBIG);
    CHECK(strstr(error.text, "1000"));
    watch_lines_finish(&lines);
    lines.bytes_max = 0;
    CHECK_EQ(watch_lines_feed(&lines, text, sizeof(text), take, &taken, &error), 0);
    CHECK(lines.room >= sizeof(text));
    CHECK_EQ(watch_lines_feed(&lines, "\n", 1, take, &taken, &error), 0);
    CHECK_EQ(lines.room, 0);
    watch_lines_finish(&lines);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
