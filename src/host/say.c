/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr, and the standard streams at a tool's begin and end. */
#include "host/say.h"

#include "base/text.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Thread_local void (*taker)(const char *line, void *context);
static _Thread_local void *taker_context;
static const char *speaking_command;

/* Where a standard stream was closed, the first file that is opened would take its place, and what
 * is said be written into it. A stand-in fails as the closed one does, and no command gets it. */
__attribute__((constructor)) static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int way = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", way | O_CLOEXEC);
    }
}

void say_for_command(const char *command)
{
    speaking_command = command;
}

void say_take_errors(void (*take)(const char *line, void *context), void *context)
{
    taker = take;
    taker_context = context;
}

void say_error(const char *format, ...)
{
    char text[1024], line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    text_escape(line, sizeof(line), text, strlen(text));
    if (taker)
        taker(line, taker_context);
    else if (speaking_command)
        fprintf(stderr, "%s: %s: %s\n", tool_name, speaking_command, line);
    else
        fprintf(stderr, "%s: %s\n", tool_name, line);
}

int say_refuse_option(int option, const char *word)
{
    static const char *const reasons[] = {"is not an option", "needs a value", "takes no value"};
    int reason = option == ':' ? 1 : optopt > UCHAR_MAX || optopt == 'h' ? 2 : 0;
    say_error("\"%.64s\" %s; 'vgpu %s --help' lists the options", word, reasons[reason],
        speaking_command);
    return TOOL_USAGE;
}

int say_refuse_word(const char *word)
{
    say_error("\"%.64s\" is not an option; 'vgpu %s --help' lists them", word, speaking_command);
    return TOOL_USAGE;
}

int say_end(int status)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed)
        return status;
    say_error("not all that was to be said could be written to standard output");
    return status ? status : TOOL_FAILED;
}
