/* SPDX-License-Identifier: Apache-2.0 */
#include "pace_load.h"
int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
