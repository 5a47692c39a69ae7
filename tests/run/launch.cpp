// SPDX-License-Identifier: BSL-1.0
//
// Commands and scripts that gradus_run makes. Real launchers run them in check_ssh.py and check_slurm.py.
#include "launch.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdio>     // std::fgets, pclose, popen
#include <stdexcept>  // std::invalid_argument
#include <string>     // std::string
#include <vector>     // std::vector

#include "settings.hpp"
#include "slurm.hpp"
#include "words.hpp"

namespace {

using namespace supervisor;

/// The settings of a command line, or why it is refused.
struct read_line {
  settings chosen = {};
  std::string refusal = {};
};

read_line launch_of(word_list line) {
  line.insert(line.begin(), "gradus_run");
  std::vector<char*> pointers;
  for (std::string& each : line) {
    pointers.push_back(each.data());
  }
  read_line result;
  try {
    static_cast<void>(read_settings(static_cast<int>(pointers.size()), pointers.data(), result.chosen));
  } catch (const std::invalid_argument& failure) {
    result.refusal = failure.what();
  }
  return result;
}

/// What a shell makes of a line.
std::string output_of_shell(const std::string& line) {
  std::FILE* const pipe = ::popen(line.c_str(), "r");
  BOOST_REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) {
    text += static_cast<char>(c);
  }
  ::pclose(pipe);
  return text;
}

const word_list hostile{"a b", "it's",     "$HOME", "`id`",    "$(id)", "\"",  "\\",      "a\nb",  "*",   "~",  "#x",
                        "!x",  "a;b",      "{1,2}", "",        "-n",    "'",   "''",      "a\\'b", "\t",  "<x", ">x",
                        "&",   "\x7f\x01", "ü",     "--x=a b", "[x]",   "a|b", "{ranks}", "=x",    "%n%s"};

BOOST_AUTO_TEST_SUITE(run_launch)

BOOST_AUTO_TEST_CASE(a_shell_reads_back_every_word) {
  word_list command{"printf", "<%s>"};
  command.insert(command.end(), hostile.begin(), hostile.end());
  std::string expected;
  for (const std::string& each : hostile) {
    expected += "<" + each + ">";
  }
  BOOST_TEST(output_of_shell(shell_line(command)) == expected);
  BOOST_TEST(output_of_shell("bash -c " + shell_word(shell_line(command))) == expected);
  BOOST_TEST(shell_line({"mpiexec", "-n", "2", "./p", "--x=1,2"}) == "mpiexec -n 2 ./p --x=1,2");
}

BOOST_AUTO_TEST_CASE(hosts_have_addresses_that_are_no_options) {
  const std::vector<host> hosts = read_hosts("10.0.0.1:4,node-2,n_3:1");
  BOOST_REQUIRE(hosts.size() == 3);
  BOOST_TEST(hosts[0].address == "10.0.0.1");
  BOOST_TEST(hosts[0].ranks == 4);
  BOOST_TEST(hosts[1].address == "node-2");
  BOOST_TEST(hosts[1].ranks == 1);
  for (const char* const text : {"", "a,", ",a", "a:", "a:0", "a:-1", "a:x", "a:1x", "-oProxyCommand=x", "a b", "a;b",
                                 "a:99999999", "$a", "a\nb", "u@a", "::1"}) {
    BOOST_TEST(launch_of({"--hosts", text, "--", "p"}).refusal.find("--hosts: expected") == 0, text);
  }
  BOOST_TEST(is_address("me@a.b", true));
  for (const char* const text : {"", "@a", "me@", "-a", "me@-a", "a@b@c", "a b"}) {
    BOOST_TEST(!is_address(text, true), text);
  }
}

BOOST_AUTO_TEST_CASE(mpiexec_gets_the_words_of_its_library) {
  const auto line_of = [](const launch& how, mpi_family family) {
    return shell_line(with_number(mpiexec_command(how, family, {"./p", "x y"}), "ranks", 4));
  };
  launch how{.by = launching::mpiexec};
  BOOST_TEST(line_of(how, mpi_family::mpich) == "mpiexec -n 4 ./p 'x y'");
  how.bind = "core";
  how.threads = 2;
  how.own_path = "/bin/gradus_run";
  BOOST_TEST(line_of(how, mpi_family::mpich) == "mpiexec -bind-to core:2 -n 4 /bin/gradus_run --announce -- ./p 'x y'");
  BOOST_TEST(line_of(how, mpi_family::open_mpi) ==
             "mpiexec --map-by slot:PE=2 --bind-to core -n 4 /bin/gradus_run --announce -- ./p 'x y'");
  how = {.by = launching::hosts, .bind = "socket", .hosts = {{"a", 3}, {"b", 1}}, .ssh_config = "c"};
  BOOST_TEST(
      line_of(how, mpi_family::mpich) ==
      "env 'HYDRA_LAUNCHER_EXTRA_ARGS=-F c' mpiexec -launcher ssh -hosts a:3,b:1 -bind-to socket -n 4 ./p 'x y'");
  BOOST_TEST(line_of(how, mpi_family::open_mpi) ==
             "mpiexec --mca plm_rsh_agent 'ssh -F c' --host a:3,b:1 --bind-to socket -n 4 ./p 'x y'");
  how.login = "me@public";
  BOOST_TEST(line_of(how, mpi_family::mpich) ==
             "mpiexec -launcher ssh -localhost a -hosts a:3,b:1 -bind-to socket -n 4 ./p 'x y'");
  BOOST_TEST(shell_line(login_command(how, "x 'y'")) ==
             "ssh -T -o BatchMode=yes -o ServerAliveInterval=15 -F c -- me@public "
             "'exec sh -c '\\''x '\\''\\'\\'''\\''y'\\''\\'\\'''\\'''\\'''");
  BOOST_TEST((family_of("mpirun (Open MPI) 4.1.4") == mpi_family::open_mpi));
  BOOST_TEST((family_of("HYDRA build details:\n Version: 4.0.2") == mpi_family::mpich));
}

