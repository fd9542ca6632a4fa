/* SPDX-License-Identifier: Apache-2.0 */
/* Other users, for tests. */
#ifndef VGPU_TEST_USERS_H
#define VGPU_TEST_USERS_H

#include <grp.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define USERS_NOBODY 65534
#define USERS_NEEDED "needs root to become another user"

/* Whether the calling process may become another user: root may, except in a user namespace that
 * has no other. */
static inline bool users_may_change(void)
{
    int status = -1;
    pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid == 0)
        _exit(setgroups(0, NULL) != 0 || setresgid(USERS_NOBODY, USERS_NOBODY, USERS_NOBODY) != 0 ||
              setresuid(USERS_NOBODY, USERS_NOBODY, USERS_NOBODY) != 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

#endif
