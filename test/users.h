/* SPDX-License-Identifier: Apache-2.0 */
/* Other users, as tests become them. */
#ifndef VGPU_TEST_USERS_H
#define VGPU_TEST_USERS_H

#include <grp.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define USERS_NOBODY 65534

/* Whether the process is root and may become another user: a user namespace may have none. */
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
