// SPDX-License-Identifier: BSL-1.0
//
// For tests in which the process of a rank is killed.
#pragma once

#include <sys/wait.h>  // waitpid
#include <unistd.h>    // fork, pause

#include <csignal>  // SIGKILL
#include <cstdlib>  // std::_Exit

namespace communicator_tests {

/// Goes on as a child. mpiexec ends a job when one of its processes is killed, so its processes only look after the
/// ranks: the one whose rank is killed stays until the job ends.
inline void go_on_as_a_child() {
  const pid_t child = fork();
  if (child == 0) {
    return;
  }
  int status = 0;
  waitpid(child, &status, 0);
  while (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    pause();
  }
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace communicator_tests
