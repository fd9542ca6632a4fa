/* SPDX-License-Identifier: Apache-2.0 */
/* What a command says on stderr, and the status with which it ends. */
#ifndef VGPU_HOST_SAY_H
#define VGPU_HOST_SAY_H

/* Exit statuses of vgpu itself, as env(1) and sh(1) use them. */
#define TOOL_FAILED 1 /* said on stderr why */
#define TOOL_USAGE 2  /* the arguments are off */
#define TOOL_CANNOT_EXECUTE 126
#define TOOL_NOT_FOUND 127

/* What the executable's lines on stderr begin with. Before its main, what is missing of descriptors
 * 0 to 2 is held closed (host/say.c): no file that it opens gets one of them. */
extern const char tool_name[];

/* What getopt_long stopped at with `option` on `word`, said in one line. Returns TOOL_USAGE. After
 * say_for_command, as the next. */
int say_refuse_option(int option, const char *word);

/* The same for a word that no option takes. */
int say_refuse_word(const char *word);

/* The command that the tool's lines name from now on, behind the tool; for the process's lifetime.
 * Before there are threads. */
void say_for_command(const char *command);

/* One line on stderr, with the tool's name and the command's before it, and what would end it or
 * steer the terminal written as an escape. */
void say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What is last done before the tool ends: `status`, or TOOL_FAILED after one line where stdout
 * could not be written, as on a full file system. */
int say_end(int status);

/* From now on the calling thread's lines go to `take`, escaped and without what names the
 * tool and the command, instead of stderr; NULL: to stderr again. */
void say_take_errors(void (*take)(const char *line, void *context), void *context);

#endif
