// SPDX-License-Identifier: BSL-1.0
//
// Where output files go: only a regular file is replaced; links are followed; pipes, devices and open files are written
// to, or refused.
#include "gradus/core/output_file.hpp"

#include <fcntl.h>          // open
#include <signal.h>         // signal
#include <sys/resource.h>   // getrlimit, setrlimit
#include <sys/stat.h>       // mkfifo, mknod, umask
#include <sys/sysmacros.h>  // makedev
#include <unistd.h>         // read, dup

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/data/npy.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/onnx/detail/model/model_files.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/recorder.hpp"

namespace {

namespace fs = std::filesystem;
namespace io = gradus::io;

struct scratch_folder {
  fs::path path = fs::temp_directory_path() / ("gradus_output_" + std::to_string(::getpid()));
  scratch_folder() { fs::create_directories(path / "elsewhere"); }
  ~scratch_folder() { fs::remove_all(path); }
};

std::string text_in(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

void write(const fs::path& path, std::string_view text) {
  io::output_file file{path.string()};
  file.write(text);
  file.commit();
}

std::string refusal_of(const fs::path& path, std::string_view text) {
  try {
    write(path, text);
  } catch (const gradus::format_error& failure) {
    return failure.what();
  }
  return "written";
}

/// What each kind of output file of the library writes.
void write_tensors(const std::string& path) {
  const std::vector<float> numbers{1, 2};
  io::safetensors_writer{}.add("x", numbers, {2}).write(path);
}
void write_model(const std::string& path) {
  io::detail::onnx_model_files{path}.write("a model");
}
void write_array(const std::string& path) {
  gradus::data::write_npy(path, std::vector<double>{1, 2}, {2});
}
void write_trace(const std::string& path) {
  gradus::trace::recorder recorder;
  gradus::trace::write(path, recorder, gradus::comm::self{});
}

/// The largest file that this process may write, while the object is there.
class file_size_limit {
 public:
  explicit file_size_limit(::rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const ::rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;

 private:
  ::rlimit before_{};
  void (*handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

/// A pipe, and what its reader gets.
struct read_pipe {
  explicit read_pipe(const fs::path& where) : path{where} {
    BOOST_REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    content = std::async(std::launch::async, [this] { return text_in(path); });
  }
  fs::path path;
  std::future<std::string> content;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(output_files)

BOOST_AUTO_TEST_CASE(links_go_on_leading_to_the_file) {
  const scratch_folder folder;
  const fs::path target = folder.path / "elsewhere" / "file";
  const fs::path absolute = folder.path / "absolute";
  const fs::path chain = folder.path / "chain";
  fs::create_symlink("elsewhere/file", folder.path / "relative");
  fs::create_symlink(target, absolute);
  fs::create_symlink("relative", chain);
  for (const char* const name : {"absolute", "relative", "chain"}) {  // the first makes what the link leads to
    write(folder.path / name, name);
    BOOST_TEST(text_in(target) == name);
    BOOST_TEST(fs::is_symlink(folder.path / name));
    BOOST_TEST(!fs::is_symlink(target));
  }
  for (const auto& each : fs::directory_iterator{folder.path / "elsewhere"}) {
    BOOST_TEST(each.path() == target);
  }
  write_tensors(chain.string());
  BOOST_TEST(fs::is_symlink(chain));
  BOOST_TEST(io::safetensors_file{target.string()}.header().tensors.size() == 1U);
  fs::create_symlink("loop", folder.path / "loop");
  BOOST_TEST(refusal_of(folder.path / "loop", "x").find("Too many levels of symbolic links") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_file_of_any_kind_is_replaced_whole_or_stays) {
  const scratch_folder folder;
  const fs::path path = folder.path / "file";
  for (const auto& write_one : {write_tensors, write_model, write_array, write_trace}) {
    std::ofstream{path} << "old";
    std::string message;
    {
      const file_size_limit limit{2};
      try {
        write_one(path.string());
      } catch (const gradus::format_error& failure) {
        message = failure.what();
      }
    }
    BOOST_TEST(message.find("write '" + path.string() + "'") != std::string::npos, message);
    BOOST_TEST(message.find("File too large") != std::string::npos, message);
    BOOST_TEST(text_in(path) == "old");
    write_one(path.string());
    BOOST_TEST(text_in(path) != "old");
    for (const auto& each : fs::directory_iterator{folder.path}) {
      BOOST_TEST((each.path() == path || each.is_directory()), each.path());
    }
  }
}

// A large part is written past what is kept of small ones, in its place.
BOOST_AUTO_TEST_CASE(a_file_that_is_replaced_keeps_its_permissions) {
  const scratch_folder folder;
  const auto permissions_of = [](const fs::path& path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  const ::mode_t before = ::umask(022);
  const fs::path path = folder.path / "file";
  write(path, "new");
  BOOST_TEST(permissions_of(path) == 0644U);
  for (const unsigned permissions : {0600U, 0664U, 0400U}) {
    fs::permissions(path, fs::perms{permissions});
    {
      const io::output_file file{path.string()};  // the temporary file has them, too
      for (const auto& each : fs::directory_iterator{folder.path}) {
        BOOST_TEST((each.is_directory() || permissions_of(each.path()) == permissions), each.path());
      }
    }
    write(path, "newer");
    BOOST_TEST(permissions_of(path) == permissions);
  }
  ::umask(before);
}

BOOST_AUTO_TEST_CASE(parts_of_any_size_are_written_in_order) {
  const scratch_folder folder;
  const fs::path path = folder.path / "file";
  std::string expected;
  io::output_file file{path.string()};
  for (const std::size_t size : {1U, 65'535U, 1U, 65'536U, 3U, 65'537U, 200'000U, 0U, 5U, 40'000U, 40'000U}) {
    std::string part;
    for (std::size_t i = 0; i < size; ++i) {
      part.push_back(static_cast<char>(expected.size() * 7 + i * 13 + i / 251));
    }
    file.write(part);
    expected += part;
    BOOST_TEST(file.size() == expected.size());
  }
  file.commit();
  BOOST_TEST((text_in(path) == expected));
}

BOOST_AUTO_TEST_CASE(data_of_a_model_are_where_its_link_leads) {
  const scratch_folder folder;
  fs::create_symlink("elsewhere/m.onnx", folder.path / "link.onnx");
  io::detail::onnx_model_files files{folder.path / "link.onnx"};
  BOOST_TEST(files.choose_data_name() == "m.onnx.data");
  files.write("model", "data");
  BOOST_TEST(text_in(folder.path / "elsewhere" / "m.onnx") == "model");
  BOOST_TEST(text_in(folder.path / "elsewhere" / "m.onnx.data") == "data");
  BOOST_TEST(fs::is_symlink(folder.path / "link.onnx"));
}

BOOST_AUTO_TEST_CASE(the_reader_of_a_pipe_gets_the_bytes) {
  const scratch_folder folder;
  read_pipe text{folder.path / "text"};
  write(text.path, "abc");
  BOOST_TEST(text.content.get() == "abc");
  read_pipe tensors{folder.path / "tensors"};
  write_tensors(tensors.path.string());
  write_tensors((folder.path / "file").string());
  BOOST_TEST(tensors.content.get() == text_in(folder.path / "file"));
  read_pipe model{folder.path / "model"};
  write_model(model.path.string());
  BOOST_TEST(model.content.get() == "a model");
  for (const auto& each : {text.path, tensors.path, model.path}) {
    BOOST_TEST(fs::is_fifo(each));
  }
  read_pipe linked{folder.path / "linked"};
  fs::create_symlink("linked", folder.path / "link");
  write(folder.path / "link", "through");
  BOOST_TEST(linked.content.get() == "through");
  BOOST_CHECK_THROW(static_cast<void>(io::detail::onnx_model_files{linked.path}.choose_data_name()),
                    gradus::format_error);
}

BOOST_AUTO_TEST_CASE(a_pipe_without_a_reader_is_refused) {
  const scratch_folder folder;
  const fs::path pipe = folder.path / "pipe";
  BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  BOOST_TEST(refusal_of(pipe, "abc").find("start the program that reads the pipe first") != std::string::npos);
  BOOST_TEST(fs::is_fifo(pipe));
}

BOOST_AUTO_TEST_CASE(a_reader_that_ends_is_an_error_and_no_signal) {
  const scratch_folder folder;
  const fs::path pipe = folder.path / "pipe";
  BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  io::output_file file{pipe.string()};
  file.write("abc");
  ::close(reader);
  BOOST_CHECK_EXCEPTION(file.commit(), gradus::format_error, [](const gradus::format_error& failure) {
    return std::string{failure.what()}.find("a reader of 3 bytes, got Broken pipe") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(an_open_file_is_written_at_its_end) {
  const scratch_folder folder;
  const fs::path path = folder.path / "file";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  BOOST_REQUIRE(::write(file, "before ", 7) == 7);
  write("/proc/self/fd/" + std::to_string(file), "after");
  ::close(file);
  BOOST_TEST(text_in(path) == "before after");
}

BOOST_AUTO_TEST_CASE(a_device_stays_one) {
  const scratch_folder folder;
  const fs::path device = folder.path / "null";
  if (::mknod(device.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) {
    return;  // only an administrator makes devices
  }
  if (const int file = ::open(device.c_str(), O_WRONLY); file < 0) {
    return;  // nor may they be opened in every folder
  } else {
    ::close(file);
  }
  write(device, "abc");
  BOOST_TEST(fs::is_character_file(device));
  BOOST_TEST(refusal_of(folder.path / "elsewhere", "x").find("Is a directory") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
