/* SPDX-License-Identifier: Apache-2.0 */
#include "top/text.h"

#include "top/table.h"
#include "tool/tool.h"

#include "check.h"

#include <locale.h>

const char tool_name[] = "vgpu";

static const char *fit(const char *text, unsigned columns, bool right)
{
    static char target[TOP_TEXT_BYTES(40)];
    top_text_fit(target, sizeof(target), text, columns, right);
    return target;
}

static void use_utf8(void)
{
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        SKIP("needs the locale C.UTF-8");
    top_text_begin();
}

TEST("a text is cut or filled to exactly so many columns")
{
    top_text_begin();
    CHECK_STR(fit("abc", 5, false), "abc  ");
    CHECK_STR(fit("abc", 5, true), "  abc");
    CHECK_STR(fit("abcdef", 4, false), "abc+");
    CHECK_STR(fit("abcd", 4, true), "abcd");
    CHECK_STR(fit("abc", 1, false), "+");
    CHECK_STR(fit("abc", 0, false), "");
}

TEST("characters take the columns that they have on a terminal")
{
    use_utf8();
    CHECK_EQ(top_text_columns("\u00e4\u4e2d"), 3);
    CHECK_STR(fit("\u4e2d\u4e2d\u4e2d", 4, false), "\u4e2d+ ");
    CHECK_STR(fit("\u4e2d", 3, true), " \u4e2d");
    CHECK_STR(fit("e\u0301", 2, false), "e\u0301 ");
}

TEST("without UTF-8 what is not ASCII is a question mark")
{
    setlocale(LC_CTYPE, "C");
    top_text_begin();
    CHECK_STR(fit("\u00e4\u4e2db", 4, false), "??b ");
}

TEST("nothing is written behind the room")
{
    char target[8] = "1234567";
    top_text_begin();
    CHECK(top_text_fit(target, 4, "abcdefgh", 20, false) <= 3);
    CHECK_EQ(target[4], '5');
    CHECK(top_text_fit(target, 4, "a", 20, true) <= 3);
    CHECK_EQ(target[4], '5');
}

TEST("a bar is as high as its value, over one row or several, and blank where nothing is known")
{
    use_utf8();
    CHECK_STR(top_text_bar(-1, 100, 0, 1), " ");
    CHECK_STR(top_text_bar(0, 100, 0, 1), "▁");
    CHECK_STR(top_text_bar(50, 100, 0, 1), "▄");
    CHECK_STR(top_text_bar(200, 100, 0, 1), "█");
    CHECK_STR(top_text_bar(75, 100, 0, 2), "█");
    CHECK_STR(top_text_bar(75, 100, 1, 2), "▄");
    CHECK_STR(top_text_bar(0, 100, 1, 2), " ");
    CHECK_STR(top_text_bar(5, 0, 0, 1), " ");
    setlocale(LC_CTYPE, "C");
    top_text_begin();
    CHECK_STR(top_text_bar(100, 100, 0, 1), "#");
    CHECK_STR(top_text_bar(0, 100, 0, 1), "_");
}

TEST("the columns of the table take no more than the terminal has, whatever it has")
{
    struct top_model model = {0};
    for (unsigned width = 1; width < 600; width++) {
        struct top_layout layout;
        unsigned total = 0;
        top_table_lay_out(&model, width, &layout);
        for (int c = 0; c < TOP_COLUMNS; c++)
            total += layout.widths[c] ? layout.widths[c] + 1 : 0;
        CHECK(total - 1 <= width || width < 8);
        CHECK(layout.widths[TOP_NAME] && layout.widths[TOP_NOW]);
        if (width == 80)
            CHECK(layout.widths[TOP_STATE] && layout.widths[TOP_GRAPH] && layout.widths[TOP_LIMIT]);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