BOOST_AUTO_TEST_CASE(the_nodes_of_sinfo_are_read) {
  const std::vector<node_kind> kinds = read_nodes("4 64\n  2 128+\nnonsense\n\n1\n");
  BOOST_REQUIRE(kinds.size() == 2);
  BOOST_TEST(kinds[0].nodes == 4);
  BOOST_TEST(kinds[0].processors == 64);
  BOOST_TEST(kinds[1].nodes == 2);
  BOOST_TEST(kinds[1].processors == 128);
  BOOST_TEST(read_nodes("").empty());
}

BOOST_AUTO_TEST_CASE(a_job_has_to_fit_the_nodes) {
  const std::vector<node_kind> kinds{{4, 64}, {2, 128}};
  const auto threads_of = [&](int nodes, int ranks, int threads, const std::vector<node_kind>& all) {
    launch how{.by = launching::slurm, .slurm = {.nodes = nodes, .ranks_per_node = ranks, .threads = threads}};
    fit_to_nodes(how, all);
    return how.slurm.threads;
  };
  BOOST_TEST(threads_of(2, 8, 0, kinds) == 16);
  BOOST_TEST(threads_of(6, 8, 0, kinds) == 8);
  BOOST_TEST(threads_of(6, 3, 0, kinds) == 21);
  BOOST_TEST(threads_of(2, 8, 16, kinds) == 16);
  BOOST_TEST(threads_of(2, 8, 16, {}) == 16);
  BOOST_CHECK_THROW(threads_of(3, 8, 16, kinds), std::invalid_argument);
  BOOST_CHECK_THROW(threads_of(7, 1, 0, kinds), std::invalid_argument);
  BOOST_CHECK_THROW(threads_of(1, 129, 0, kinds), std::invalid_argument);
  BOOST_CHECK_THROW(threads_of(1, 8, 0, {}), std::invalid_argument);
  launch how{.by = launching::slurm, .slurm = {.nodes = 1000, .ranks_per_node = 4, .processors_of_node = 32}};
  fit_to_nodes(how, {});
  BOOST_TEST(how.slurm.threads == 8);
}

BOOST_AUTO_TEST_CASE(a_script_of_Slurm_is_a_script_of_bash) {
  launch how{.by = launching::slurm,
             .bind = "core",
             .own_path = "/bin/gradus_run",
             .slurm = {.nodes = 4, .ranks_per_node = 8, .threads = 2, .time = "4:00:00", .name = "p", .mpi = "pmix"}};
  how.slurm.lines = {"--mem=4G"};
  BOOST_TEST(shell_line(with_number(srun_command(how, {"./p"}), "ranks", 32)) ==
             "srun --ntasks=32 --mpi=pmix --cpus-per-task=2 --kill-on-bad-exit=1 --cpu-bind=cores /bin/gradus_run "
             "--announce -- ./p");
  word_list command{"printf", "<%s>"};
  command.insert(command.end(), hostile.begin(), hostile.end());
  const std::string script = slurm_script(how, command);
  for (const char* const line :
       {"#SBATCH --job-name=p\n", "#SBATCH --nodes=4\n", "#SBATCH --ntasks-per-node=8\n", "#SBATCH --cpus-per-task=2\n",
        "#SBATCH --time=4:00:00\n", "#SBATCH --signal=B:USR1@120\n", "#SBATCH --requeue\n", "#SBATCH --mem=4G\n"}) {
    BOOST_TEST(script.find(line) < script.find("trap"), line);
  }
  std::string expected;
  for (const std::string& each : hostile) {
    expected += "<" + each + ">";
  }
  BOOST_TEST(output_of_shell("bash -c " + shell_word(script)) == expected);
}

