// SPDX-License-Identifier: BSL-1.0
//
// A folder with one folder of images for each class, and the data set of its photographs. The lines of an input, up to
// an empty one, are paths with a letter before them that says what is there; the bytes behind the empty line are the
// content of files.
#include <sys/stat.h>  // mkfifo
#include <unistd.h>    // mkdtemp

#include <algorithm>     // std::replace
#include <cstddef>       // std::size_t
#include <cstdint>       // std::int32_t, std::uint8_t
#include <cstdlib>       // std::abort, std::getenv
#include <filesystem>    // std::filesystem
#include <fstream>       // std::ofstream
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::error_code
#include <vector>        // std::vector

#include "gradus/core/error.hpp"
#include "gradus/data/encoded_images.hpp"
#include "gradus/data/jpeg.hpp"
#include "input.hpp"

namespace {

namespace fs = std::filesystem;

/// A folder that is empty at first, and is removed at the end.
class scratch_folder {
 public:
  scratch_folder() : path_{(fs::temp_directory_path() / "gradus_fuzz_XXXXXX").string()} {
    if (mkdtemp(path_.data()) == nullptr) {
      std::abort();
    }
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] fs::path path() const { return path_; }

 private:
  std::string path_;
};

/// The parts of a path that stay inside of a folder: one or two names.
fs::path inside(const fs::path& folder, std::string_view text) {
  std::string name{text.substr(0, 200)};
  std::replace(name.begin(), name.end(), '\0', '_');
  const std::size_t slash = name.find('/');
  fs::path result = folder;
  for (std::string part :
       {name.substr(0, slash), slash == std::string::npos ? std::string{} : name.substr(slash + 1)}) {
    std::replace(part.begin(), part.end(), '/', '_');
    if (part == "." || part == "..") {
      part += '_';
    }
    if (!part.empty()) {
      result /= part;
    }
  }
  return result;
}

void make(const fs::path& folder, std::string_view line, std::string_view content) {
  const fs::path path = inside(folder, line.substr(1));
  if (path == folder) {
    return;
  }
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  switch (line[0]) {
    case 'd':
      fs::create_directory(path, ignored);
      break;
    case 'l':  // to itself
      fs::create_symlink(path.filename(), path, ignored);
      break;
    case 'u':  // to the folder above
      fs::create_directory_symlink("..", path, ignored);
      break;
    case 'p':
      static_cast<void>(mkfifo(path.c_str(), 0600));
      break;
    case 'e':
      std::ofstream{path, std::ios::binary};
      break;
    case 't':
      std::ofstream{path, std::ios::binary} << content.substr(0, content.size() / 2);
      break;
    default:
      if (fs::is_fifo(path, ignored)) {
        break;  // it would wait for a reader
      }
      std::ofstream{path, std::ios::binary} << content;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text = gradus_fuzz::text_of(data, size);
  const std::size_t empty = text.find("\n\n");
  const std::string_view content = empty == std::string_view::npos ? std::string_view{} : text.substr(empty + 2);
  text = text.substr(0, empty);
  const scratch_folder folder;
  for (int lines = 0; !text.empty() && lines < 30; ++lines) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.empty()) {
      make(folder.path(), line, content);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  try {
    const gradus::data::class_folders files{folder.path().string()};
    const gradus::data::jpeg_dataset set{
        files,
        {.height = 5, .width = 7, .corrupt = gradus::data::corrupt_image::skip, .limits = {.most_pixels = 4096}}};
    std::vector<float> planes(3 * 5 * 7);
    std::int32_t last = 0;
    for (gradus::index_t i = 0; i < set.size(); ++i) {
      if (set.label(i) < last || set.label(i) > last + 1 || set.label(i) >= set.classes()) {
        std::abort();
      }
      last = set.label(i);
      try {
        set.read(i, planes.data());
        set.read(i, 1, planes.data());
      } catch (const gradus::format_error&) {  // every image of the class is damaged
      }
    }
    if (last + 1 != set.classes() || gradus::data::class_folders{folder.path().string()}.hash() != files.hash()) {
      std::abort();
    }
  } catch (const gradus::format_error&) {
  }
  return 0;
}
