/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers of values, and the escaping of what a line quotes. */
#include "base/parse.h"

#include "base/text.h"
#include "fuzz.h"

#include <errno.h>

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull

static void check_numbers(const char *text)
{
    uint64_t bytes = UNTOUCHED, number = UNTOUCHED, percent = UNTOUCHED;
    int error = parse_size(text, &bytes);
    FUZZ_CHECK(error == 0 || error == -EINVAL || error == -ERANGE);
    FUZZ_CHECK(error ? bytes == UNTOUCHED : bytes <= INT64_MAX);
    error = parse_number(text, UINT64_MAX, &number);
    FUZZ_CHECK(error == 0 || error == -EINVAL || error == -ERANGE);
    /* What is a number is a size of as many bytes. */
    FUZZ_CHECK(error || number > INT64_MAX || number == bytes);
    FUZZ_CHECK(error || number == parse_digits(text + strspn(text, " \t\r\n")));
    int bounded = parse_number(text, 100, &percent);
    FUZZ_CHECK(bounded ? percent == UNTOUCHED : percent <= 100 && percent == number);
    (void)parse_true(text);
}

static void check_list(const char *text, size_t item_bytes)
{
    char *item = malloc(item_bytes);
    size_t items = 0, commas = 0;
    uint64_t value;
    for (const char *list = text; parse_list_next(&list, item, item_bytes); items++) {
        size_t length = strlen(item);
        FUZZ_CHECK(length < item_bytes);
        /* A full item may have been cut: then nothing takes it. */
        if (length >= 3 && length == item_bytes - 1 && !strcmp(item + length - 3, "..."))
            FUZZ_CHECK(parse_size(item, &value) && parse_number(item, UINT64_MAX, &value));
    }
    for (const char *at = text; *at; at++)
        commas += *at == ',';
    FUZZ_CHECK(items == commas + 1);
    free(item);
}

static void check_escape(const uint8_t *data, size_t size, size_t target_bytes)
{
    char *target = malloc(target_bytes);
    size_t length = text_escape(target, target_bytes, (const char *)data, size);
    FUZZ_CHECK(length < target_bytes && !target[length]);
    for (size_t i = 0; i < length; i++)
        FUZZ_CHECK((unsigned char)target[i] >= ' ' && target[i] != 0x7f);
    /* What was escaped can be shown as it is. */
    char *again = malloc(target_bytes);
    FUZZ_CHECK(text_escape(again, target_bytes, target, length) == length);
    FUZZ_CHECK(!memcmp(again, target, length));
    free(again);
    free(target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    check_numbers(text);
    check_list(text, 4 + data[0] % 61);
    check_escape(data + 1, size - 1, 1 + data[0]);
    free(text);
    return 0;
}
