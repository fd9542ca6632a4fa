/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-TARGET DIRECTORY: runs the target over each file of the directory, each in a process of its
 * own, where no libFuzzer is. TAP, one point in all; a file that ends its process is named. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>

#define CASE_BYTES_MAX (1 << 20)
#define CASE_SECONDS 20

static uint8_t bytes[CASE_BYTES_MAX];

static bool run_case(int directory, const char *name)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));
        if (size < 0)
            _exit(1);
        close(fd);
        alarm(CASE_SECONDS);
        (void)LLVMFuzzerTestOneInput(bytes, (size_t)size);
        _exit(0);
    }
    bool passed = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    if (!passed)
        printf("# %s: wait status %#x\n", name, (unsigned)status);
    return passed;
}

int main(int argc, char **argv)
{
    DIR *directory = argc > 1 ? opendir(argv[1]) : NULL;
    unsigned cases = 0, failed = 0;
    printf("1..1\n");
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        cases++;
        failed += !run_case(dirfd(directory), entry->d_name);
    }
    if (directory)
        closedir(directory);
    printf("%sok 1 - none of the cases that fuzzing kept breaks it (%u)\n",
        cases && !failed ? "" : "not ", cases);
    return !cases || failed;
}
