// SPDX-License-Identifier: BSL-1.0
//
// The files of a saved ONNX model: replaced so that after a crash, too, a model finds the data that it was saved with.
#pragma once

#include <filesystem>   // std::filesystem::path
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

/// The file of a model, and the file of its external data. New data never replaces data that a model may refer to: it
/// gets a name that no file has, the model that refers to it replaces the old one, and then the old data is removed.
class onnx_model_files {
 public:
  /// @param path   of the model
  /// @param files  the calls of the operating system
  explicit onnx_model_files(const std::filesystem::path& path, file_system& files = operating_system())
      : files_{files}, path_{path.string()} {
    // Behind links: the model refers to a file in its own folder.
    if (const output_target target = files.resolve_output(path_); target.error == 0) {
      path_ = target.path;
      in_place_ = target.in_place;
    }
    name_ = std::filesystem::path{path_}.filename().string();
  }
  onnx_model_files(const onnx_model_files&) = delete;
  onnx_model_files& operator=(const onnx_model_files&) = delete;

  /// Chooses the name of a new file of external data: that of the model and ".data", or ".data-1" and so on while there
  /// is an older one.
  /// @throws format_error when there are too many, or the model goes to a pipe
  [[nodiscard]] std::string choose_data_name() {
    if (in_place_) {
      raise<format_error>({"write '", path_, "'"}, "a regular file for a model with external data",
                          "a pipe or a device", "save to a file");
    }
    file_status status;
    for (number_ = 0; files_.status(data_path(number_), status) == 0; ++number_) {
      if (number_ + 1 == most_names) {
        raise<format_error>({"write '", path_, "'"}, "a name for its data that no file has",
                            {"files up to '", data_path(number_), "'"}, "remove those that no model refers to");
      }
    }
    return gradus::join({name_, suffix(number_)});
  }

  /// Replaces the model, which has no external data.
  /// @throws format_error when the file cannot be written; an older one stays
  void write(std::string_view model) { replace(path_, model); }

  /// Writes the external data under the name that was chosen, and replaces the model, which refers to it.
  /// @throws format_error when a file cannot be written; an older model and its data stay
  void write(std::string_view model, std::string_view data) {
    replace(data_path(number_), data);
    replace(path_, model);
    for (int number = 0; number < most_names; ++number) {
      if (number != number_) {
        files_.remove(data_path(number));
      }
    }
  }

 private:
  static constexpr int most_names = 100;  // each save that is cut off may leave a file

  [[nodiscard]] static std::string suffix(int number) {
    return number == 0 ? std::string{".data"} : gradus::join({".data-", number});
  }
  [[nodiscard]] std::string data_path(int number) const { return gradus::join({path_, suffix(number)}); }

  void replace(const std::string& path, std::string_view bytes) {
    output_file file{path, files_};
    file.write(bytes);
    file.commit();
  }

  file_system& files_;
  std::string path_;
  std::string name_;
  bool in_place_ = false;  // a pipe or a device
  int number_ = 0;         // of the new data
};

}  // namespace gradus::io::detail
