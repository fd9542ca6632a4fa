/* SPDX-License-Identifier: Apache-2.0 */
/* Where table and report go. */
#include "bench/report/report.h"

#include "base/parse.h"
#include "bench/results/need.h"
#include "host/say.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_LEAST 40
#define COLUMNS_MOST 400
#define COLUMNS_UNKNOWN 120 /* into a file or a pipe */

static char *path_in(const char *directory, const char *name)
{
    char *path = NULL;
    return bench_need(asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path);
}

struct bench_look bench_look_here(void)
{
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");
    const char *columns = getenv("COLUMNS");
    struct bench_look look = {.columns = COLUMNS_UNKNOWN};
    struct winsize size = {0};
    uint64_t number;
    if (isatty(STDOUT_FILENO))
        look.coloured = terminal && strcmp(terminal, "dumb") != 0 && !(plain && *plain);
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        look.columns = size.ws_col;
    else if (columns && parse_number(columns, COLUMNS_MOST, &number) == 0 && number)
        look.columns = (unsigned)number;
    look.columns = look.columns < COLUMNS_LEAST ? COLUMNS_LEAST : look.columns;
    return look;
}

int bench_report_show(const struct bench_results *results, const char *directory)
{
    struct bench_look look = bench_look_here();
    char *path = path_in(directory, BENCH_REPORT_FILE);
    bench_table_print(results, stdout, &look);
    int error = bench_report_write(results, path);
    if (error)
        say_error("%.480s: %.480s", path, strerror(-error));
    else
        printf("\nreport: %s\n", path);
    free(path);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        say_error("standard output could not be written");
        return 1;
    }
    return error ? 1 : 0;
}

int bench_report_again(const char *directory)
{
    struct bench_results results = {0};
    char reason[512] = "";
    char *path = path_in(directory, BENCH_RESULTS_FILE);
    int error = bench_results_read(&results, path, reason, sizeof(reason));
    int status = 2;
    if (error)
        say_error("%.480s: %.480s", path, *reason ? reason : strerror(-error));
    else
        status = bench_report_show(&results, directory);
    bench_results_finish(&results);
    free(path);
    return status;
}
