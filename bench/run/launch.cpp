// SPDX-License-Identifier: BSL-1.0
//
// How the ranks of a job are started on this machine and on several.
#include "launch.hpp"

#include <algorithm>         // std::max
#include <charconv>          // std::from_chars
#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <stdexcept>         // std::invalid_argument
#include <system_error>      // std::errc
#include <utility>           // std::move

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace supervisor {

namespace {

void append(word_list& all, std::initializer_list<std::string> more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::string list_of(const std::vector<host>& hosts) {
  std::string list;
  for (const host& each : hosts) {
    gradus::append_text(list, {list.empty() ? "" : ",", each.address, ":", each.ranks});
  }
  return list;
}

void append_binding(word_list& all, const launch& how, mpi_family family) {
  if (how.bind.empty()) {
    return;
  }
  const int threads = std::max(1, how.threads);
  if (family == mpi_family::mpich) {
    append(all, {"-bind-to", how.bind == "core" ? gradus::join({"core:", threads}) : how.bind});
  } else if (how.bind == "core") {
    append(all, {"--map-by", gradus::join({"slot:PE=", threads}), "--bind-to", "core"});
  } else {
    append(all, {"--bind-to", how.bind});
  }
}

}  // namespace

bool is_address(std::string_view text, bool users) noexcept {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (const std::size_t at = text.find('@'); users && at != std::string_view::npos) {
    return is_address(text.substr(0, at), false) && is_address(text.substr(at + 1), false);
  }
  return !text.empty() && text.front() != '-' && text.find_first_not_of(letters) == std::string_view::npos;
}

std::vector<host> read_hosts(std::string_view text) {
  const std::string whole{text};
  std::vector<host> hosts;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    const std::size_t colon = word.find(':');
    host each{std::string{word.substr(0, colon)}};
    bool right = is_address(each.address, false);
    if (colon != std::string_view::npos) {
      const std::string_view digits = word.substr(colon + 1);
      const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), each.ranks);
      right = right && failed == std::errc{} && end == digits.data() + digits.size() && each.ranks >= 1 &&
              each.ranks <= most_ranks;
    }
    if (!right) {
      throw std::invalid_argument{
          gradus::join({"--hosts: expected addresses, with a number of ranks where it is not 1, "
                        "such as 10.0.0.1:4,10.0.0.2:4, got '",
                        whole, "'"})};
    }
    hosts.push_back(std::move(each));
    if (word.size() == text.size()) {
      return hosts;
    }
    text.remove_prefix(word.size() + 1);
  }
}

mpi_family family_of(std::string_view version) noexcept {
  for (const std::string_view name : {"Open MPI", "OpenRTE", "PRRTE", "prrte"}) {
    if (version.find(name) != std::string_view::npos) {
      return mpi_family::open_mpi;
    }
  }
  return mpi_family::mpich;
}

word_list announced(const launch& how, const word_list& program) {
  word_list all;
  if (!how.own_path.empty()) {
    append(all, {how.own_path, "--announce", "--"});
  }
  all.insert(all.end(), program.begin(), program.end());
  return all;
}

word_list mpiexec_command(const launch& how, mpi_family family, const word_list& program) {
  word_list all;
  const bool mpich = family == mpi_family::mpich;
  if (!how.ssh_config.empty() && how.login.empty() && mpich) {
    append(all, {"env", "HYDRA_LAUNCHER_EXTRA_ARGS=-F " + how.ssh_config});
  }
  append(all, {how.mpiexec});
  if (how.by == launching::hosts) {
    if (mpich) {
      append(all, {"-launcher", "ssh"});
      if (!how.login.empty()) {
        append(all, {"-localhost", how.hosts.front().address});
      }
      append(all, {"-hosts", list_of(how.hosts)});
    } else {
      if (!how.ssh_config.empty() && how.login.empty()) {
        append(all, {"--mca", "plm_rsh_agent", "ssh -F " + how.ssh_config});
      }
      append(all, {"--host", list_of(how.hosts)});
    }
  }
  append_binding(all, how, family);
  append(all, {"-n", "{ranks}"});
  const word_list program_words = announced(how, program);
  all.insert(all.end(), program_words.begin(), program_words.end());
  return all;
}

word_list login_command(const launch& how, const std::string& shell_text) {
  word_list all{"ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"};
  if (!how.ssh_config.empty()) {
    append(all, {"-F", how.ssh_config});
  }
  // The user's shell there reads one command, which starts a shell of a known kind.
  append(all, {"--", how.login, "exec sh -c " + shell_word(shell_text)});
  return all;
}

std::string remote_script(const launch& how, const word_list& command) {
  // What sh starts in the background reads nothing, so the signals come through another descriptor.
  return gradus::join({"cd -- ", shell_word(how.folder), " || exit 1; exec 3<&0; ", shell_line(command),
                       " </dev/null 3<&- & job=$!; "
                       "(while read -r number <&3; do kill -\"$number\" $job; done; kill -TERM $job; sleep ",
                       how.grace,
                       "; kill -KILL $job) >/dev/null 2>&1 & watch=$!; exec 3<&-; "
                       "wait $job; status=$?; kill $watch 2>/dev/null; exit $status"});
}

}  // namespace supervisor
