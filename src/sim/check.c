/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-sim-check: says in one line what is wrong with the description in VGPU_SIM, for `vgpu run`,
 * which must refuse it before anything is run. Exit status 2 then, else 0. Where VGPU_SIM_MACHINE
 * names a directory it makes the machine there, for programs of all users. */
#include "sim/machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXIT_REFUSED 2

static bool is_directory(const char *name)
{
    return name && *name && name[strlen(name) - 1] == '/';
}

int main(void)
{
    static struct sim_description description;
    const char variable[] = "VGPU_SIM: "; /* the user gave an option */
    char error[1200];
    if (sim_description_parse(getenv("VGPU_SIM"), &description, error, sizeof error) == 0) {
        umask(0);
        return is_directory(getenv("VGPU_SIM_MACHINE")) && sim_attach() != 0;
    }
    const char *reason = error;
    if (!strncmp(reason, variable, strlen(variable)))
        reason += strlen(variable);
    fputs("vgpu: run: --sim: ", stderr);
    for (; *reason; reason++)
        fputc(*reason < ' ' || *reason > '~' ? '?' : *reason, stderr);
    fputc('\n', stderr);
    return EXIT_REFUSED;
}
