/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of HTTP: Retry-After, addresses; and files that are replaced. */
#include "net/file_read.h"
#include "net/http_address.h"
#include "net/retry_after.h"

#include "check.h"
#include "scratch.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

TEST("Retry-After is seconds or a date, and is bounded")
{
    static const struct {
        const char *text;
        int result;
        unsigned seconds;
    } rows[] = {
        {"0", 0, 0},
        {"1", 0, 1},
        {"007", 0, 7},
        {"600", 0, 600},
        {"601", 0, 600},
        {"99999999999999999999999999", 0, 600},
        {"Thu, 01 Jan 1970 00:16:41 GMT", 0, 1},
        {"Thu, 01 Jan 1970 00:17:40 GMT", 0, 60},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0, 0},
        {"Fri, 31 Dec 9999 23:59:59 GMT", 0, 600},
        {"", -EINVAL, 77},
        {" 1", -EINVAL, 77},
        {"1 ", -EINVAL, 77},
        {"-1", -EINVAL, 77},
        {"+1", -EINVAL, 77},
        {"1.5", -EINVAL, 77},
        {"soon", -EINVAL, 77},
        {"Thu, 01 Jan 1970 00:17:40", -EINVAL, 77},
        {"Thu, 01 Jan 1970 00:17:40 CET", -EINVAL, 77},
        {"Thu, 01 Foo 1970 00:17:40 GMT", -EINVAL, 77},
        {"Thu, 01 anF 1970 00:17:40 GMT", -EINVAL, 77},
        {"Thu, 99 Jan 1970 00:17:40 GMT", -EINVAL, 77},
        {"Thu, 01 Jan 1970 24:17:40 GMT", -EINVAL, 77},
        {"Thu, 01 Jan 1970 00:-7:40 GMT", -EINVAL, 77},
        {"Thursday, 01-Jan-70 00:17:40 GMT", -EINVAL, 77},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned seconds = 77;
        bool passed = CHECK_EQ(retry_after_parse(rows[i].text, 1000, &seconds), rows[i].result);
        if (!CHECK_EQ(seconds, rows[i].seconds) || !passed)
            printf("# \"%s\"\n", rows[i].text);
    }
    fflush(stdout);
}

TEST("addresses to listen at are those of Go")
{
    static const struct {
        const char *text;
        int family; /* 0: refused */
        unsigned port;
    } rows[] = {
        {":9394", AF_INET6, 9394},
        {":0", AF_INET6, 0},
        {"0.0.0.0:80", AF_INET, 80},
        {"127.0.0.1:65535", AF_INET, 65535},
        {"[::1]:443", AF_INET6, 443},
        {"[::]:443", AF_INET6, 443},
        {"", 0, 0},
        {"9394", 0, 0},
        {":", 0, 0},
        {":65536", 0, 0},
        {":-1", 0, 0},
        {": 1", 0, 0},
        {":000080", 0, 0},
        {"::1:443", 0, 0},
        {"[::1:443", 0, 0},
        {"[]:443", 0, 0},
        {"[127.0.0.1]:443", 0, 0},
        {"localhost:80", 0, 0},
        {"1.2.3:80", 0, 0},
        {"[::1]x:80", 0, 0},
        {"[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]:80", 0,
            0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sockaddr_storage address = {0};
        socklen_t bytes = 0;
        int result = http_address_parse(rows[i].text, &address, &bytes);
        if (!CHECK_EQ(result, rows[i].family ? 0 : -EINVAL) ||
            !CHECK_EQ(address.ss_family, rows[i].family))
            printf("# \"%s\"\n", rows[i].text);
        if (rows[i].family)
            CHECK_EQ(ntohs(((struct sockaddr_in *)&address)->sin_port), rows[i].port);
    }
    fflush(stdout);
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    REQUIRE(file);
    fputs(text, file);
    REQUIRE(fclose(file) == 0);
}

TEST("a file is read whole or refused, and a replacement is noticed")
{
    char *data = NULL, *path = strdup(scratch_path("token"));
    char *other = strdup(scratch_path("other"));
    size_t bytes = 0;
    struct file_stamp stamp;
    struct error error = {0};
    put(path, "first");
    REQUIRE(file_read(path, 5, &data, &bytes, &stamp, &error) == 0);
    CHECK_STR(data, "first");
    CHECK_EQ(bytes, 5);
    free(data);
    CHECK(!file_stamp_differs(&stamp, path));
    put(other, "again");
    REQUIRE(rename(other, path) == 0);
    CHECK(file_stamp_differs(&stamp, path));
    CHECK_EQ(file_read(path, 4, &data, &bytes, &stamp, &error), -EFBIG);
    CHECK(strstr(error.text, "more than 4 bytes"));
    REQUIRE(unlink(path) == 0);
    CHECK(!file_stamp_differs(&stamp, path));
    CHECK_EQ(file_read(path, 4, &data, &bytes, &stamp, &error), -ENOENT);
    CHECK_EQ(file_read("/", 4, &data, &bytes, &stamp, &error), -EINVAL);
    CHECK_EQ(file_read("/dev/zero", 4, &data, &bytes, &stamp, &error), -EINVAL);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
