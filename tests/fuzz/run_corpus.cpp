// SPDX-License-Identifier: BSL-1.0
//
// Runs a harness without libFuzzer: the inputs of a folder, and mutations of them.
//
//   fuzz_NAME FOLDER [RUN]
//
// Each mutation depends only on the seed and its number. The number of a mutation that fails is printed; given as RUN,
// that mutation is made again. Environment:
//
//   GRADUS_FUZZ_SECONDS  ends the run after this time; without it only GRADUS_FUZZ_RUNS does
//   GRADUS_FUZZ_RUNS     number of mutations; unless set, 1000, or no limit with GRADUS_FUZZ_SECONDS
//   GRADUS_FUZZ_SEED     1 unless set
//
// run_libfuzzer builds the harnesses without this file, and runs them with libFuzzer.
#include <algorithm>    // std::copy, std::min, std::reverse, std::sort
#include <chrono>       // std::chrono
#include <csignal>      // std::signal
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <cstdio>       // std::fprintf, std::printf
#include <cstdlib>      // std::getenv, std::strtoull
#include <filesystem>   // std::filesystem
#include <fstream>      // std::ifstream
#include <iterator>     // std::istreambuf_iterator
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/random.hpp"

extern "C" {
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Sanitizers end the program by a signal, whose handler prints the number of the input.
const char* __asan_default_options();
const char* __asan_default_options() {
  return "abort_on_error=1";
}
const char* __ubsan_default_options();
const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}
}

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t none = ~std::uint64_t{0};
std::uint64_t under_way = none;  // the number of the mutation
const char* input_name = "";

void tell() {
  if (under_way == none) {
    std::fprintf(stderr, "\nfuzz: the input is %s\n", input_name);
  } else {
    std::fprintf(stderr, "\nfuzz: the input is mutation %llu\n", static_cast<unsigned long long>(under_way));
  }
}

void on_signal(int signal) {
  tell();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::uint64_t setting(const char* name, std::uint64_t usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

/// Numbers that follow from a seed.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_{gradus::detail::mix_bits(seed)} {}
  std::uint64_t below(std::uint64_t limit) {
    state_ = gradus::detail::mix_bits(state_ + 0x9e3779b97f4a7c15U);
    return limit == 0 ? 0 : state_ % limit;
  }

 private:
  std::uint64_t state_;
};

/// One of the ways in which inputs go wrong: bits, extreme numbers, cuts, repetitions, parts of other inputs.
void change(bytes& input, const std::vector<bytes>& corpus, dice& random) {
  constexpr std::size_t longest = 1U << 16U;
  const auto position = [&] { return static_cast<std::size_t>(random.below(input.size())); };
  const auto part = [&](const bytes& of, std::size_t begin) {
    return static_cast<std::size_t>(random.below(std::min<std::size_t>(of.size() - begin, 64) + 1));
  };
  const auto insert = [&](const bytes& what) {
    const auto at = static_cast<std::ptrdiff_t>(random.below(input.size() + 1));
    if (input.size() + what.size() <= longest) {
      input.insert(input.begin() + at, what.begin(), what.end());
    }
  };
  if (input.empty()) {
    input.push_back(static_cast<std::uint8_t>(random.below(256)));
    return;
  }
  switch (random.below(9)) {
    case 0:
      input[position()] ^= static_cast<std::uint8_t>(1U << random.below(8));
      break;
    case 1:
      input[position()] = static_cast<std::uint8_t>(random.below(256));
      break;
    case 2: {  // a number of several bytes, small, at a limit or huge
      constexpr std::uint64_t values[] = {0,      1,          0x7f,       0x80,       0xff, 0x7fff,
                                          0xffff, 0x7fffffff, 0x80000000, 0xffffffff, none};
      std::uint64_t value = values[random.below(std::size(values))] + random.below(3) - 1;
      std::uint8_t digits[8];
      const std::size_t size = std::size_t{1} << random.below(4);
      for (std::size_t i = 0; i < size; ++i, value >>= 8U) {
        digits[i] = static_cast<std::uint8_t>(value);
      }
      if (random.below(2) == 0) {
        std::reverse(digits, digits + size);
      }
      const std::size_t at = position();
      std::copy(digits, digits + std::min(size, input.size() - at), input.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    }
    case 3:
      input.resize(position());
      break;
    case 4: {
      const std::size_t at = position();
      const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
      input.erase(from, from + static_cast<std::ptrdiff_t>(part(input, at)));
      break;
    }
    case 5: {
      const std::size_t at = position();
      const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
      insert(bytes(from, from + static_cast<std::ptrdiff_t>(part(input, at))));
      break;
    }
    case 6: {
      const bytes& other = corpus[random.below(corpus.size())];
      const auto at = static_cast<std::size_t>(random.below(other.size() + 1));
      const auto from = other.begin() + static_cast<std::ptrdiff_t>(at);
      insert(bytes(from, from + static_cast<std::ptrdiff_t>(part(other, at))));
      break;
    }
    case 7: {  // what texts are made of
      constexpr std::string_view words[] = {
          "-1",      "1e308", "null", "\"", "{",  "[", "]}", ":", ",", "18446744073709551616",
          "\\u0000", "#",     ";",    "=",  "\n", " ", "K",  "0"};
      const std::string_view word = words[random.below(std::size(words))];
      insert(bytes(word.begin(), word.end()));
      break;
    }
    default:
      insert(bytes(random.below(64), static_cast<std::uint8_t>(random.below(256))));
      break;
  }
}

bytes mutation(const std::vector<bytes>& corpus, std::uint64_t seed, std::uint64_t number) {
  dice random{seed * 0x9e3779b97f4a7c15U + number};
  bytes input = corpus[random.below(corpus.size())];
  for (std::uint64_t changes = 1 + random.below(6); changes > 0; --changes) {
    change(input, corpus, random);
  }
  return input;
}

/// From memory of exactly its size, so that a sanitizer sees what is read behind it.
void run(const bytes& input) {
  const bytes exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [RUN]\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, &on_signal);
  std::vector<std::filesystem::path> files;
  for (const auto& each : std::filesystem::directory_iterator{argv[1]}) {
    files.push_back(each.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<bytes> corpus;
  for (const std::filesystem::path& each : files) {
    std::ifstream in{each, std::ios::binary};
    corpus.emplace_back(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: no inputs in %s\n", argv[1]);
    return 2;
  }
  const std::uint64_t seed = setting("GRADUS_FUZZ_SEED", 1);
  if (argc > 2) {
    under_way = std::strtoull(argv[2], nullptr, 10);
    run(mutation(corpus, seed, under_way));
    return 0;
  }
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    input_name = files[i].c_str();
    run(corpus[i]);
  }
  const auto seconds = std::chrono::seconds{setting("GRADUS_FUZZ_SECONDS", 0)};
  const std::uint64_t most = setting("GRADUS_FUZZ_RUNS", seconds.count() > 0 ? none : 1000);
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t done = 0;
  for (; done < most && (seconds.count() == 0 || std::chrono::steady_clock::now() - began < seconds); ++done) {
    under_way = done;
    run(mutation(corpus, seed, done));
  }
  std::printf("fuzz: %zu inputs and %llu mutations of seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(seed));
  return 0;
}
