// SPDX-License-Identifier: BSL-1.0
//
// Command lines of tf_cnn_benchmarks as those of gradus_bench. check_driver.py runs lines of the studies.
#include "study_flags.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::any_of
#include <set>        // std::set
#include <sstream>    // std::istringstream
#include <stdexcept>  // std::invalid_argument
#include <string>     // std::string
#include <vector>     // std::vector

namespace {

using driver::study_line;

/// The line, with blanks between its words; or why it is refused.
struct translated {
  std::string text = {};
  std::string refusal = {};
  std::vector<std::string> notes = {};
};

translated translate(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream{line};
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  translated result;
  try {
    const study_line found = driver::translate_study_flags(words);
    for (const std::string& each : found.arguments) {
      result.text += (result.text.empty() ? "" : " ") + each;
    }
    result.notes = found.notes;
  } catch (const std::invalid_argument& failure) {
    result.refusal = failure.what();
  }
  return result;
}

/// The command at the end of a refusal.
std::string command_in(const std::string& refusal) {
  const std::size_t at = refusal.find("gradus_run ");
  return at == std::string::npos ? refusal : refusal.substr(at);
}

BOOST_AUTO_TEST_SUITE(study_flags)

BOOST_AUTO_TEST_CASE(other_words_pass) {
  const std::string line = "scale --ranks 1,2 --model=resnet50 --data-dir --x - no --nowinograd";
  BOOST_TEST(translate(line).text == line);
  BOOST_TEST(translate("").text == "");
}

BOOST_AUTO_TEST_CASE(flags_get_the_names_of_options) {
  BOOST_TEST(translate("--train-dir=d --save-model-steps 5").text == "--checkpoint-dir d --checkpoint-every 5");
  BOOST_TEST(translate("--datasets-repeat-cached-sample").text == "--repeat-cached-sample");
  BOOST_TEST(translate("--datasets-repeat-cached-sample=True").text == "--repeat-cached-sample");
  BOOST_TEST(translate("--nodatasets-repeat-cached-sample").text == "");
  BOOST_TEST(translate("--staged-vars=false --model x").text == "--model x");
  BOOST_TEST(translate("--datasets-num-private-threads=3").text == "--reader-threads 3");
  BOOST_TEST(translate("--use-fp16").text == "--precision fp16");
  BOOST_TEST(translate("--use-fp16=false").text == "");
  BOOST_TEST(translate("--nocross-replica-sync").text == "--server-mode asynchronous");
  BOOST_TEST(translate("--eval --eval-interval-secs=5").text == "--eval --eval-interval-secs=5");
  BOOST_TEST(translate("--noeval").text == "");
  BOOST_TEST(translate("--train-dir").refusal == "--train_dir: expected a value, got none");
  BOOST_TEST(translate("--use-fp16=maybe").refusal == "--use_fp16: expected true or false, got 'maybe'");
}

BOOST_AUTO_TEST_CASE(flags_without_effect_say_why) {
  const translated found = translate("--kmp-blocktime=0 --model lenet --noforce-gpu-compatible --mkl=True");
  BOOST_TEST(found.text == "--model lenet");
  BOOST_REQUIRE(found.notes.size() == 3);
  BOOST_TEST(found.notes[0] == "--kmp_blocktime: threads are gradus' own, not OpenMP's");
}

BOOST_AUTO_TEST_CASE(flags_that_cannot_be_followed_say_what_to_write) {
  BOOST_TEST(translate("--tfprof-file=x").refusal ==
             "--tfprof_file: gradus_bench has no such flag; write instead: --trace-file FILE");
  BOOST_TEST(translate("--gradient-repacking=0").refusal == "");
  BOOST_TEST(translate("--gradient-repacking=8").refusal.find("--bucket-kilobytes") != std::string::npos);
  BOOST_TEST(translate("--use-chrome-trace-format=false").refusal.find("expected true") != std::string::npos);
  BOOST_TEST(translate("--eval-during-training-every-n-steps=5").refusal.find("gradus_bench --eval ") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_number_of_GPUs_is_that_of_ranks) {
  BOOST_TEST(translate("--num-gpus=1 --device=cpu").text == "--device=cpu");
  BOOST_TEST(translate("--num-gpus=4 --device cpu").text == "--device cpu --ranks 4");
  BOOST_TEST(translate("--num-gpus=1").text == "--device cuda");
  BOOST_TEST(translate("--num-gpus 8 --local-parameter-device=gpu").text ==
             "--device cuda --all-reduce-spec nccl --ranks 8");
  BOOST_TEST(translate("--local-parameter-device=cpu").text == "");
  BOOST_TEST(translate("--num-gpus=2 --local-parameter-device=cpu").notes.size() == 1);
  BOOST_TEST(translate("--local-parameter-device=gpu").refusal.find("expected cpu with --device cpu") !=
             std::string::npos);
  BOOST_TEST(translate("--num-gpus=x").refusal == "--num_gpus: expected a number from 0 to 4096, got 'x'");
  // One process of the study applies the sum of its GPUs' gradients, whatever the mode.
  BOOST_TEST(translate("--variable-update=parameter_server --num-gpus=1 --device=cpu").text ==
             "--device=cpu --variable-update all_reduce");
  BOOST_TEST(translate("--variable-update=parameter_server --ranks 3").text ==
             "--variable-update=parameter_server --ranks 3");
}

BOOST_AUTO_TEST_CASE(a_task_of_a_job_says_which_line_starts_all_tasks) {
  const auto command = [](const std::string& line) { return command_in(translate(line).refusal); };
  BOOST_TEST(command("--job-name=worker --task-index=1 --ps-hosts=p:1 --worker-hosts=a:2222,b:2222 --model=inception3 "
                     "--variable-update=parameter_server --device=cpu") ==
             "gradus_run --hosts a,b,p -- gradus_bench --model=inception3 --variable-update=parameter_server "
             "--device=cpu --servers 1");
  // Servers on the machines of workers are beside the first ranks.
  BOOST_TEST(command("--job-name=ps --task-index=0 --ps-hosts=b:1 --worker-hosts=a:2,b:2 --device=cpu") ==
             "gradus_run --hosts b,a -- gradus_bench --device=cpu --servers 1 --colocate-servers");
  BOOST_TEST(command("--worker-hosts=a:1,a:2,b:1 --device=cpu --model 'x;y'") ==
             "gradus_run --hosts a:2,b -- gradus_bench --device=cpu --model ''\\''x;y'\\'''");
  // On GPUs a rank has one, and gradients are summed.
  BOOST_TEST(command("--job-name=worker --ps-hosts=p --worker-hosts=a,b --num-gpus=8 "
                     "--variable-update=parameter_server --local-parameter-device=cpu") ==
             "gradus_run --hosts a:8,b:8 -- gradus_bench --device cuda --variable-update all_reduce");
  BOOST_TEST(translate("--job-name=ps --ps-hosts=a").refusal.find("--worker_hosts: expected") == 0);
  BOOST_TEST(translate("--job-name=chief --worker-hosts=a").refusal.find("--job_name: expected ps, worker") == 0);
  BOOST_TEST(
      translate("--job-name=ps --ps-hosts=a,c --worker-hosts=a,b --device=cpu").refusal.find("--ps_hosts: exp") == 0);
  BOOST_TEST(translate("--worker-hosts=a,,b").refusal.find("--worker_hosts: expected machines") == 0);
  BOOST_TEST(translate("--job-name= --task-index=0 --worker-hosts=a:1 --device=cpu").text == "--device=cpu");
}

BOOST_AUTO_TEST_CASE(each_flag_has_one_entry) {
  const std::vector<std::string> names = driver::study_flag_names();
  BOOST_TEST(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  BOOST_TEST(!std::any_of(names.begin(), names.end(),
                          [](const std::string& name) { return name.find('_') != std::string::npos; }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
