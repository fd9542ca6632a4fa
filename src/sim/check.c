/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-sim-check: says on stdout what is wrong with the description in VGPU_SIM, and nothing where
 * it is understood, so that `vgpu run --sim=…` can refuse it before anything is run. */
#include "sim/description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    static struct sim_description description;
    char error[1200];
    if (sim_description_parse(getenv("VGPU_SIM"), &description, error, sizeof error) == 0)
        return 0;
    const char variable[] = "VGPU_SIM: "; /* who asks names his option */
    puts(strncmp(error, variable, strlen(variable)) ? error : error + strlen(variable));
    return 1;
}