BOOST_AUTO_TEST_CASE(a_job_is_queued_again_only_after_the_signal_of_its_time_limit) {
  // scontrol is a function. The job is a shell that ends with 75 when it gets USR1, as gradus_run does.
  launch how{.by = launching::slurm, .slurm = {.nodes = 1, .threads = 1}};
  const auto run = [&](const std::string& before, int status, int starts) {
    const std::string job =
        "trap 'exit " + std::to_string(status) + "' USR1; " + before + "while :; do sleep 0.01; done";
    const std::string line =
        "scontrol() { echo \"scontrol $*\"; }; SLURM_JOB_ID=7; SLURM_RESTART_COUNT=" + std::to_string(starts) + "\n" +
        slurm_script(how, {"sh", "-c", job});
    return output_of_shell("bash -c " + shell_word(line) + "; echo status $?");
  };
  BOOST_TEST(run("kill -USR1 $PPID; ", 75, 0) == "scontrol requeue 7\nstatus 75\n");
  BOOST_TEST(run("kill -USR1 $PPID; ", 75, 100) == "status 75\n");  // --requeues
  BOOST_TEST(run("kill -USR1 $PPID; ", 1, 0) == "status 1\n");
  BOOST_TEST(run("kill -TERM $PPID; ", 75, 0) == "status 75\n");
  BOOST_TEST(run("exit 75; ", 75, 0) == "status 75\n");
  BOOST_TEST(run("exit 0; ", 75, 0) == "status 0\n");
}

BOOST_AUTO_TEST_CASE(the_library_of_a_program_tells_the_kind_of_srun) {
  BOOST_TEST(mpi_of_program("\0libmpi.so.40\0") == "pmi2");  // the text ends at the first null character
  BOOST_TEST(mpi_of_program(std::string{"x\0libmpi.so.40\0y", 17}) == "pmix");
  BOOST_TEST(mpi_of_program("libmpich.so.12") == "pmi2");
  BOOST_TEST(mpi_of_program("") == "pmi2");
}

BOOST_AUTO_TEST_CASE(options_that_do_not_fit_are_refused) {
  const auto refused = [](word_list line, const char* begin) {
    line.insert(line.end(), {"--", "p"});
    const std::string found = launch_of(line).refusal;
    BOOST_TEST(found.find(begin) == 0, found << " does not begin with " << begin);
  };
  refused({"--mpiexec"}, "--mpiexec: expected --ranks");
  refused({"--mpiexec", "--slurm", "--ranks", "2"}, "expected one of");
  refused({"--bind", "core"}, "--bind: expected --mpiexec");
  refused({"--print"}, "--print: expected --mpiexec");
  refused({"--mpiexec", "--ranks", "2", "--login", "a"}, "--login: expected --hosts");
  refused({"--mpiexec", "--ranks", "2", "--nodes", "2"}, "--nodes: expected --slurm");
  refused({"--mpiexec", "--ranks", "2", "--bind", "all"}, "--bind: ");
  refused({"--hosts", "a:2", "--ranks", "3"}, "--ranks: expected at most the 2");
  refused({"--hosts", "a", "--login", "-oProxyCommand=x"}, "--login");
  refused({"--slurm"}, "--slurm: expected --nodes");
  refused({"--slurm", "--nodes", "2", "--ranks", "2"}, "--ranks: expected --nodes");
  refused({"--slurm", "--nodes", "1048576", "--ranks-per-node", "1024"}, "--nodes: expected at most");
  refused({"--slurm", "--nodes", "2", "--job-name", "a\n#SBATCH --x"}, "--job-name: expected");
  refused({"--slurm", "--nodes", "2", "--partition", "a b"}, "--partition: expected");
  refused({"--slurm", "--nodes", "2", "--time", "1h"}, "--time: expected");
  refused({"--slurm", "--nodes", "2", "--sbatch=x"}, "--sbatch: expected");
  refused({"--slurm", "--nodes", "2", "--sbatch=--x\ny"}, "--sbatch: expected");
  refused({"--slurm", "--nodes", "1", "--servers", "1"}, "--servers: expected fewer");
  refused({"--slurm", "--nodes", "2", "--servers", "1"}, "--servers: expected {servers}");
  BOOST_TEST(launch_of({"--mpiexec", "--ranks", "2", "--", "p", "{threads}"}).refusal.find("--threads: expected") == 0);
}

BOOST_AUTO_TEST_CASE(a_command_of_a_launcher_needs_no_ranks_in_it) {
  read_line line = launch_of({"--slurm", "--nodes", "2", "--ranks-per-node", "3", "--checkpoints", "a b", "--fewer",
                              "4,2", "--servers", "2", "--", "p", "--servers", "{servers}", "--n={ranks}"});
  BOOST_TEST(line.refusal == "");
  BOOST_TEST(line.chosen.how.ranks == 6);
  const word_list passed{"--fewer=4,2", "--checkpoints=a b"};
  BOOST_TEST(line.chosen.passed_on == passed, boost::test_tools::per_element());
  line = launch_of({"--hosts", "a:3,b:2", "--", "p"});
  BOOST_TEST(line.refusal == "");
  BOOST_TEST(line.chosen.allowed.ranks.front() == 5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
