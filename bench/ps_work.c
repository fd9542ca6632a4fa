/* SPDX-License-Identifier: Apache-2.0 */
/* ps_work N: N processes that sleep, for bench/ps.py. Writes their pids, one a line, and ends with
 * them when its standard input does. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    pid_t *pids = calloc(count > 0 ? (size_t)count : 1, sizeof(*pids));
    for (long i = 0; pids && i < count; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        pids[i] = pid;
        printf("%d\n", pid);
    }
    fflush(stdout);
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    for (long i = 0; pids && i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    free(pids);
    return 0;
}
